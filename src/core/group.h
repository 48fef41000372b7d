/* SPDX-License-Identifier: BSD-3-Clause */
/* Internal to the core: a world, its groups, their requests, and the state of their progress. */
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

/* The data that each rank publishes when it joins. Fixed size: exchanged as bytes. */
struct world_peer {
    struct disti_locality locality;
    char backend[32];
    uint64_t settings; /* hash of the settings that must be equal on all ranks */
    uint64_t unknown;  /* hash of the unknown DIST_ variables; 0: none */
};

/* A rank that has exited. Entries are kept, since groups that are created later need them. */
struct world_exit {
    struct world_exit *next;
    struct disti_notice notice;
    bool must_forward; /* this rank must notify the ranks that cannot observe that process */
};

/* A world, created by dist_init_process_group and freed with the group that this call created.
 * `lock` guards the members below it. A thread that holds a group's lock may take the world's lock,
 * but not the other way round. */
struct disti_world {
    struct disti_log log;
    int rank, size;
    int timeout_ms;
    int64_t since_ns, join_by_ns; /* time when this rank began to join; deadline for joining */
    bool reproducible;
    int device;   /* index of this rank's GPU; -1: chosen by local rank */
    void *stream; /* default stream of new groups */
    struct disti_bootstrap bootstrap;
    void (*peers_lost)(void);  /* callback of the backend that identified the ranks, or NULL */
    struct world_peer *peers;  /* by rank */
    struct dist_place *places; /* by rank */
    bool *watched;             /* by rank: without the store, we monitor that rank's process */
    struct disti_wait_policy policy; /* depends on all ranks of this machine */

    bool leaving; /* all groups of the world are being destroyed */

    pthread_mutex_t lock;
    struct dist_group *groups; /* open groups, sorted by number */
    struct world_exit *exits;  /* ranks that have exited, newest first */
    bool store_lost;           /* this rank detects exits without the store */
    uint32_t last_number;      /* in a world of 1 rank: number of the newest group */
    int64_t next_number;       /* in a larger world: next group number reserved by this rank */
    int numbers_left;          /* number of reserved group numbers that are unused */
};

/* Creates an empty world with rank -1. The caller frees it with disti_world_close. */
dist_status disti_world_new(struct disti_world **world_p);

/* The names of the settings that must be equal on all ranks, and the buffer size for the text of
 * disti_world_settings. */
#define DISTI_WORLD_SETTINGS                                                                       \
    "DIST_ALGO, DIST_SEGMENTS, DIST_MPI_COLL, DIST_CHECKSUM and DIST_REPRODUCIBLE"
#define DISTI_WORLD_SETTINGS_SIZE 224

/* Writes the current settings, truncated to the buffer, and returns a hash of this text and of the
 * full DIST_ALGO. Ranks with different settings would select different algorithms, whose messages
 * do not match. */
uint64_t disti_world_settings(const struct disti_world *world,
                              char text[DISTI_WORLD_SETTINGS_SIZE]);

/* Writes "rank 5 (host b, pid 812)", the beginning of every notice. Returns its length. */
size_t disti_world_name(const struct disti_world *world, int rank, char *text, size_t size);

/* Returns the text after the rank's pid in a message: "" or " in another PID namespace". */
const char *disti_world_elsewhere(const struct disti_world *world, int rank);

/* True if the two ranks share a machine and a PID namespace. */
bool disti_world_sees_process(const struct disti_world *world, int rank, int of);

/* Tells the backend that identified the ranks not to wait for lost ranks when the process exits. */
void disti_world_lost(const struct disti_world *world);

/* Leaves the store and frees the world. If this process holds the store, first waits up to
 * linger_ms for the other ranks to disconnect. NULL is accepted. */
void disti_world_close(struct disti_world *world, int linger_ms);

/* Requests */

/* ---- starting an operation ---- */

/* An operation to start: a checked call and its resources. */
struct disti_start {
    /* The request assigns the sequence number, and disti_work_run sets `waits`. Other callers set
     * `waits` only for a call that a stream orders. */
    struct dist_call call;
    const char *name; /* name of the public function, for messages; NULL: that of the collective */
    dist_manner manner;
    size_t in_bytes, out_bytes;   /* span from the first to the last element, for stage.c */
    void *owned;                  /* freed with the request; may be NULL */
    void (*release)(void *owned); /* NULL: free() */
    /*
     * Optional, called with `owned`: `begin` each time a persistent request starts, `finish` when
     * the operation has succeeded, before its completion is visible. Any thread may call them,
     * without locks. If one fails, the group fails.
     */
    dist_status (*begin)(void *owned);
    dist_status (*finish)(void *owned);
    bool detached; /* no caller waits: the library frees the request after completion */
};

