/* SPDX-License-Identifier: BSD-3-Clause */
/* A short blocking call that ends as it is made: no work, no queue, no clock. */
#include "core/group/group.h"

/*
 *                no works, and nobody drives
 *   repeated ----------------------------------> at_once ----> OK: unlock
 *       |                                           |
 *       | works are pending                         | not all ranks are there yet,
 *       |                                           | or something is wrong
 *       v                                           v
 *    a work, which waits for its turn  <------------'
 */

/* Is no call before it, and nothing to be told? */
static bool at_once_may(const struct dist_group *group)
{
    return !group->works && !group->failed && group->backend->at_once &&
           disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE &&
           !atomic_load_explicit(&group->abort_asked, memory_order_relaxed);
}

/* With the lock held, which is given back. Apart: a work is large, and a call that needs none is
 * not to make room for it. */
__attribute__((cold, noinline)) static dist_status at_once_wait(struct dist_group *group,
                                                                const struct dist_call *call)
{
    struct disti_work work;

    disti_work_fill_call(group, call, DISTI_WORK_BLOCKING, &work);
    disti_log_use(disti_drive_state(&group->drive) == DISTI_DRIVE_CLOSED ? NULL : group->log);
    return disti_work_wait_here(&work);
}

dist_status disti_work_repeat(struct dist_group *group, struct dist_call *call)
{
    call->sequence = group->sequence;
    if (!at_once_may(group) || group->backend->at_once(group->state, call) != DIST_OK)
        return at_once_wait(group, call);
    group->sequence++;
    disti_lock_release(&group->lock);
    return DIST_OK;
}
