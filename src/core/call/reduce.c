/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls that reduce, and the barrier. */
#include "core/call/calls.h"

/* All that have blocks of one length, or none; root 0 where there is none. */
static dist_status calls_reduce(dist_group *group, dist_collective collective, const void *in,
                                void *out, size_t count, dist_dtype dtype, dist_op op, int root,
                                struct calls_form form)
{
    const struct calls_kind kind = {
        .collective = collective, .dtype = dtype, .op = op, .root = root};

    return calls_even(group, kind, in, out, count, form);
}

static dist_status calls_reduce_scatter_v(dist_group *group, const void *in, void *out,
                                          const size_t *counts, dist_dtype dtype, dist_op op,
                                          struct calls_form form)
{
    const struct calls_kind kind = {
        .collective = DIST_COLL_REDUCE_SCATTER_V, .dtype = dtype, .op = op};
    const struct calls_lists lists = {.in_counts = counts};

    return calls_uneven(group, kind, in, out, 0, &lists, form);
}

static dist_status calls_barrier(dist_group *group, struct calls_form form)
{
    return calls_reduce(group, DIST_COLL_BARRIER, NULL, NULL, 0, DIST_UINT8, DIST_SUM, 0, form);
}

dist_status dist_all_reduce(dist_group *group, const void *in, void *out, size_t count,
                            dist_dtype dtype, dist_op op)
{
    return calls_reduce(group, DIST_COLL_ALL_REDUCE, in, out, count, dtype, op, 0, calls_blocking);
}

dist_status dist_all_reduce_async(dist_group *group, const void *in, void *out, size_t count,
                                  dist_dtype dtype, dist_op op, dist_work **work_p)
{
    return calls_reduce(group, DIST_COLL_ALL_REDUCE, in, out, count, dtype, op, 0,
                        calls_async(work_p));
}

dist_status dist_reduce(dist_group *group, const void *in, void *out, size_t count,
                        dist_dtype dtype, dist_op op, int root)
{
    return calls_reduce(group, DIST_COLL_REDUCE, in, out, count, dtype, op, root, calls_blocking);
}

dist_status dist_reduce_async(dist_group *group, const void *in, void *out, size_t count,
                              dist_dtype dtype, dist_op op, int root, dist_work **work_p)
{
    return calls_reduce(group, DIST_COLL_REDUCE, in, out, count, dtype, op, root,
                        calls_async(work_p));
}

dist_status dist_reduce_scatter(dist_group *group, const void *in, void *out, size_t count,
                                dist_dtype dtype, dist_op op)
{
    return calls_reduce(group, DIST_COLL_REDUCE_SCATTER, in, out, count, dtype, op, 0,
                        calls_blocking);
}

dist_status dist_reduce_scatter_async(dist_group *group, const void *in, void *out, size_t count,
                                      dist_dtype dtype, dist_op op, dist_work **work_p)
{
    return calls_reduce(group, DIST_COLL_REDUCE_SCATTER, in, out, count, dtype, op, 0,
                        calls_async(work_p));
}

dist_status dist_reduce_scatter_v(dist_group *group, const void *in, void *out,
                                  const size_t *counts, dist_dtype dtype, dist_op op)
{
    return calls_reduce_scatter_v(group, in, out, counts, dtype, op, calls_blocking);
}

dist_status dist_reduce_scatter_v_async(dist_group *group, const void *in, void *out,
                                        const size_t *counts, dist_dtype dtype, dist_op op,
                                        dist_work **work_p)
{
    return calls_reduce_scatter_v(group, in, out, counts, dtype, op, calls_async(work_p));
}

dist_status dist_barrier(dist_group *group)
{
    return calls_barrier(group, calls_blocking);
}

dist_status dist_barrier_async(dist_group *group, dist_work **work_p)
{
    return calls_barrier(group, calls_async(work_p));
}

dist_status dist_all_reduce_init(dist_group *group, const void *in, void *out, size_t count,
                                 dist_dtype dtype, dist_op op, dist_work **work_p)
{
    const struct dist_call call = {.collective = DIST_COLL_ALL_REDUCE,
                                   .in = in,
                                   .out = out,
                                   .count = count,
                                   .dtype = dtype,
                                   .op = op};
    struct disti_start start;
    dist_status status = disti_call_check(group, &call, calls_async(work_p), &start);

    if (status != DIST_OK)
        return status;
    status = disti_stage_empty(group, &start);
    if (status == DIST_OK)
        status = disti_work_prepare(group, &start, work_p);
    if (status != DIST_OK)
        disti_start_release(&start);
    return status;
}