/* Releases `owned`. */
void disti_start_release(struct disti_start *start);

/*
 * Starts the operation and blocks until it completes, at most for the group's timeout. On success
 * `owned` has been freed. On any failure the caller still owns it, and no operation uses it.
 */
dist_status disti_work_run(struct dist_group *group, struct disti_start *start);

/*
 * Starts the operation without waiting for a peer. On success the library owns `owned`, and the
 * caller passes *work_p to dist_wait (with `detached`, work_p is not set and may be NULL). On any
 * failure the caller still owns `owned`.
 */
dist_status disti_work_post(struct dist_group *group, const struct disti_start *start,
                            dist_work **work_p);

/* Creates a persistent request, which dist_start starts. Ownership of `owned` as in
 * disti_work_post. */
dist_status disti_work_prepare(struct dist_group *group, const struct disti_start *start,
                               dist_work **work_p);

/* ---- opening and closing groups ---- */

/* Initializes the request state of a zeroed group. ERR_INVALID_ARGUMENT: a setting is invalid. */
dist_status disti_group_open_works(struct dist_group *group);

/*
 * Completes all requests: waits for pending requests, at most for the group's timeout. After the
 * timeout or an error, the remaining requests fail with it. Afterwards the group accepts no calls,
 * and only the caller may use its backend. Returns the error that pending requests failed with.
 */
dist_status disti_group_drain(struct dist_group *group);

/*
 * Reference counting of the structure itself. The owner of the group holds one reference and
 * releases it after it has freed everything else in the group. Each request that the program has
 * not passed to dist_wait holds another, since the group stores the cause of its failure.
 */
void disti_group_retain(struct dist_group *group);
void disti_group_release(struct dist_group *group);

/* True in a thread that runs a callback set with dist_on_complete. */
bool disti_work_is_calling(void);

/* Returns ERR_INVALID_ARGUMENT if this thread runs such a callback, where blocking calls are
 * forbidden. `what` is the call's name for the message. */
dist_status disti_work_may_wait(const char *what);

/* ---- internal ---- */

enum disti_work_kind {
    DISTI_WORK_BLOCKING,         /* on the stack of the caller, which waits for it */
    DISTI_WORK_ASYNC,            /* the program holds a handle and waits for it */
    DISTI_WORK_STREAM,           /* like ASYNC, but dist_wait on a stream may make it DETACHED */
    DISTI_WORK_DETACHED,         /* no thread waits for it */
    DISTI_WORK_PERSISTENT,       /* the program holds a handle and starts it repeatedly */
    DISTI_WORK_PERSISTENT_STREAM /* like PERSISTENT; each start posts a STREAM request */
};

/*
 * A started operation.
 *
 *     started           ticket ends           completed, in order            waited for
 *    -------> in queue ------------> in queue -------------------> ended ---------------> freed
 *                                              calls finish and fn
 *                                              without the lock
 *
 * `ended` is set last, with the lock held, and can be read without the lock. A persistent request
 * counts as ended while it is not started. The program holds a handle (work.h), never the address.
 */
struct disti_work {
    struct dist_group *group;
    struct dist_ticket ticket;
    struct dist_call call; /* read by the backend and by messages */
    const char *name;
    enum disti_work_kind kind;
    void *owned;
    void (*release)(void *owned);
    dist_status (*finish)(void *owned);
    int64_t deadline_ns;
    bool extended; /* the deadline was extended, since no thread made progress for a while */
    bool warned;   /* the warning after half of the timeout was logged */
    struct disti_work *next; /* next in the queue */
    dist_status status;      /* valid when ended */
    atomic_bool ended;
    union {
        struct { /* ASYNC, STREAM, DETACHED: set by dist_on_complete */
            dist_work_fn fn;
            void *arg;
        } on_complete;
        struct { /* PERSISTENT */
            dist_status (*begin)(void *owned);
            bool started; /* started and not yet waited for */
        } persistent;
        dist_work *posted; /* PERSISTENT_STREAM: the posted request until it is waited for;
                              otherwise NULL */
    };
};

