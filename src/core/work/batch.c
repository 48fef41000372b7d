/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * dist_group_start and dist_group_end: between the two, a thread's blocking calls are noted, then
 * started together and waited for. What NCCL calls a group call.
 */
#include "core/call/calls.h"

#include <stdlib.h>
#include <string.h>

/* A call that was noted, or a work that runs already. */
struct batch_item {
    dist_group *group;
    bool runs;
    struct disti_start start;
    dist_work *work;
};

static _Thread_local struct batch {
    int depth;
    struct batch_item *items;
    size_t count, room;
    size_t started;    /* items[0 .. started) are */
    dist_status first; /* the first failure, and its text */
    char *first_text;
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

/* A function given to dist_on_complete runs in any thread: what it calls is not that thread's. */
bool disti_batch_is_open(void)
{
    return batch.depth > 0 && !disti_work_is_calling();
}

bool disti_batch_note(dist_group *group, const struct disti_start *start, dist_status *status_p)
{
    struct disti_start dropped = *start;
    struct batch_item *item;

    if (!disti_batch_is_open())
        return false;
    item = batch_add(status_p);
    if (item)
        *item = (struct batch_item){.group = group, .start = *start};
    else
        disti_start_release(&dropped);
    return true;
}

bool disti_batch_note_work(dist_group *group, dist_work *work, dist_status *status_p)
{
    struct batch_item *item;

    if (!disti_batch_is_open())
        return false;
    item = batch_add(status_p);
    if (item)
        *item = (struct batch_item){.group = group, .runs = true, .work = work};
    else
        *status_p = dist_wait(work);
    return true;
}

dist_status dist_group_start(void)
{
    dist_status status = disti_work_may_wait("dist_group_start");

    if (status != DIST_OK)
        return status;
    batch.depth++;
    disti_call_hold(1);
    return DIST_OK;
}

static void batch_keep(dist_status status)
{
    if (batch.first != DIST_OK || status == DIST_OK)
        return;
    batch.first = status;
    batch.first_text = strdup(dist_last_error());
}

static dist_status batch_post(struct batch_item *item)
{
    dist_status status;

    if (item->runs)
        return DIST_OK;
    status = disti_group_check(item->group, dist_collective_string(item->start.call.collective));
    if (status == DIST_OK)
        status = disti_stage(item->group, &item->start);
    item->start.detached = item->start.call.waits = item->start.manner == DIST_MANNER_STREAM;
    if (status == DIST_OK)
        status = disti_work_post(item->group, &item->start, &item->work);
    if (status == DIST_OK)
        return status;
    disti_start_release(&item->start);
    return disti_group_unstarted(item->group, status);
}

/*
 * Tells the backends of the groups from items[started] on that their posts belong together, or that
 * this was all: each once.
 */
static void batch_frame(size_t from, bool begin)
{
    for (size_t i = from; i < batch.count; i++) {
        dist_group *group = batch.items[i].group;
        bool seen = batch.items[i].runs || atomic_load(&group->destroyed) || !group->backend->batch;

        for (size_t j = from; j < i && !seen; j++)
            seen = batch.items[j].group == group && !batch.items[j].runs;
        if (!seen)
            batch_keep(disti_group_batch(group, begin));
    }
}

void disti_batch_start(void)
{
    size_t from = batch.started;

    batch_frame(from, true);
    for (; batch.started < batch.count; batch.started++)
        batch_keep(batch_post(&batch.items[batch.started]));
    batch_frame(from, false);
}

static void batch_wait(void)
{
    for (size_t i = 0; i < batch.count; i++) {
        if (batch.items[i].work)
            batch_keep(dist_wait(batch.items[i].work));
    }
}

dist_status dist_group_end(void)
{
    dist_status first, status = disti_work_may_wait("dist_group_end");

    if (status != DIST_OK)
        return status;
    if (batch.depth == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_group_end without dist_group_start in this thread");
    disti_call_hold(-1);
    if (--batch.depth > 0)
        return DIST_OK;
    disti_batch_start();
    batch_wait();
    first = batch.first;
    if (batch.first_text) /* failures that came later have left theirs */
        disti_fail(first, "%s", batch.first_text);
    free(batch.first_text);
    free(batch.items);
    batch = (struct batch){0};
    return first;
}
