/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of a group and its world, its queue of works, and who drives it; private to the core.
 */
#ifndef DISTI_CORE_GROUP_H
#define DISTI_CORE_GROUP_H

#include "base/lock.h"
#include "base/log.h"
#include "core/flight.h"
#include "engine/engine.h"
#include "rendezvous/rendezvous.h"
#include "topology/discover.h"

#include <dist/backend.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

/* What is known about a rank, for messages. Fixed size: it is exchanged as bytes. */
struct world_peer {
    struct disti_locality locality;
    char backend[32];
    uint64_t choice;  /* hash of the settings that must be the same everywhere */
    uint64_t unknown; /* hash of the DIST_ variables that nobody knows; 0: there are none */
};

/* A rank that is gone; kept for groups that are made later. */
struct world_gone {
    struct world_gone *next;
    struct disti_notice notice;
    bool untold; /* this rank is to tell the ranks that cannot see that process */
};

/*
 * Made once by dist_init_process_group, gone with the group that it made. `lock` guards everything
 * behind it; whoever has a group's lock may take it, not the other way round.
 */
struct disti_world {
    struct disti_log log;
    int rank, size;
    int timeout_ms;
    int64_t since_ns, join_by_ns; /* when this rank began to join, and until when it may */
    bool reproducible;
    int device;   /* as in struct dist_options; -1: by local rank */
    void *stream; /* of new groups */
    struct disti_bootstrap bootstrap;
    void (*peers_lost)(void);  /* of the backend that introduced the ranks, or NULL */
    struct world_peer *peers;  /* by rank */
    struct dist_place *places; /* by rank */
    bool *watched; /* by rank: without a store, this rank learns of the end of its process */
    struct disti_wait_policy policy; /* of all ranks of the machine: they share its CPUs */

    bool leaving; /* all its groups are being destroyed */

    pthread_mutex_t lock;
    struct dist_group *groups; /* that are not gone, by number */
    struct world_gone *gone;   /* newest first */
    bool orphaned;             /* the store is lost, and this rank looks for deaths by itself */
    uint32_t last_number;      /* in a world of one: of its newest group */
    int64_t next_number;       /* else: of those for new groups that this rank has from the store */
    int numbers_left;
};

/* An empty world, with rank -1. The caller gives it to disti_world_close. */
dist_status disti_world_new(struct disti_world **world_p);

/* The settings that must be the same everywhere, and room for what they are, in errors. */
#define DISTI_WORLD_CHOICES                                                                        \
    "DIST_ALGO, DIST_SEGMENTS, DIST_MPI_COLL, DIST_CHECKSUM and DIST_REPRODUCIBLE"
#define DISTI_WORLD_CHOICE 224

/*
 * Ranks with different algorithms would send each other messages that never meet. Writes the
 * settings as they are now, as far as there is room, and returns the hash of all of them.
 */
uint64_t disti_world_choice(const struct disti_world *world, char text[DISTI_WORLD_CHOICE]);

/* Writes "rank 5 (host b, pid 812)", as notices begin. Returns its length. */
size_t disti_world_name(const struct disti_world *world, int rank, char *text, size_t size);

/* The text after the rank's pid in a message: "", or " in another PID namespace". */
const char *disti_world_elsewhere(const struct disti_world *world, int rank);

/* True if the two ranks share a machine and a pid namespace. */
bool disti_world_sees_process(const struct disti_world *world, int rank, int of);

/* Not all ranks come to their end: whoever introduced them shall not wait for that. */
void disti_world_lost(const struct disti_world *world);

/* Leaves the store, waiting for the others to go if it is here, and frees. NULL is accepted. */
void disti_world_close(struct disti_world *world, int linger_ms);

/* Works, and who moves them along; private to the core. */

/* ---- for those who start operations ---- */

/* What is to be started: a checked call, and what belongs to it. */
struct disti_start {
    /* All but the sequence, which the work gets, and `waits`, which disti_work_run sets. Other
     * callers set that for a call on a stream behind which the program goes on. */
    struct dist_call call;
    const char *name; /* of the function that the program called; NULL: as the collective */
    dist_manner manner;
    size_t in_bytes, out_bytes;   /* from the first to the last element, for stage.c */
    void *owned;                  /* lives as long as the work; may be NULL */
    void (*release)(void *owned); /* frees it; NULL: free */
    /*
     * Called with `owned` each time the operation is about to start (a persistent one), and when it
     * has ended well: by any thread, without locks, before anybody can see that it has ended. May
     * be NULL. Failures end the group.
     */
    dist_status (*begin)(void *owned);
    dist_status (*finish)(void *owned);
    bool detached; /* nobody will wait: the library frees the work when it has ended */
};

