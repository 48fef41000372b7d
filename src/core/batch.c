/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dist_group_start and dist_group_end: between the two, a thread's blocking calls are noted, then
 * started together and waited for. What NCCL calls a group call.
 */
#include "core/calls.h"

#include <stdlib.h>

/* A call that was noted, or, with its group NULL, a work that runs already. */
struct batch_item {
    dist_group *group;
    struct disti_start start;
    dist_work *work;
};

static _Thread_local struct batch {
    int depth;
    struct batch_item *items;
    size_t count, room;
} batch;

static struct batch_item *batch_add(dist_status *status_p)
{
    if (batch.count == batch.room) {
        size_t room = batch.room ? 2 * batch.room : 16;
        struct batch_item *items = realloc(batch.items, room * sizeof(*items));

        if (!items) {
            *status_p = disti_fail(DIST_ERR_NO_MEMORY,
                                   "no memory for %zu calls between "
                                   "dist_group_start and dist_group_end",
                                   room);
            return NULL;
        }
        batch.items = items;
        batch.room = room;
    }
    *status_p = DIST_OK;
    return &batch.items[batch.count++];
}

bool disti_batch_is_open(void)
{
    return batch.depth > 0;
}

bool disti_batch_note(dist_group *group, const struct dist_call *call, void *owned,
                      dist_status *status_p)
{
    struct batch_item *item;

    if (!disti_batch_is_open())
        return false;
    item = batch_add(status_p);
    if (item)
        *item = (struct batch_item){.group = group, .start = {.call = *call, .owned = owned}};
    else
        free(owned);
    return true;
}

bool disti_batch_note_work(dist_work *work, dist_status *status_p)
{
    struct batch_item *item;

    if (!disti_batch_is_open())
        return false;
    item = batch_add(status_p);
    if (item)
        *item = (struct batch_item){.work = work};
    else
        dist_wait(work);
    return true;
}

dist_status dist_group_start(void)
{
    batch.depth++;
    return DIST_OK;
}

static dist_status batch_post(struct batch_item *item)
{
    dist_status status;

    if (!item->group)
        return DIST_OK;
    status = disti_group_check(item->group, dist_collective_string(item->start.call.collective));
    if (status == DIST_OK)
        status = disti_work_post(item->group, &item->start, &item->work);
    if (status != DIST_OK)
        free(item->start.owned);
    return status;
}

dist_status dist_group_end(void)
{
    dist_status first = DIST_OK, status;

    if (batch.depth == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_group_end without dist_group_start in this thread");
    if (--batch.depth > 0)
        return DIST_OK;
    for (size_t i = 0; i < batch.count; i++) {
        status = batch_post(&batch.items[i]);
        first = first == DIST_OK ? status : first;
    }
    for (size_t i = 0; i < batch.count; i++) {
        status = batch.items[i].work ? dist_wait(batch.items[i].work) : DIST_OK;
        first = first == DIST_OK ? status : first;
    }
    free(batch.items);
    batch = (struct batch){0};
    return first;
}
