/* SPDX-License-Identifier: BSD-3-Clause */
/* Who moves a group's works along: one thread at a time; private to the core. */
#ifndef DISTI_CORE_WORK_DRIVE_H
#define DISTI_CORE_WORK_DRIVE_H

#include "base/lock/lock.h"
#include "core/work/work.h"
#include "engine/wait.h"

#include <poll.h>
#include <pthread.h>
#include <sys/queue.h>

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
    atomic_bool listed; /* others.c; changed with the lock of its list, as is the next */
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

/* drive.c; with the lock held. */

/* Follows an arrow of the drawing. ERR_INTERNAL where there is none: the state is as it was. */
dist_status disti_drive_go(struct disti_drive *drive, enum disti_drive_state to);
/* The same from a state of a driver: to the first if that is a caller, else to the second. */
dist_status disti_drive_go_either(struct disti_drive *drive, enum disti_drive_state caller,
                                  enum disti_drive_state thread);

/* Drives, or waits while another thread does, until `work` has ended (NULL: all have), or the point
 * in time `until` (INT64_MAX: without end; the works have deadlines). */
void disti_drive_until(struct dist_group *group, const struct disti_work *work, int64_t until);
/* Drives once, unless another caller does; never blocks. Returns how much happened. */
int disti_drive_once(struct dist_group *group);
/* After a change by a thread that may not be the driver: completes what has ended, and sees to it
 * that somebody drives the rest. */
void disti_drive_kick(struct dist_group *group);
/* This thread becomes the driver. False: another caller is, or the group is closed. */
bool disti_drive_take(struct dist_group *group);
/* Nobody drives any more: tells those who wait for that, and the progress thread. */
void disti_drive_release(struct dist_group *group);
/* Unlocks for a moment if other threads want the lock. Between two looks, not while armed. */
void disti_drive_let_in(struct dist_group *group);
/* One look at the backend; ends works. Returns how much happened. */
int disti_drive_poll(struct dist_group *group);
/* A look at the oldest work's deadline, and at news of ranks that are gone. */
void disti_drive_watch(struct dist_group *group);
/* A ticket may have failed as this work was posted: ends the group. */
void disti_drive_check(struct dist_group *group, const struct disti_work *newest);

/* sleep.c; with the lock held. */

/* Nothing has moved: spins, yields or sleeps, as the group's policy says; not beyond `until`. */
void disti_drive_rest(struct dist_group *group, struct disti_wait *wait, int64_t until);
/* Before a call of the backend, and after a change that the driver must see: ends its sleep. */
void disti_drive_wake(struct dist_group *group);
/* Readies the group for a sleep without the lock: adds what to sleep on to polls[0 .. *count_p),
 * lowers *ns_p to what the group allows, to nap_ns if nothing would end the sleep. False: do not
 * sleep. `wake_fd` is what wakes the driver.
 */
bool disti_drive_arm(struct dist_group *group, int wake_fd, struct pollfd *polls, int room,
                     int64_t nap_ns, int *count_p, int64_t *ns_p);
/* After the sleep. */
void disti_drive_disarm(struct dist_group *group);
/* Sleeps until a descriptor is readable, at most ns. */
void disti_drive_poll_fds(struct pollfd *polls, int count, int64_t ns);

/* progress.c: the thread of the process. */

/* Does DIST_PROGRESS_THREAD hold something sensible? */
dist_status disti_progress_check(void);
/* Works are pending and nobody drives: the thread shall. Call with the lock held. */
void disti_progress_notice(struct dist_group *group);
/* And it is long work: the thread is to come now, not at its next tick. Call without the lock,
 * which the thread wants as soon as it is awake. */
void disti_progress_hurry(void);
/* The group is closed. Ends the thread if it was the last. Call without the lock. */
void disti_progress_forget(struct dist_group *group);

#endif
