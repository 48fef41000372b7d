/* SPDX-License-Identifier: BSD-3-Clause */
/* A barrier through the store, which knows who has not come. */
#include "core/group/group.h"

#include <stdio.h>

/* The number of this barrier, the same on every rank. */
static dist_status monitor_begin(struct dist_group *group, uint32_t *number_p)
{
    dist_status status = DIST_OK;

    disti_group_enter(group);
    disti_group_check_abort(group);
    if (group->failed)
        status = disti_group_refuse(group, "monitored_barrier");
    else
        *number_p = group->barriers++;
    disti_group_exit(group);
    return status;
}

static dist_status monitor_arrive(struct dist_group *group, uint32_t number, int timeout_ms)
{
    struct disti_party party = disti_group_party(group);
    char key[64];

    party.what = "in monitored_barrier";
    snprintf(key, sizeof(key), "dist/barrier/%u/%u", group->number, number);
    return disti_store_arrive(group->world->bootstrap.store, &party, key, timeout_ms);
}

dist_status dist_monitored_barrier(dist_group *group, int timeout_ms)
{
    uint32_t number = 0;
    dist_status status = disti_group_check(group, "dist_monitored_barrier");

    if (status != DIST_OK)
        return status;
    if (timeout_ms < 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "monitored_barrier: timeout_ms is %d: give milliseconds, or 0 for the "
                          "group's",
                          timeout_ms);
    status = disti_work_may_wait("dist_monitored_barrier");
    if (status == DIST_OK)
        status = monitor_begin(group, &number);
    if (status != DIST_OK || group->world_size == 1)
        return status;
    disti_log_use(group->log);
    status = monitor_arrive(group, number, timeout_ms ? timeout_ms : group->timeout_ms);
    disti_log_use(NULL);
    return status;
}