/* Frees what belongs to it. */
void disti_start_release(struct disti_start *start);

/*
 * Starts and waits, at most the group's timeout. OK: `owned` has been freed. Any failure: it is
 * still the caller's, and nothing uses it.
 */
dist_status disti_work_run(struct dist_group *group, struct disti_start *start);

/*
 * Starts, does not block on a peer. OK: `owned` is the library's, and *work_p is to be given to
 * dist_wait (detached: work_p may be NULL and is not set). Any failure: `owned` is the caller's.
 */
dist_status disti_work_post(struct dist_group *group, const struct disti_start *start,
                            dist_work **work_p);

/* Makes a persistent work, which dist_start starts. `owned` as with disti_work_post. */
dist_status disti_work_prepare(struct dist_group *group, const struct disti_start *start,
                               dist_work **work_p);

/* ---- for those who make and end groups ---- */

/* Readies a zeroed group for works. ERR_INVALID_ARGUMENT: a setting is wrong. */
dist_status disti_group_open_works(struct dist_group *group);

/*
 * Ends all works: waits for those that are pending, at most the group's timeout; after that, or
 * after an error, they end with it. Then the group takes no calls any more, and nobody but the
 * caller touches its backend. Returns the failure that pending works met.
 */
dist_status disti_group_drain(struct dist_group *group);

/*
 * A reference to the bare structure: its owner has one, which it gives back instead of free(group)
 * when all else in it has been freed, and so has each work that the program has not given to
 * dist_wait yet, since the group tells how it ended.
 */
void disti_group_retain(struct dist_group *group);
void disti_group_release(struct dist_group *group);

/* Is this thread in a function that the program gave to dist_on_complete? */
bool disti_work_is_calling(void);

/* There it must not block: ERR_INVALID_ARGUMENT, which says that `what` does. */
dist_status disti_work_may_wait(const char *what);

/* ---- within ---- */

enum disti_work_kind {
    DISTI_WORK_BLOCKING,         /* on the stack of the caller, who waits */
    DISTI_WORK_ASYNC,            /* the program holds it, and waits for its end */
    DISTI_WORK_STREAM,           /* the same, but dist_wait may leave its end to the stream: */
    DISTI_WORK_DETACHED,         /* then, or from the beginning, nobody waits for it */
    DISTI_WORK_PERSISTENT,       /* the program holds it, and starts it many times */
    DISTI_WORK_PERSISTENT_STREAM /* the same; each start posts a work of kind STREAM */
};

/*
 * A started operation.
 *
 *     launch            ticket ends           completed, in order            waited for
 *    -------> in queue ------------> in queue -------------------> ended ---------------> freed
 *                                              finish and fn,
 *                                              without the lock
 *
 * `ended` is set last, with the lock held, and can be read without. A persistent work is ended
 * while it is not started. The program holds a handle (work.h), never the address.
 */
struct disti_work {
    struct dist_group *group;
    struct dist_ticket ticket;
    struct dist_call call; /* the backend reads it, messages quote it */
    const char *name;      /* as in struct disti_start */
    enum disti_work_kind kind;
    void *owned;
    void (*release)(void *owned);
    dist_status (*finish)(void *owned);
    int64_t deadline_ns;
    bool extended;           /* the deadline was put off, since nobody drove */
    bool warned;             /* half of its time has passed, and somebody was told */
    struct disti_work *next; /* in the queue */
    dist_status status;      /* how it ended */
    atomic_bool ended;
    union {
        struct { /* ASYNC, STREAM, DETACHED: what dist_on_complete gave */
            dist_work_fn fn;
            void *arg;
        } on_complete;
        struct { /* PERSISTENT */
            dist_status (*begin)(void *owned);
            bool started; /* and not yet waited for */
        } persistent;
        dist_work *posted; /* PERSISTENT_STREAM: started and not yet waited for; else NULL */
    };
};

static inline bool disti_work_is_persistent(const struct disti_work *work)
{
    return work->kind == DISTI_WORK_PERSISTENT || work->kind == DISTI_WORK_PERSISTENT_STREAM;
}

/* What messages call it. */
static inline const char *disti_work_name(const struct disti_work *work)
{
    return work->name ? work->name : dist_collective_string(work->call.collective);
}

