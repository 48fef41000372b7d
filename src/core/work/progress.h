/* SPDX-License-Identifier: BSD-3-Clause */
/* What the progress thread and those who call it share. */
#ifndef DISTI_CORE_WORK_PROGRESS_H
#define DISTI_CORE_WORK_PROGRESS_H

#include "core/group/group.h"

/*
 * `life` is held while the thread is started or ended, `list` while `groups` is read or changed.
 * Order of locks: a group's, life, list. The thread only tries to lock a group while it has list.
 */
struct disti_progress {
    pthread_mutex_t life, list;
    struct dist_group *groups; /* that it serves, by next_served */
    pthread_t thread;
    bool running;
    bool handles_fork;
    int wake_fd;
    atomic_bool quit;
    atomic_bool asleep; /* until wake_fd is written to */
    atomic_bool dozing; /* until the next tick, or the same */
};

extern struct disti_progress disti_progress;

/* progress_loop.c: what the thread does. */
void *disti_progress_main(void *arg);

#endif
