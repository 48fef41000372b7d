/* SPDX-License-Identifier: BSD-3-Clause */
/* A process group and its works; private to the core. */
#ifndef DISTI_CORE_GROUP_GROUP_H
#define DISTI_CORE_GROUP_GROUP_H

#include "core/flight/flight.h"
#include "core/group/world.h"
#include "core/work/drive.h"

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
    int *reserve;                /* room.c */
    bool reserve_taken;          /* guarded by the world's lock */
    struct group_turn *spare_turn; /* the same; NULL: it is used, and there was no other */

    struct disti_lock lock;
    struct disti_drive drive;
    struct disti_flight flight; /* what was called last */
    bool numerics;              /* DIST_CHECK_NUMERICS */
    bool strange[2];            /* the last call was given, or gave, what is no number */
    uint64_t sequence, message_sequence;
    struct disti_repeat *repeats;         /* call/repeat.c: by collective; NULL: none yet */
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

/* Closes the backend, and frees all but what known.c and works need. NULL is accepted. */
void disti_group_free(struct dist_group *group);

/*
 * groups.c: checks the arguments that all calls have which make groups. `options` becomes a copy of
 * `given` with every default filled in. `what`: the call, for the message.
 */
dist_status disti_groups_check(const struct dist_group *parent, const char *what,
                               const struct dist_group_options *given, dist_group **group_p,
                               struct dist_group_options *options);

/* known.c */

/* Room for a new group, zeroed; NULL: no memory. The caller frees it until the program knows it. */
struct dist_group *disti_group_blank(void);
/* The program sees it from now on. */
void disti_group_know(struct dist_group *group);
/* It is freed, but for its structure; the program may have seen it or not. */
void disti_group_gone(struct dist_group *group);
/* The group of that number, from the newest on, with its lock; NULL: another thread has that, or is
 * about to free it. False: there are not so many. */
bool disti_group_try(int number, struct dist_group **group_p);

/* abort.c: from now on it may be aborted; and it may not any more. */
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

/* news.c */

/* From now on news that concern the group are kept for it; and what is known already. */
void disti_news_subscribe(struct dist_group *group);
void disti_news_unsubscribe(struct dist_group *group);
/* The first news that concern the group, without waiting; false: there are none yet. */
bool disti_news_read(struct dist_group *group, struct disti_notice *notice_p);
/*
 * If the store is lost, looks for deaths without it: the processes of this machine, the connections
 * of the endpoints, and what other ranks tell. Tells them in turn. Returns false if there is a
 * store. Call with a group's lock held; blocks for at most half a second, once for each dead rank.
 */
bool disti_news_listen(struct disti_world *world);
/* If the store is lost, tells the group's other ranks that it failed here. False: there is a store,
 * which is to tell them. With the group's lock held. */
bool disti_news_tell_failure(struct dist_group *group, dist_status status, const char *text);
/* True if this rank would learn of the end of that rank's process. */
bool disti_news_is_seen(const struct dist_group *group, int rank);
/* Has one of its ranks begun to leave the group? Without a lock while none has. */
bool disti_news_leaver(struct dist_group *group, struct disti_notice *notice_p);
/* Has that rank left the job, or was it lost, as far as the store has told? Not this one. */
bool disti_news_is_gone(struct disti_world *world, int world_rank);

/* compare.c: what the ranks called, compared as they leave the group. */

/* The same on all ranks that called the same. */
struct disti_summary {
    uint64_t calls, kept; /* collectives called, and recorded at most */
    uint64_t hash;        /* of the recorded ones */
};
void disti_compare_summarize(struct dist_group *group, struct disti_summary *summary_p);
bool disti_compare_same(const struct disti_summary *all, int ranks);
/* They are not the same: all ranks exchange details. Reports and returns ERR_MISMATCH. */
dist_status disti_compare_explain(struct dist_group *group, const struct disti_summary *sums,
                                  int timeout_ms);

/* agree.c */

/*
 * The ranks of a group to be agree on its number, and that they want the same backend. Blocks until
 * all have come, at most until until_ns: ERR_TIMEOUT names who did not.
 */
dist_status disti_group_agree(struct dist_group *parent, const struct disti_group_spec *spec,
                              const char *backend, uint32_t *number_p);
/*
 * Instead of disti_group_agree, by a rank whose program passed wrong arguments, as dist_last_error
 * says: the other ranks' calls end with that. `members` are ranks of the world. Does not wait.
 * Returns status, and leaves the last error as it is.
 */
dist_status disti_group_decline(struct dist_group *parent, const int *members, int count,
                                dist_status status);
/* True if another rank has declined, or the parent was aborted, on all ranks. */
bool disti_group_is_declined(dist_status status);
/* The status that the other ranks get: `status` if it says something of arguments, or ERR_ABORTED.
 */
dist_status disti_group_decline_status(dist_status status);
/* NULL: no memory. */
struct group_turn *disti_turn_new(void);
void disti_turns_free(struct dist_group *group);
/* Would messages of a group with that number be those of one that lives? Numbers are cut off. */
bool disti_group_number_clashes(struct disti_world *world, uint32_t number);

/*
 * room.c: lists for a group that is made of another's ranks. The parent keeps some in reserve for a
 * rank that has no memory, which then says so where it meets the others.
 */
struct disti_group_room {
    int *ranks, *seen; /* as many as the parent has ranks; seen is zeroed */
    bool is_reserve;   /* there was no other memory */
};
dist_status disti_group_room_reserve(struct dist_group *group);
dist_status disti_group_room_take(struct dist_group *parent, struct disti_group_room *room);
void disti_group_room_give(struct dist_group *parent, const struct disti_group_room *room);

/* memory.c: what the backend has allocated for the program and the program has left, before close.
 */
void disti_memory_reclaim(struct dist_group *group);
/* In a forked child: what was allocated is the parent's. */
void disti_memory_forked(void);
/* shared.c: the same for memory of dist_shared_alloc. */
void disti_shared_forked(void);

/* stream.c */

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

/* abort.c: dist_abort was called here, and the group has not failed: ends it. */
void disti_group_abort(struct dist_group *group);

/* failure.c: the sentences in which failures are told. With the lock held. */

/* "all_reduce #412 (float32 x 1048576, sum)"; NULL: "its operations". */
#define GROUP_CALL 160
const char *disti_failure_call(const struct disti_work *work, char text[GROUP_CALL]);

/* What ended a call, or all of the group (NULL). Each returns text, of GROUP_TEXT bytes. */
const char *disti_failure_lost(struct dist_group *group, const struct disti_work *work,
                               const char *what, char *text);
const char *disti_failure_timeout(struct dist_group *group, const struct disti_work *work,
                                  char *text);
/* It has waited for half of its time, and for whom. */
const char *disti_failure_stall(struct dist_group *group, const struct disti_work *work,
                                char *text);
/* Did the last of these two name that rank? */
bool disti_failure_waits_for(const struct dist_group *group, int rank);

/* ERR_ABORTED with the first cause, for calls on a broken group. */
dist_status disti_group_refuse(const struct dist_group *group, const char *what);

#endif