/* The same for one that nothing belongs to. */
void disti_work_fill_call(struct dist_group *group, const struct dist_call *call,
                          enum disti_work_kind kind, struct disti_work *work);
/* Posts a filled blocking work and waits until it has ended. Call with the lock held and the log in
 * use; gives both back. */
dist_status disti_work_wait_here(struct disti_work *work);
/* How an ended work ended; dist_last_error has the cause. */
dist_status disti_work_result(const struct disti_work *work);

/* Gives back a pin of the work (work.h). The last frees what it owns, and lets go of its group.
 */
void disti_work_unpin(struct disti_work *work);
/* The same for one that was claimed, whose handle is good for nothing from now on: the claim's pin,
 * and with pins 2 the library's own too. */
void disti_work_retire(struct disti_work *work, int pins);

/* calls.c: with DIST_CHECK_NUMERICS=1, tells of the first element that is no number among
 * what this rank gives to a call, or has got from it. Call with the lock held. */
void disti_numerics_given(const struct disti_work *work);
void disti_numerics_got(const struct disti_work *work);

/* stage.c: what the program puts on its stream from now on comes after this work of kind STREAM,
 * and the library sees to its end: it is DETACHED. False: it has ended, or is about to. */
bool disti_stream_join(struct disti_work *work);

/* In a forked child: its thread is in no function of the program any more. */
void disti_complete_forked(void);

/* Who moves a group's works along: one thread at a time; private to the core. */

/*
 * Who drives a group, that is: calls progress, completes works, sleeps until there is news.
 *
 *     THREAD_CALLS                            CALLER_CALLS
 *          ^                                       ^
 *          v        take            take           v
 *       THREAD <-----------> IDLE <-----------> CALLER -------> CLOSED
 *        ^   |     release         release      ^  ^    close
 *        |   `-------------- take ---------------'  |
 *        v                                          v
 *     THREAD_SLEEPS                           CALLER_SLEEPS
 *
 * CALLER is a thread in a call of the library, THREAD the progress thread, from which a caller
 * takes over. CALLS: without the lock, in a function of the program. SLEEPS: without the lock, the
 * backend armed; whoever is about to call the backend wakes the driver first. CLOSED: nobody drives
 * again.
 */
enum disti_drive_state {
    DISTI_DRIVE_IDLE,
    DISTI_DRIVE_CALLER,
    DISTI_DRIVE_CALLER_SLEEPS,
    DISTI_DRIVE_CALLER_CALLS,
    DISTI_DRIVE_THREAD,
    DISTI_DRIVE_THREAD_SLEEPS,
    DISTI_DRIVE_THREAD_CALLS,
    DISTI_DRIVE_CLOSED
};

/* Does the progress thread serve this group? Decided once, when works first need it. */
enum disti_service { DISTI_SERVICE_UNKNOWN, DISTI_SERVICE_NO, DISTI_SERVICE_YES };

/*
 * The part of a group that works need. Guarded by the group's lock, but `wanted` and `references`.
 * `state` is written under the lock and may be read without.
 */
struct disti_drive {
    _Atomic enum disti_drive_state state; /* changed by disti_drive_go alone */
    bool completion_due; /* tickets may have ended since disti_complete looked last */
    int wake_fd;         /* the sleeper's doorbell */
    int waiters;         /* threads that wait for `changed` */
    int messages;        /* sends and receives in the queue */
    int64_t released_ns; /* when the last driver left works behind */
    int64_t watch_ns;    /* when dist_test looked at deadlines last */
    int64_t test_ns;     /* when a caller looked last that does not wait: it may look again soon */
    atomic_int wanted;   /* threads that wait for the lock */
    atomic_int references;
    struct disti_change changed; /* a work has ended, or nobody drives any more */
    enum disti_service service;
    bool one_thread;    /* decided with it: no thread but those that post may call the backend */
    pthread_t left_by;  /* the thread that left works behind */
    atomic_bool listed; /* progress.c; changed with the lock of its list, as is the next */
    STAILQ_ENTRY(dist_group) next_listed;
    struct dist_group *next_served; /* guarded by the list's lock */
    struct dist_group *next_driven; /* the progress thread's own, and so is `driven` */
    bool driven;
};

static inline enum disti_drive_state disti_drive_state(const struct disti_drive *drive)
{
    return atomic_load_explicit(&drive->state, memory_order_relaxed);
}

