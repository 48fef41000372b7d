/* SPDX-License-Identifier: BSD-3-Clause */
/* The public collectives: arguments are checked here, once, for every backend. */
#include "base/checked.h"
#include "base/dtype.h"
#include "core/group.h"
#include "core/op.h"

#include <stdlib.h>

/* Where a checked call goes: waited for, or handed out as a work. */
static dist_status calls_run(struct dist_group *group, const struct dist_call *call,
                             struct dist_work **work_p, bool async)
{
    const struct disti_start start = {.call = *call};

    return async ? disti_work_post(group, &start, work_p) : disti_work_run(group, &start);
}

static dist_status calls_bad(const struct dist_group *group, const char *name, const char *what)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "rank %d, %s: %s", group ? group->rank : -1, name,
                      what);
}

/* Checks what all collectives have in common. *bytes_p: of `blocks` times count elements. */
static dist_status calls_check(struct dist_group *group, const struct dist_call *call,
                               size_t blocks, bool async, struct dist_work **work_p,
                               size_t *bytes_p)
{
    const char *name = dist_collective_string(call->collective);
    const struct dist_reduction *reduction;
    dist_op kind;

    if (!group)
        return calls_bad(group, name, "group is NULL");
    if (async && !work_p)
        return calls_bad(group, name, "work_p is NULL");
    if (!disti_dtype_valid(call->dtype))
        return calls_bad(group, name, "dtype is none of dist_dtype");
    if (!disti_op_valid(call->op))
        return calls_bad(group, name, "op is none of dist_op");
    if (disti_op_resolve(call->op, &kind, &reduction) != DIST_OK)
        return DIST_ERR_INVALID_ARGUMENT;
    if (!disti_mul(call->count, dist_dtype_size(call->dtype), bytes_p) ||
        !disti_mul(*bytes_p, blocks, bytes_p))
        return calls_bad(group, name, "count is larger than memory");
    if (*bytes_p && (!call->in || !call->out))
        return calls_bad(group, name, call->in ? "out is NULL" : "in is NULL");
    if (group->backend->query(group->state, call->collective, call->dtype, call->op) == DIST_OK)
        return DIST_OK;
    return disti_fail(DIST_ERR_UNSUPPORTED, "rank %d: backend %s has no %s for %s with op %s",
                      group->rank, group->backend->name, name, dist_dtype_string(call->dtype),
                      dist_op_string(call->op));
}

/* in and out may be the same memory, or apart; anything between is a mistake. */
static bool calls_overlap(const void *in, size_t in_bytes, const void *out, size_t out_bytes)
{
    uintptr_t a = (uintptr_t)in, b = (uintptr_t)out;

    return in_bytes && out_bytes && a < b + out_bytes && b < a + in_bytes;
}

static dist_status calls_all_reduce(dist_group *group, const void *in, void *out, size_t count,
                                    dist_dtype dtype, dist_op op, dist_work **work_p, bool async)
{
    const struct dist_call call = {.collective = DIST_COLL_ALL_REDUCE,
                                   .in = in,
                                   .out = out,
                                   .count = count,
                                   .dtype = dtype,
                                   .op = op};
    size_t bytes;
    dist_status status = calls_check(group, &call, 1, async, work_p, &bytes);

    if (status != DIST_OK)
        return status;
    if (in != out && calls_overlap(in, bytes, out, bytes))
        return calls_bad(group, "all_reduce",
                         "in and out overlap but are not the same: pass the "
                         "same pointer for in place");
    return calls_run(group, &call, work_p, async);
}

static dist_status calls_broadcast(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                                   int root, dist_work **work_p, bool async)
{
    const struct dist_call call = {.collective = DIST_COLL_BROADCAST,
                                   .in = buffer,
                                   .out = buffer,
                                   .count = count,
                                   .dtype = dtype,
                                   .root = root};
    size_t bytes;
    dist_status status = calls_check(group, &call, 1, async, work_p, &bytes);

    if (status != DIST_OK)
        return status;
    if (root < 0 || root >= group->world_size)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d, broadcast: root %d is not a rank of this group (0 to %d)",
                          group->rank, root, group->world_size - 1);
    return calls_run(group, &call, work_p, async);
}

static dist_status calls_barrier(dist_group *group, dist_work **work_p, bool async)
{
    const struct dist_call call = {.collective = DIST_COLL_BARRIER, .dtype = DIST_UINT8};
    size_t bytes;
    dist_status status = calls_check(group, &call, 1, async, work_p, &bytes);

    return status == DIST_OK ? calls_run(group, &call, work_p, async) : status;
}

static dist_status calls_all_gather(dist_group *group, const void *in, void *out, size_t count,
                                    dist_dtype dtype, dist_work **work_p, bool async)
{
    const struct dist_call call = {
        .collective = DIST_COLL_ALL_GATHER, .in = in, .out = out, .count = count, .dtype = dtype};
    size_t bytes, block;
    dist_status status =
        calls_check(group, &call, group ? (size_t)group->world_size : 1, async, work_p, &bytes);

    if (status != DIST_OK)
        return status;
    block = bytes / (size_t)group->world_size;
    if (bytes && in != (const char *)out + (size_t)group->rank * block &&
        calls_overlap(in, block, out, bytes))
        return calls_bad(group, "all_gather", "in lies within out but not at this rank's block");
    return calls_run(group, &call, work_p, async);
}

dist_status dist_all_reduce(dist_group *group, const void *in, void *out, size_t count,
                            dist_dtype dtype, dist_op op)
{
    return calls_all_reduce(group, in, out, count, dtype, op, NULL, false);
}

dist_status dist_all_reduce_async(dist_group *group, const void *in, void *out, size_t count,
                                  dist_dtype dtype, dist_op op, dist_work **work_p)
{
    return calls_all_reduce(group, in, out, count, dtype, op, work_p, true);
}

dist_status dist_broadcast(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                           int root)
{
    return calls_broadcast(group, buffer, count, dtype, root, NULL, false);
}

dist_status dist_broadcast_async(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                                 int root, dist_work **work_p)
{
    return calls_broadcast(group, buffer, count, dtype, root, work_p, true);
}

dist_status dist_barrier(dist_group *group)
{
    return calls_barrier(group, NULL, false);
}

dist_status dist_barrier_async(dist_group *group, dist_work **work_p)
{
    return calls_barrier(group, work_p, true);
}

dist_status dist_all_gather(dist_group *group, const void *in, void *out, size_t count,
                            dist_dtype dtype)
{
    return calls_all_gather(group, in, out, count, dtype, NULL, false);
}

dist_status dist_all_gather_async(dist_group *group, const void *in, void *out, size_t count,
                                  dist_dtype dtype, dist_work **work_p)
{
    return calls_all_gather(group, in, out, count, dtype, work_p, true);
}