static inline bool disti_work_is_persistent(const struct disti_work *work)
{
    return work->kind == DISTI_WORK_PERSISTENT || work->kind == DISTI_WORK_PERSISTENT_STREAM;
}

/* Returns the name of the operation for messages. */
static inline const char *disti_work_name(const struct disti_work *work)
{
    return work->name ? work->name : dist_collective_string(work->call.collective);
}

/* Initializes a request that owns no resources. */
void disti_work_fill_call(struct dist_group *group, const struct dist_call *call,
                          enum disti_work_kind kind, struct disti_work *work);
/* Posts an initialized blocking request and waits until it has ended. The caller holds the lock
 * and has selected the group's log; both are released. */
dist_status disti_work_wait_here(struct disti_work *work);
/* Returns the status of an ended request; dist_last_error has the cause. */
dist_status disti_work_result(const struct disti_work *work);

/* Releases a pin of the request (work.h). The last release frees what the request owns and drops
 * its reference to the group. */
void disti_work_unpin(struct disti_work *work);
/* Releases the claim's pin of a request and invalidates its handle; with pins == 2 also releases
 * the library's own pin. */
void disti_work_retire(struct disti_work *work, int pins);

/* calls.c: with DIST_CHECK_NUMERICS=1, warns about the first NaN or infinity in this rank's
 * input or output of a call. Call with the lock held. */
void disti_numerics_given(const struct disti_work *work);
void disti_numerics_got(const struct disti_work *work);

/* stage.c: makes the program's stream wait for this STREAM request and detaches the request, so
 * that the library completes it. Returns false if it has ended or is about to. */
bool disti_stream_join(struct disti_work *work);

/* In a forked child: resets the state that says that this thread runs a callback. */
void disti_complete_forked(void);

/* Progress */

/*
 * The progress owner of a group: calls the backend's progress function, completes requests, and
 * sleeps until there are events. At most one thread at a time.
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
 * CALLER: a thread in a call of the library. THREAD: the progress thread, from which a caller can
 * take over. CALLS: in a callback of the program, without the lock. SLEEPS: without the lock, with
 * the backend armed; a thread that is about to call the backend first wakes the owner. CLOSED: no
 * thread makes progress again.
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

/* States whether the progress thread serves this group. Decided once, when a request first needs
 * it. */
enum disti_service { DISTI_SERVICE_UNKNOWN, DISTI_SERVICE_NO, DISTI_SERVICE_YES };

/* A group's progress state. Guarded by the group's lock, except `wanted` and `references`.
 * `state` is written with the lock held and may be read without it. */