static inline bool disti_drive_by_thread(enum disti_drive_state state)
{
    return state == DISTI_DRIVE_THREAD || state == DISTI_DRIVE_THREAD_SLEEPS ||
           state == DISTI_DRIVE_THREAD_CALLS;
}

static inline bool disti_drive_calls(enum disti_drive_state state)
{
    return state == DISTI_DRIVE_CALLER_CALLS || state == DISTI_DRIVE_THREAD_CALLS;
}

static inline bool disti_drive_sleeps(enum disti_drive_state state)
{
    return state == DISTI_DRIVE_CALLER_SLEEPS || state == DISTI_DRIVE_THREAD_SLEEPS;
}

/* The group's lock. A thread that drives the group lets others in. */
void disti_group_lock(struct dist_group *group);
void disti_group_unlock(struct dist_group *group);
/* The same for a call of the library: this thread's log is the group's meanwhile. */
void disti_group_enter(struct dist_group *group);
void disti_group_exit(struct dist_group *group);

/* progress.c; with the lock held. */

/* Follows an arrow of the drawing. ERR_INTERNAL where there is none: the state is as it was. */
dist_status disti_drive_go(struct disti_drive *drive, enum disti_drive_state to);

/* Drives, or waits while another thread does, until `work` has ended (NULL: all have), or the point
 * in time `until` (INT64_MAX: without end; the works have deadlines). */
void disti_drive_until(struct dist_group *group, const struct disti_work *work, int64_t until);
/* Drives once, unless another caller does; never blocks. Returns how much happened. */
int disti_drive_once(struct dist_group *group);
/* After a change by a thread that may not be the driver: completes what has ended, and sees to it
 * that somebody drives the rest. */
void disti_drive_kick(struct dist_group *group);

/* A ticket may have failed as this work was posted: ends the group. */
void disti_drive_check(struct dist_group *group, const struct disti_work *newest);

/* progress.c; with the lock held. */

/* Before a call of the backend, and after a change that the driver must see: ends its sleep. */
void disti_drive_wake(struct dist_group *group);

/* progress.c: the thread of the process. */

/* Does DIST_PROGRESS_THREAD hold something sensible? */
dist_status disti_progress_check(void);

/* And it is long work: the thread is to come now, not at its next tick. Call without the lock,
 * which the thread wants as soon as it is awake. */
void disti_progress_hurry(void);

/* A process group and its works; private to the core. */

#define GROUP_TIMEOUT_MS (5 * 60 * 1000)
/* News, and what they end. An error that quotes it is longer still: see base/log.c. */
#define GROUP_TEXT (DISTI_NEWS_MAX + 300)

/*
 * Some ranks of a world, with their own connections and their own order of operations. `lock`
 * guards everything behind it, and the calls into the backend. After the first error `failed` holds
 * it, `cause` its text, and the backend has been aborted. The works keep `lock` and what is behind
 * it until the last of them is freed, even if the group is gone.
 *
 * The structure itself, some hundred bytes, stays for long once the program has seen it: so a
 * handle of a group that is gone is known as such. It may become another group's when a thousand
 * younger ones are gone too.
 */
struct dist_group {
    struct dist_group *older, *newer; /* that the program has seen, and that are not gone */
    bool known;                       /* it has seen this one */
    atomic_bool destroyed;            /* or not this process's: its handle is good for nothing */
    atomic_bool over;      /* destroyed, failed or asked to abort: for ever, so no lock is needed */
    bool forked;           /* this process was forked from the one that has, or had, the group */
    bool inherited;        /* and that one had not destroyed it */
    bool told_leaving;     /* other ranks know that this rank waits to leave it */
    atomic_bool abandoned; /* the others know that this rank takes part in nothing any more */
    struct disti_world *world;
    struct dist_group *next; /* of this world, by number; guarded by the world's lock */
    const struct disti_log *log;
    uint32_t number; /* the same on all its ranks, no other group's of this world; 0: the world */
    int rank, world_size, local_rank, local_ranks;
    int timeout_ms;
    void *stream;              /* dist_set_stream; guarded by lock */
    int *members;              /* by rank: the rank in the world */
    bool whole;                /* members[r] == r, for every rank of the world */
    struct dist_place *places; /* by rank */
    char *job;                 /* the world's job and the number */
    struct dist_backend_config config;
    const struct dist_backend *backend;
    void *state;    /* the backend's; NULL until it is opened */
    bool host_only; /* all memory is the host's, as far as anybody knows */
    struct disti_wait_policy policy;
    void (*meanwhile)(void *arg); /* the program's, for those who wait; NULL: none */
    void *meanwhile_arg;
    uint32_t gathers;            /* how many all-gathers through the store: their keys */
    int64_t open_by_ns;          /* while it is opened: the deadline; else 0 */
    struct disti_notice *news;   /* the first that concerns it; guarded by the world's lock */
    bool has_news;               /* the same */
    struct disti_notice *leaver; /* the first to leave it; NULL: nobody waits for that. The same */
    atomic_bool is_left;         /* there is one */
    atomic_bool is_told;         /* this rank's failure was the first that the store heard of */
    struct group_turn *turns;    /* lists that groups were made of, guarded by the world's lock */
    uint32_t splits;             /* the same */
    int *reserve;                /* group.c */
    bool reserve_taken;          /* guarded by the world's lock */
    struct group_turn *spare_turn; /* the same; NULL: it is used, and there was no other */

