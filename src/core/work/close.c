/* SPDX-License-Identifier: BSD-3-Clause */
/* The works of a group that ends: they end too, and outlive it until they are waited for. */
#include "base/clock.h"
#include "base/settings/config.h"
#include "core/work/others.h"

#include <stdlib.h>

/* Beyond the timeout, so that a work that does not end meets its own deadline, which says more. */
#define CLOSE_SLACK_MS 500

/* Between two looks whether the last threads have left. */
#define CLOSE_LOOK_NS (10 * 1000 * 1000)

dist_status disti_group_open_works(struct dist_group *group)
{
    int numerics = 0;
    dist_status status;

    group->drive.wake_fd = -1;
    atomic_store(&group->drive.references, 1);
    status = disti_flight_open(&group->flight);
    if (status == DIST_OK)
        status = disti_env_int("DIST_CHECK_NUMERICS", 0, 1, 0, &numerics);
    group->numerics = numerics;
    return status == DIST_OK ? disti_progress_check() : status;
}

void disti_group_retain(struct dist_group *group)
{
    atomic_fetch_add_explicit(&group->drive.references, 1, memory_order_relaxed);
}

void disti_group_release(struct dist_group *group)
{
    if (atomic_fetch_sub_explicit(&group->drive.references, 1, memory_order_acq_rel) > 1)
        return;
    disti_flight_free(&group->flight);
    free(group->repeats);
    free(group->cause);
    free(group->lost_text);
    disti_group_gone(group);
}

/* Waits for one look; every thread that is in the group is on its way out. */
static void close_look(struct dist_group *group)
{
    disti_change_wait(&group->drive.changed, &group->lock, disti_now_ns() + CLOSE_LOOK_NS);
}

/* The driver for ever, once nobody else needs it. With the lock held. */
static void close_take(struct dist_group *group)
{
    while (group->drive.waiters || !disti_drive_take(group))
        close_look(group);
    disti_drive_go(&group->drive, DISTI_DRIVE_CLOSED);
}

dist_status disti_group_drain(struct dist_group *group)
{
    dist_status status = DIST_OK;
    bool pending;

    disti_group_lock(group);
    pending = group->works;
    disti_group_check_abort(group);
    disti_drive_until(group, NULL, disti_deadline_ms((int64_t)group->timeout_ms + CLOSE_SLACK_MS));
    if (group->works) /* functions of the program went on starting new ones */
        disti_group_break(group, DIST_ERR_ABORTED,
                          "the group was destroyed while operations were pending");
    disti_drive_until(group, NULL, INT64_MAX);
    if (pending && group->failed)
        status = disti_fail(group->failed, "%s", group->cause);
    close_take(group);
    disti_group_unlock(group);
    disti_progress_forget(group);
    disti_others_forget(group);
    return status;
}
