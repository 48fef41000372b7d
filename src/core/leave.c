/* SPDX-License-Identifier: BSD-3-Clause */
/* Leaving: the end of a group, together with its other ranks. */
#include "core/group.h"

/* How long the others may take to go away once all have come to the end. */
#define LEAVE_LINGER_MS 2000

/* All ranks have come: nobody's last messages are cut off, no goodbye looks like a death. */
static dist_status leave_together(struct dist_group *group)
{
    struct disti_store *store = group->world->bootstrap.store;

    if (group->failed || !store)
        return DIST_OK;
    return disti_store_all_gather(store, "dist/leave", NULL, NULL, 0, group->timeout_ms);
}

dist_status dist_destroy_process_group(dist_group *group)
{
    struct disti_world *world;
    dist_status status, left;

    if (!group)
        return DIST_OK;
    if (disti_work_is_calling())
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "a function given to dist_on_complete cannot destroy a group");
    world = group->world;
    disti_log_use(group->log);
    status = disti_group_drain(group);
    left = leave_together(group);
    if (status == DIST_OK)
        status = left;
    disti_log_use(NULL);
    disti_group_free(group);
    disti_world_close(world, LEAVE_LINGER_MS);
    return status;
}