    struct disti_lock lock;
    struct disti_drive drive;
    struct disti_flight flight; /* what was called last */
    bool numerics;              /* DIST_CHECK_NUMERICS */
    bool strange[2];            /* the last call was given, or gave, what is no number */
    uint64_t sequence, message_sequence;
    struct disti_repeat *repeats;         /* calls.c: by collective; NULL: none yet */
    uint32_t remembered;                  /* numbers for them, so far */
    struct disti_work *works, *last_work; /* started and not ended, in order */
    uint32_t barriers;                    /* monitored ones, begun */
    dist_status failed;
    bool aborted;                    /* by dist_abort, here or by another rank */
    atomic_bool abort_asked;         /* dist_abort was called here; not guarded by the lock */
    atomic_bool abort_possible;      /* the same: between open and close */
    struct disti_store_alarm *alarm; /* tells the others; NULL: nobody to tell */
    int lost_rank;                   /* a rank that is gone, -1: none; works get a grace to end */
    dist_status lost_status;         /* with lost_rank: what the group ends with */
    bool lost_process;               /* its process is; else it has failed in this group */
    int64_t lost_until_ns;
    char *cause;     /* GROUP_TEXT bytes */
    char *lost_text; /* GROUP_TEXT bytes */
};

/* group.c: making and ending one. */

/* What a group is to be. */
struct disti_group_spec {
    uint32_t number;
    const int *members; /* rank in the world by rank of the group, this process's among them;
                           NULL: the whole world */
    int size;
    int timeout_ms;
    void *stream;
    void (*meanwhile)(void *arg);
    void *meanwhile_arg;
    int64_t until_ns; /* when it has to be open */
    bool no_memory;   /* here: the others are told so, and no rank makes it */
};

/* A group, not open yet. The caller gives it to disti_group_free. */
dist_status disti_group_new(struct disti_world *world, const struct disti_group_spec *spec,
                            struct dist_group **group_p);

/* Opens the backend. Blocks until all ranks have done so, at most until until_ns. */
dist_status disti_group_open(struct dist_group *group, const struct dist_backend *backend);

/* Closes the backend, and frees all but what world.c and works need. NULL is accepted. */
void disti_group_free(struct dist_group *group);

/* world.c */

/* Room for a new group, zeroed; NULL: no memory. The caller frees it until the program knows it. */
struct dist_group *disti_group_blank(void);
/* The program sees it from now on. */
void disti_group_know(struct dist_group *group);
/* It is freed, but for its structure; the program may have seen it or not. */
void disti_group_gone(struct dist_group *group);
/* The group of that number, from the newest on, with its lock; NULL: another thread has that, or is
 * about to free it. False: there are not so many. */
bool disti_group_try(int number, struct dist_group **group_p);

/* failure.c: from now on it may be aborted; and it may not any more. */
void disti_abort_ready(struct dist_group *group);
void disti_abort_end(struct dist_group *group);

/*
 * ERR_INVALID_ARGUMENT for NULL, for a group that is gone, and in a forked child. `what`: the call,
 * for the message.
 */
dist_status disti_group_check(const struct dist_group *group, const char *what);

/* Its ranks, as the store wants them. Valid as long as the group. */
struct disti_party disti_group_party(const struct dist_group *group);

/* For dist_backend_config.leave; arg: the group. Any thread. */
void disti_group_abandon(void *arg, const char *what);