struct disti_drive {
    _Atomic enum disti_drive_state state; /* changed only by disti_drive_go */
    bool completion_due;                  /* tickets may have ended since the last disti_complete */
    int wake_fd;                          /* eventfd that wakes a sleeping owner */
    int waiters;                          /* threads that wait on `changed` */
    int messages;                         /* number of sends and receives in the queue */
    int64_t released_ns; /* when the last owner released the group with requests pending */
    int64_t watch_ns;    /* when dist_test last checked deadlines */
    int64_t test_ns;     /* when a non-blocking caller last polled; it may poll again soon */
    atomic_int wanted;   /* number of threads that wait for the lock */
    atomic_int references;
    struct disti_change changed; /* a request has ended or the owner has released the group */
    enum disti_service service;
    bool one_thread;   /* decided with `service`: only threads that post may call the backend */
    pthread_t left_by; /* the thread that released the group with requests pending */
    /* The list of groups with pending requests and no progress owner: membership and next entry.
     * Guarded by that list's lock (progress.c). */
    atomic_bool listed;
    STAILQ_ENTRY(dist_group) next_listed;
    /* The next group that the progress thread serves. Guarded by the lock of the list of served
     * groups (progress.c). */
    struct dist_group *next_served;
    struct dist_group *next_driven; /* used only by the progress thread, like `driven` */
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

/* Take and release the group's lock. The progress owner yields it to waiting threads. */
void disti_group_lock(struct dist_group *group);
void disti_group_unlock(struct dist_group *group);
/* As above, at the start and end of a public call; also select the group's log for this thread. */
void disti_group_enter(struct dist_group *group);
void disti_group_exit(struct dist_group *group);

/* progress.c; call with the lock held. */

/* Makes a transition of the state diagram. ERR_INTERNAL if there is no such transition; the
 * state is unchanged then. */
dist_status disti_drive_go(struct disti_drive *drive, enum disti_drive_state to);

/* Makes progress, or waits while another thread does, until `work` has ended (NULL: all
 * requests) or until the time `until` (INT64_MAX: no limit; the requests have deadlines). */
void disti_drive_until(struct dist_group *group, const struct disti_work *work, int64_t until);
/* Makes progress once, unless another caller owns the group; never blocks. Returns the number of
 * events handled. */
int disti_drive_once(struct dist_group *group);
/* Call after a change by a thread that may not be the progress owner: completes ended requests
 * and ensures that a thread makes progress on the remaining requests. */
void disti_drive_kick(struct dist_group *group);

/* Fails the group if the ticket of `newest` failed when it was posted. */
void disti_drive_check(struct dist_group *group, const struct disti_work *newest);

/* Wakes a sleeping progress owner. Call before a call of the backend and after a change that the
 * owner must see. */
void disti_drive_wake(struct dist_group *group);

/* progress.c: the progress thread. */

/* ERR_INVALID_ARGUMENT if DIST_PROGRESS_THREAD is invalid. */
dist_status disti_progress_check(void);

/* Wakes the progress thread immediately instead of at its next tick, for a long operation. Call
 * without the group's lock, which the thread takes as soon as it wakes. */
void disti_progress_hurry(void);

/* Groups */

#define GROUP_TIMEOUT_MS (5 * 60 * 1000)
/* Buffer size for the text of a notice and of the call that ends because of it. An error that
 * quotes this text is longer: see base/log.c. */
#define GROUP_TEXT (DISTI_NEWS_MAX + 300)

/*
 * Some ranks of a world, with their own connections and order of operations. `lock` guards the
 * members below it and calls into the backend. After the first error, `failed` is its status,
 * `cause` is its text, and the backend has been aborted. `lock` and the members below it stay valid
 * until the last request is freed, even after the group is closed.
 *
 * The structure itself (a few hundred bytes) is kept after the group is freed, so that stale
 * handles are rejected. It is reused after the program has destroyed about 1000 more groups.
 */
struct dist_group {
    struct dist_group *older, *newer; /* list of the groups that the program has */
    bool known;                       /* the group is in that list */
    atomic_bool destroyed;            /* also set in a forked child: the handle is invalid */
    atomic_bool over;                 /* destroyed, failed or aborting; never reset */
    bool forked;           /* this process was forked from the one that created the group */
    bool inherited;        /* forked, and the parent process had not destroyed it */
    bool leave_reported;   /* this rank has reported to the store that it is leaving */
    atomic_bool abandoned; /* this rank has reported to the store that it has abandoned the group */
    struct disti_world *world;
    struct dist_group *next; /* next group of the world, by number; guarded by the world's lock */
    const struct disti_log *log;
    uint32_t number; /* equal on all its ranks and unique in the world; 0: the world */
    int rank, world_size, local_rank, local_ranks;
    atomic_int timeout_ms;
    void *stream;              /* set by dist_set_stream; guarded by lock */
    int *members;              /* by rank: its rank in the world */
    bool whole;                /* all ranks of the world, with members[r] == r */
    struct dist_place *places; /* by rank */
    char *job;                 /* the world's job name and the number */
    struct dist_backend_config config;
    const struct dist_backend *backend;
    void *state;    /* the backend's state; NULL until opened */
    bool host_only; /* the program cannot have device memory */
    struct disti_wait_policy policy;
    void (*meanwhile)(void *arg); /* the program's callback for waiting threads, or NULL */
    void *meanwhile_arg;
    uint32_t gathers;            /* number of store exchanges so far; makes their keys unique */
    int64_t open_by_ns;          /* deadline while the group is being opened; otherwise 0 */
    struct disti_notice *news;   /* first failure notice; guarded by the world's lock */
    bool has_news;               /* `news` is set; guarded by the world's lock */
    struct disti_notice *leaver; /* notice of the rank that leaves after the fewest calls, or NULL;
                                    guarded by the world's lock */
    atomic_bool has_leaver;      /* `leaver` is set; readable without a lock */
    atomic_bool reported_first;  /* the store reported this rank's failure as the group's first */
    struct group_turn *turns;    /* uses of each rank list; guarded by the world's lock */
    uint32_t splits;             /* number of dist_split_group calls; guarded by the world's lock */
    int *reserve;                /* preallocated lists for disti_group_lists */
    bool reserve_taken;          /* `reserve` is in use; guarded by the world's lock */
    struct group_turn *spare_turn; /* preallocated entry for `turns`, or NULL */

