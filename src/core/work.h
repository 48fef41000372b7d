/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles, progress and groups that nobody drives; private to the core. */
#ifndef DISTI_CORE_WORK_H
#define DISTI_CORE_WORK_H

#include "core/group.h"

/*
 * A handle is a number, not an address: which slot, and which of the works that were in it. Slots
 * are used again and never freed, so a handle can always be looked up, whatever the program has
 * done with it, and memory grows with the works that there are at a time, not with all that were
 * made. Any thread may call these; none blocks.
 *
 *     take ----> pinned by the library ----> the last pin goes: the slot is free
 *                  |            ^
 *              pin | unpin      | while a call of the program looks at it
 *            claim | unclaim    | while one waits for it or starts it: one at a time
 */

/*
 * The work of a handle. On success *work_p is to be given to disti_work_unpin. ERR_INVALID_ARGUMENT
 * where it is NULL, or was waited for or freed before; `name` is the call, for the message.
 */
dist_status disti_handle_pin(dist_work *handle, const char *name, struct disti_work **work_p);

/*
 * The same, for the one call at a time that may end the work: ERR_INVALID_ARGUMENT if there is one
 * already. On success it is to be given to disti_handle_unclaim or disti_handle_retire.
 */
dist_status disti_handle_claim(dist_work *handle, const char *name, struct disti_work **work_p);
void disti_handle_unclaim(struct disti_work *work);

/* Groups with works that nobody drives, not even the progress thread: whoever waits for anything
 * moves them along, since other ranks may wait for them first. */

/* How many groups are listed. A listed one may meanwhile have a driver, or no works any more. */
extern atomic_int disti_others_count;

/* Is there a group to move besides this one, or NULL? One load, as a rule: it stands in a loop. */
static inline bool disti_others_wait(const struct dist_group *group)
{
    int own = group && atomic_load_explicit(&group->drive.listed, memory_order_relaxed);

    return atomic_load_explicit(&disti_others_count, memory_order_relaxed) > own;
}

/* Waits until fd is readable, or until_ns; moves these groups meanwhile. May return early. Call as
 * disti_others_move. */
void disti_others_poll(int fd, int64_t until_ns);

/* In a forked child: the groups are the parent's. */
void disti_others_forked(void);

/* What the progress thread and those who call it share. */

/*
 * Where the thread stands:
 *
 *       start          doze; tick, hurry
 *     NONE ---> RUNS <-------------------> DOZES
 *      ^        ^  |                         |
 *      |        |  '---------> QUITS <-------'  the last group is closed
 *      | sleep; |             ^     |
 *      | notice v             |     |
 *      |      SLEEPS ---------'     |
 *      '----------------------------'  joined
 *
 * RUNS looks at every group again before it rests, so nobody need wake it. DOZES does at the next
 * tick: only long work wakes it sooner. SLEEPS is woken as soon as a group needs it.
 */
enum disti_progress_state {
    DISTI_PROGRESS_NONE,
    DISTI_PROGRESS_RUNS,
    DISTI_PROGRESS_DOZES,
    DISTI_PROGRESS_SLEEPS,
    DISTI_PROGRESS_QUITS
};

/*
 * `life` is held while the thread is started or ended, `list` while `groups` is read or changed.
 * Order of locks: a group's, life, list. The thread only tries to lock a group while it has list.
 */
struct disti_progress {
    pthread_mutex_t life, list;
    struct dist_group *groups; /* that it serves, by next_served */
    pthread_t thread;
    bool handles_fork;
    int wake_fd;
    _Atomic enum disti_progress_state state; /* changed by disti_progress_go alone */
};

extern struct disti_progress disti_progress;

/*
 * Follows an arrow of the drawing; any thread. False: another thread has moved it from `from`, or
 * there is no such arrow, which is reported. True: what this thread did before is seen by whoever
 * moves it next.
 */
bool disti_progress_go(enum disti_progress_state from, enum disti_progress_state to);

#endif
