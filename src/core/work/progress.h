/* SPDX-License-Identifier: BSD-3-Clause */
/* What the progress thread and those who call it share. */
#ifndef DISTI_CORE_WORK_PROGRESS_H
#define DISTI_CORE_WORK_PROGRESS_H

#include "core/group/group.h"

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

/* progress_loop.c: what the thread does. */
void *disti_progress_main(void *arg);

#endif
