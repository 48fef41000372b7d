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

static bool leave_pending(const struct dist_group *group)
{
    for (const struct dist_work *work = group->works; work; work = work->next) {
        if (work->ticket.status == DIST_IN_PROGRESS)
            return true;
    }
    return false;
}

dist_status dist_destroy_process_group(dist_group *group)
{
    struct disti_world *world;
    dist_status status;

    if (!group)
        return DIST_OK;
    world = group->world;
    disti_log_use(group->log);
    pthread_mutex_lock(&group->lock);
    if (leave_pending(group))
        disti_group_break(group, DIST_ERR_ABORTED,
                          "the group was destroyed while operations were pending");
    pthread_mutex_unlock(&group->lock);
    status = leave_together(group);
    disti_log_use(NULL);
    while (group->works) { /* the caller may still give them to dist_wait: orphans now */
        struct dist_work *work = group->works;

        group->works = work->next;
        work->group = NULL;
        work->next = NULL;
    }
    disti_group_free(group);
    disti_world_close(world, LEAVE_LINGER_MS);
    return status;
}