/* "rank 3", or "rank 1 of group 5 (world rank 3)"; for messages. Returns text. */
#define GROUP_NAME 64
const char *disti_group_name(const struct dist_group *group, char text[GROUP_NAME]);

/* Readable when there is news of lost ranks; -1: there is nothing to wait for. */
int disti_group_news_fd(const struct dist_group *group);

/* failure.c */

/* From now on news that concern the group are kept for it; and what is known already. */
void disti_news_subscribe(struct dist_group *group);
void disti_news_unsubscribe(struct dist_group *group);
/* The first news that concern the group, without waiting; false: there are none yet. */
bool disti_news_read(struct dist_group *group, struct disti_notice *notice_p);

/* Has that rank left the job, or was it lost, as far as the store has told? Not this one. */
bool disti_news_is_gone(struct disti_world *world, int world_rank);

/* compare.c: what the ranks called, compared as they leave the group. */

/* The same on all ranks that called the same. */
struct disti_summary {
    uint64_t calls, kept; /* collectives called, and recorded at most */
    uint64_t hash;        /* of the recorded ones */
};

/* groups.c */

/* NULL: no memory. */
struct group_turn *disti_turn_new(void);
void disti_turns_free(struct dist_group *group);

/*
 * group.c: lists for a group that is made of another's ranks. The parent keeps some in reserve for
 * a rank that has no memory, which then says so where it meets the others.
 */
struct disti_group_room {
    int *ranks, *seen; /* as many as the parent has ranks; seen is zeroed */
    bool is_reserve;   /* there was no other memory */
};

dist_status disti_group_room_take(struct dist_group *parent, struct disti_group_room *room);
void disti_group_room_give(struct dist_group *parent, const struct disti_group_room *room);

/* memory.c: what the backend has allocated for the program and the program has left, before close.
 */
void disti_memory_reclaim(struct dist_group *group);
/* In a forked child: what was allocated is the parent's. */
void disti_memory_forked(void);
/* memory.c: the same for memory of dist_shared_alloc. */
void disti_shared_forked(void);

/* stage.c */

/* ERR_INVALID_ARGUMENT for one that is not the same in every thread. */
dist_status disti_stream_check(const void *stream);

/* Tells the backend that several posts follow, or that this was all; see its slot batch. */
dist_status disti_group_batch(struct dist_group *group, bool begin);

/* fault.c: what ends a group. Call with the lock held. */

/*
 * The first error: tells the other ranks, keeps it, aborts the backend, ends every work. If another
 * rank's failure was reported first the group ends with that one; `failed` holds the status.
 */
void disti_group_break(struct dist_group *group, dist_status status, const char *text);

/*
 * A call could not be started here, with dist_last_error as its cause, and the lock is not held.
 * The others go on with theirs: the group ends, unless the program was to blame or it had ended
 * before. Returns what the group ended with, else the status.
 */
dist_status disti_group_unstarted(struct dist_group *group, dist_status status);

/* With that status of it, is a process gone? Else a rank has failed in this group, and lives on. */
static inline bool disti_group_has_lost(const struct dist_group *group, dist_status status)
{
    return status == DIST_ERR_PEER_LOST && (group->lost_rank < 0 || group->lost_process);
}

/*
 * A call of the backend failed with dist_last_error as its cause. For a lost peer the store's news
 * are waited for briefly, since they name the rank that failed first. work may be NULL.
 */
void disti_group_fail(struct dist_group *group, const struct disti_work *work, dist_status status);

/*
 * Looks for news of lost ranks and for the deadline of `work`, warns at half of it; breaks the
 * group when a rank that is gone did not leave enough behind for the works to end.
 */
void disti_group_watch(struct dist_group *group, struct disti_work *work);

/*
 * Has the program aborted it, here or elsewhere? Then the group ends now. For calls that do not
 * drive it; a driver sees it by itself.
 */
void disti_group_check_abort(struct dist_group *group);

/* failure.c: dist_abort was called here, and the group has not failed: ends it. */
void disti_group_abort(struct dist_group *group);

/* failure.c: the sentences in which failures are told. With the lock held. */

/* "all_reduce #412 (float32 x 1048576, sum)"; NULL: "its operations". */
#define GROUP_CALL 160
const char *disti_failure_call(const struct disti_work *work, char text[GROUP_CALL]);

/* ERR_ABORTED with the first cause, for calls on a broken group. */
dist_status disti_group_refuse(const struct dist_group *group, const char *what);

#endif
