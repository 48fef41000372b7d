/* SPDX-License-Identifier: BSD-3-Clause */
/* Works, and who moves them along; private to the core. */
#ifndef DISTI_CORE_WORK_WORK_H
#define DISTI_CORE_WORK_WORK_H

#include <dist/backend.h>
#include <stdatomic.h>

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
 * while it is not started. The program holds a handle (handle.h), never the address.
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

/* work.c: posts a filled work and puts it into the queue. Call with the lock held. */
dist_status disti_work_launch(struct disti_work *work);
/* Fills a work; nothing is started. */
void disti_work_fill(struct dist_group *group, const struct disti_start *start,
                     enum disti_work_kind kind, struct disti_work *work);
/* The same for one that nothing belongs to. */
void disti_work_fill_call(struct dist_group *group, const struct dist_call *call,
                          enum disti_work_kind kind, struct disti_work *work);
/* Posts a filled blocking work and waits until it has ended. Call with the lock held and the log in
 * use; gives both back. */
dist_status disti_work_wait_here(struct disti_work *work);
/* How an ended work ended; dist_last_error has the cause. */
dist_status disti_work_result(const struct disti_work *work);
/* Gives back the only pin of a work that has not been started: what it owns is the caller's. */
void disti_work_undo(struct disti_work *work);
/* Gives back a pin of the work (handle.h). The last frees what it owns, and lets go of its group.
 */
void disti_work_unpin(struct disti_work *work);
/* The same for one that was claimed, whose handle is good for nothing from now on: the claim's pin,
 * and with pins 2 the library's own too. */
void disti_work_retire(struct disti_work *work, int pins);

/* call/numerics.c: with DIST_CHECK_NUMERICS=1, tells of the first element that is no number among
 * what this rank gives to a call, or has got from it. Call with the lock held. */
void disti_numerics_given(const struct disti_work *work);
void disti_numerics_got(const struct disti_work *work);

/* stream.c: what the program puts on its stream from now on comes after this work of kind STREAM,
 * and the library sees to its end: it is DETACHED. False: it has ended, or is about to. */
bool disti_stream_join(struct disti_work *work);

/* completion.c: ends every work whose turn has come. The driver calls it, with the lock held; it
 * lets go of the lock while it calls functions of the program. */
void disti_complete(struct dist_group *group);
/* In a forked child: its thread is in no function of the program any more. */
void disti_complete_forked(void);
/* Calls the program's function, without locks; dist_last_error has the cause of a failure. */
void disti_complete_call(const struct disti_work *work, dist_work_fn fn, void *arg);

#endif
