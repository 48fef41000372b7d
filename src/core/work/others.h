/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups with works that nobody drives, not even the progress thread: whoever waits for anything
 * moves them along, since other ranks may wait for them first. */
#ifndef DISTI_CORE_WORK_OTHERS_H
#define DISTI_CORE_WORK_OTHERS_H

#include "core/group/group.h"

/* How many groups are listed. A listed one may meanwhile have a driver, or no works any more. */
extern atomic_int disti_others_count;

/* Is there a group to move besides this one, or NULL? One load, as a rule: it stands in a loop. */
static inline bool disti_others_wait(const struct dist_group *group)
{
    int own = group && atomic_load_explicit(&group->drive.listed, memory_order_relaxed);

    return atomic_load_explicit(&disti_others_count, memory_order_relaxed) > own;
}

/* Works are pending, and nobody drives: this thread posted them, or has just driven them. Call with
 * the group's lock held. */
void disti_others_add(struct dist_group *group);

/* The group is closed. */
void disti_others_forget(struct dist_group *group);

/*
 * One look at each of some groups, in turn; ends works. Returns how much happened. Does not block.
 * Call without any lock, and not in a function of the program.
 */
int disti_others_move(void);

/*
 * Sleeps at most ns until one of polls[0 .. count) is readable, or one of these groups has news;
 * nap_ns where it could not hear of them. There is room for `room` descriptors, and polls[0] is the
 * calling thread's doorbell. Call without any lock.
 */
void disti_others_sleep(struct pollfd *polls, int count, int room, int64_t nap_ns, int64_t ns);

/* Waits until fd is readable, or until_ns; moves these groups meanwhile. May return early. Call as
 * disti_others_move. */
void disti_others_poll(int fd, int64_t until_ns);

/* In a forked child: the groups are the parent's. */
void disti_others_forked(void);

#endif
