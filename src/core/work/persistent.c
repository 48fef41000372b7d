/* SPDX-License-Identifier: BSD-3-Clause */
/* Persistent works: made once, started again and again. */
#include "core/group/group.h"
#include "core/work/handle.h"
#include "endpoint/endpoint.h"

/* With the lock held. */
static dist_status persistent_admit(struct dist_group *group, struct disti_work *work)
{
    const char *what = dist_collective_string(work->call.collective);

    if (disti_drive_state(&group->drive) == DISTI_DRIVE_CLOSED)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d cannot prepare %s: the group was destroyed", group->rank, what);
    if (group->failed)
        return disti_group_refuse(group, what);
    if (!group->backend->prepare || work->kind == DISTI_WORK_PERSISTENT_STREAM)
        return DIST_OK;
    disti_drive_wake(group);
    return group->backend->prepare(group->state, &work->call, &work->call.prepared);
}

dist_status disti_work_prepare(struct dist_group *group, const struct disti_start *start,
                               dist_work **work_p)
{
    struct disti_work *work = disti_handle_take();
    dist_status status;

    if (!work)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to prepare %s",
                          dist_collective_string(start->call.collective));
    if (start->manner == DIST_MANNER_STREAM) {
        disti_work_fill(group, start, DISTI_WORK_PERSISTENT_STREAM, work);
        work->posted = NULL;
    } else {
        disti_work_fill(group, start, DISTI_WORK_PERSISTENT, work);
        work->persistent.begin = start->begin;
        work->persistent.started = false;
    }
    atomic_store(&work->ended, true);
    disti_group_enter(group);
    status = persistent_admit(group, work);
    if (status == DIST_OK)
        disti_group_retain(group);
    disti_group_exit(group);
    if (status == DIST_OK)
        *work_p = disti_handle_of(work);
    else
        disti_work_undo(work);
    return status;
}

static bool persistent_is_started(const struct disti_work *work)
{
    return work->kind == DISTI_WORK_PERSISTENT ? work->persistent.started : work->posted != NULL;
}

/* A persistent work that is at rest? */
static dist_status persistent_check(const struct disti_work *work, const char *name)
{
    if (!disti_work_is_persistent(work))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s: the work is not persistent: dist_all_reduce_init makes one", name);
    if (persistent_is_started(work))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s: the work is still started: call dist_wait first", name);
    return DIST_OK;
}

/* Each time it is another work, which may go on when it has been waited for. */
static dist_status persistent_post(struct disti_work *work)
{
    struct disti_start start = {.call = work->call, .manner = DIST_MANNER_STREAM};

    start.call.stream = work->group->stream;
    start.call.waits = true;
    return disti_work_post(work->group, &start, &work->posted);
}

/* What the call reads may have to be copied first. */
static dist_status persistent_begin(struct disti_work *work)
{
    dist_status status;

    if (!work->persistent.begin)
        return DIST_OK;
    status = disti_group_check(work->group, "dist_start"); /* whose stream it uses */
    return status == DIST_OK ? work->persistent.begin(work->owned) : status;
}

static dist_status persistent_launch(struct disti_work *work)
{
    struct dist_group *group = work->group;
    dist_status status = persistent_begin(work);

    if (status != DIST_OK)
        return disti_group_unstarted(group, status);
    disti_group_enter(group);
    atomic_store_explicit(&work->ended, false, memory_order_relaxed);
    status = disti_work_launch(work);
    if (status != DIST_OK)
        atomic_store_explicit(&work->ended, true, memory_order_relaxed);
    work->persistent.started = status == DIST_OK;
    disti_drive_kick(group);
    disti_group_exit(group);
    disti_endpoints_release();
    return status;
}

dist_status dist_start(dist_work *handle)
{
    struct disti_work *work;
    dist_status status = disti_handle_claim(handle, "dist_start", &work);

    if (status != DIST_OK)
        return status;
    status = persistent_check(work, "dist_start");
    if (status == DIST_OK)
        status =
            work->kind == DISTI_WORK_PERSISTENT ? persistent_launch(work) : persistent_post(work);
    disti_handle_unclaim(work);
    return status;
}

/* The backend has freed all that was prepared if it was closed or aborted. */
static void persistent_release(struct dist_group *group, struct disti_work *work)
{
    if (disti_drive_state(&group->drive) == DISTI_DRIVE_CLOSED || group->failed ||
        !group->backend->release || work->kind == DISTI_WORK_PERSISTENT_STREAM)
        return;
    disti_drive_wake(group);
    group->backend->release(group->state, work->call.prepared);
}

dist_status dist_work_free(dist_work *handle)
{
    struct disti_work *work;
    struct dist_group *group;
    dist_status status;

    if (!handle)
        return DIST_OK;
    status = disti_handle_claim(handle, "dist_work_free", &work);
    if (status != DIST_OK)
        return status;
    status = persistent_check(work, "dist_work_free");
    if (status != DIST_OK) {
        disti_handle_unclaim(work);
        return status;
    }
    group = work->group;
    disti_group_enter(group);
    persistent_release(group, work);
    disti_group_exit(group);
    disti_work_retire(work, 2);
    return DIST_OK;
}