    struct disti_lock lock;
    struct disti_drive drive;
    struct disti_flight flight; /* the last calls */
    bool numerics;              /* DIST_CHECK_NUMERICS */
    bool strange[2];            /* input, output of the last call contained NaN or infinity */
    uint64_t sequence, message_sequence;
    struct disti_repeat *repeats;         /* calls.c: by collective; NULL: not allocated */
    uint32_t remembered;                  /* number of identifiers assigned to `repeats` */
    struct disti_work *works, *last_work; /* pending requests, in order */
    uint32_t barriers;                    /* number of monitored barriers begun */
    dist_status failed;
    bool aborted;                /* ended by dist_abort on this rank or another */
    atomic_bool abort_requested; /* dist_abort was called on this rank; not guarded by the lock */
    atomic_bool abort_possible;  /* the group is open; not guarded by the lock */
    struct disti_store_alarm *alarm; /* reports dist_abort; NULL: no store or memory */
    int lost_rank; /* the lost or failed rank, or -1; pending requests get a grace period */
    dist_status lost_status; /* valid with lost_rank: the status that the group ends with */
    bool lost_process;       /* its process was lost; otherwise the rank failed in this group */
    int64_t lost_until_ns;   /* end of the grace period */
    char *cause;             /* GROUP_TEXT bytes */
    char *lost_text;         /* GROUP_TEXT bytes */
};

/* group.c: creating and freeing a group. */

/* Parameters of a new group. */
struct disti_group_spec {
    uint32_t number;
    const int *members; /* world ranks in group order, including this process's; NULL: all ranks */
    int size;
    int timeout_ms;
    void *stream;
    void (*meanwhile)(void *arg);
    void *meanwhile_arg;
    int64_t until_ns; /* deadline for opening */
    bool no_memory;   /* this rank is out of memory: creation fails on all ranks */
};

/* Creates a group that is not open yet. The caller frees it with disti_group_free. */
dist_status disti_group_new(struct disti_world *world, const struct disti_group_spec *spec,
                            struct dist_group **group_p);

/* Opens the backend. Blocks until all ranks have opened theirs, at most until spec->until_ns. */
dist_status disti_group_open(struct dist_group *group, const struct dist_backend *backend);

/* Closes the backend and frees everything except the structure that requests and stale handles
 * still use. NULL is accepted. */
void disti_group_free(struct dist_group *group);

/* world.c */

/* Returns a zeroed structure for a new group, or NULL without memory. The caller frees it with
 * disti_group_retire. */
struct dist_group *disti_group_blank(void);
/* Adds an open group to the list of the groups that the program has. */
void disti_group_publish(struct dist_group *group);
/* Removes the group from that list, if it is there, and keeps its structure so that stale
 * handles are rejected. */
void disti_group_retire(struct dist_group *group);
/* Locks the group at position `number` of the list, newest first. *group_p is NULL if another
 * thread holds its lock or is about to free it. Returns false if there is no such position. */
bool disti_group_try_lock(int number, struct dist_group **group_p);

/* failure.c: dist_abort is possible between these two calls. */
void disti_abort_enable(struct dist_group *group);
void disti_abort_disable(struct dist_group *group);

/* ERR_INVALID_ARGUMENT for NULL, for a destroyed group, and in a forked child. `what` is the
 * call's name for the message. */
dist_status disti_group_check(const struct dist_group *group, const char *what);

/* Returns the group's rank set for requests to the store. Valid as long as the group. */
struct disti_party disti_group_party(const struct dist_group *group);

/* Implements dist_backend_config.leave; `arg` is the group. Reports "rank N WHAT" to the other
 * ranks; this rank then takes part in no further operation of the group. Any thread may call it. */
void disti_group_abandon(void *arg, const char *what);

/* Writes "rank 3" or "rank 1 of group 5 (world rank 3)" for messages. Returns text. */
#define GROUP_NAME 64
const char *disti_group_name(const struct dist_group *group, char text[GROUP_NAME]);

/* Returns a descriptor that is readable when failure notices are available, or -1 if there is no
 * store. */
int disti_group_news_fd(const struct dist_group *group);

/* failure.c */

/* Starts to keep failure notices for the group, including a notice that has arrived already. */
void disti_news_subscribe(struct dist_group *group);
void disti_news_unsubscribe(struct dist_group *group);
/* Copies the group's first failure notice without blocking. Returns false if there is none. */
bool disti_news_read(struct dist_group *group, struct disti_notice *notice_p);

/* True if another rank's process is known to have left the job or to have been lost. */
bool disti_news_has_exited(struct disti_world *world, int world_rank);

/* groups.c: comparison of the ranks' calls when they leave the group. */

/* Equal on all ranks that made the same calls. */
struct disti_summary {
    uint64_t calls, kept; /* collectives called; capacity of the record */
    uint64_t hash;        /* hash of the recorded calls */
};

/* groups.c: returns an entry for group->turns, or NULL without memory. */
struct group_turn *disti_turn_new(void);
void disti_turns_free(struct dist_group *group);

/*
 * group.c: rank lists for creating a group from another group's ranks. The parent keeps one
 * preallocated pair, so that a rank without memory can still tell the other ranks that it cannot
 * take part.
 */
struct disti_group_lists {
    int *ranks, *seen; /* one entry for each rank of the parent; seen is zeroed */
    bool is_reserve;   /* the preallocated lists, since allocation failed */
};

dist_status disti_group_lists_alloc(struct dist_group *parent, struct disti_group_lists *lists);
void disti_group_lists_free(struct dist_group *parent, const struct disti_group_lists *lists);

/* memory.c: frees the memory that the backend allocated for the program and that the program has
 * not freed. Call before the backend is closed. */
void disti_memory_reclaim(struct dist_group *group);
/* In a forked child: forgets the parent's allocations. */
void disti_memory_forked(void);
/* In a forked child: forgets the parent's memory from dist_shared_alloc. */
void disti_shared_forked(void);

/* stage.c */

/* ERR_INVALID_ARGUMENT for a stream whose meaning depends on the calling thread. */
dist_status disti_stream_check(const void *stream);

/* Begins or ends a batch of posts (`batch` in struct dist_backend). */
dist_status disti_group_batch(struct dist_group *group, bool begin);

/* failure.c: ending a group. Call with the lock held. */

/*
 * Ends the group with its first error: notifies the other ranks, stores the error, aborts the
 * backend and ends every request. If another rank's failure was reported first, the group ends with
 * that failure; `failed` holds the status.
 */
void disti_group_break(struct dist_group *group, dist_status status, const char *text);

/*
 * Handles a call that this rank could not start; dist_last_error has the cause. With ERR_NO_MEMORY
 * and ERR_SYSTEM, the other ranks may have started theirs, so the group ends unless it had ended.
 * Returns the status that the group ended with, otherwise `status`. Call without the lock.
 */
dist_status disti_group_unstarted(struct dist_group *group, dist_status status);

/* True if the group ended with `status` because a process was lost. False if a rank failed in
 * this group and its process is alive. */
static inline bool disti_group_has_lost(const struct dist_group *group, dist_status status)
{
    return status == DIST_ERR_PEER_LOST && (group->lost_rank < 0 || group->lost_process);
}

/*
 * Handles a failed call of the backend; dist_last_error has the cause. If a peer was lost, briefly
 * waits for the store's notice, which names the rank that failed first. `work` may be NULL.
 */
void disti_group_fail(struct dist_group *group, const struct disti_work *work, dist_status status);

/* Checks for failure notices and for the deadline of `work`, and warns at half of the timeout.
 * Ends the group if its requests cannot complete without a lost rank. */
void disti_group_watch(struct dist_group *group, struct disti_work *work);

/* Ends the group if it was aborted on this rank or another. For calls that make no progress; the
 * progress owner checks by itself. */
void disti_group_check_abort(struct dist_group *group);

/* Ends the group after dist_abort was called on this rank, if it has not failed. */
void disti_group_abort(struct dist_group *group);

/* failure.c: texts of failures. Call with the lock held. */

/* Writes "all_reduce #412 (float32 x 1048576, sum)"; for NULL returns "its operations". */
#define GROUP_CALL 160
const char *disti_failure_call(const struct disti_work *work, char text[GROUP_CALL]);

/* Returns ERR_ABORTED with the first cause, for calls on a failed group. `what` is the call's
 * name. */
dist_status disti_group_refuse(const struct dist_group *group, const char *what);

#endif
