/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on memory of devices: the stream that orders them. */
#include "core/group/group.h"

/* cudaStreamPerThread and hipStreamPerThread, which NCCL's and our threads take for their own. */
#define STREAM_PER_THREAD ((uintptr_t)2)

dist_status disti_stream_check(const void *stream)
{
    if ((uintptr_t)stream != STREAM_PER_THREAD)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "the stream is cudaStreamPerThread, which differs in each thread: give a "
                      "stream that was created, or NULL for the default stream");
}

dist_status dist_set_stream(dist_group *group, void *stream)
{
    dist_status status = disti_group_check(group, "dist_set_stream");

    if (status == DIST_OK)
        status = disti_stream_check(stream);
    if (status != DIST_OK)
        return status;
    disti_group_lock(group);
    group->stream = stream;
    disti_group_unlock(group);
    return DIST_OK;
}

bool disti_stream_join(struct disti_work *work)
{
    struct dist_group *group = work->group;
    dist_status status;
    bool joined = false;

    disti_group_enter(group);
    if (work->ticket.status == DIST_IN_PROGRESS && !group->failed) {
        disti_drive_wake(group);
        status = work->call.waits
                     ? DIST_OK /* it is on the program's stream */
                     : group->backend->join(group->state, &work->ticket, group->stream);
        if (status == DIST_OK)
            work->kind = DISTI_WORK_DETACHED;
        else
            disti_group_break(group, status, dist_last_error());
        joined = status == DIST_OK;
        disti_drive_kick(group);
    }
    disti_group_exit(group);
    if (joined)
        disti_group_release(group);
    return joined;
}

dist_status disti_group_batch(struct dist_group *group, bool begin)
{
    dist_status status = DIST_OK;

    disti_group_enter(group);
    if (!group->failed) {
        disti_drive_wake(group);
        status = group->backend->batch(group->state, begin);
        if (status != DIST_OK) {
            disti_group_break(group, status, dist_last_error());
            status = group->failed;
        }
        disti_drive_kick(group);
    }
    disti_group_exit(group);
    return status;
}
