/* SPDX-License-Identifier: BSD-3-Clause */
/* The public calls that move blocks: broadcast, gathers, scatters, all-to-all. */
#include "core/call/calls.h"

static inline struct calls_kind calls_kind_of(dist_collective collective, dist_dtype dtype,
                                              int root)
{
    return (struct calls_kind){
        .collective = collective, .dtype = dtype, .op = DIST_SUM, .root = root};
}

/* All that have blocks of one length; root 0 where there is none. */
static dist_status calls_move(dist_group *group, dist_collective collective, const void *in,
                              void *out, size_t count, dist_dtype dtype, int root,
                              struct calls_form form)
{
    const struct calls_kind kind = calls_kind_of(collective, dtype, root);

    return calls_even(group, kind, in, out, count, form);
}

static dist_status calls_all_gather_v(dist_group *group, const void *in, void *out,
                                      const size_t *counts, const size_t *offsets, dist_dtype dtype,
                                      struct calls_form form)
{
    const struct calls_kind kind = calls_kind_of(DIST_COLL_ALL_GATHER_V, dtype, 0);
    const struct calls_lists lists = {.out_counts = counts, .out_offsets = offsets};

    return calls_uneven(group, kind, in, out, 0, &lists, form);
}

static dist_status calls_gather_v(dist_group *group, const void *in, size_t count, void *out,
                                  const size_t *counts, const size_t *offsets, dist_dtype dtype,
                                  int root, struct calls_form form)
{
    const struct calls_kind kind = calls_kind_of(DIST_COLL_GATHER_V, dtype, root);
    const struct calls_lists lists = {.out_counts = counts, .out_offsets = offsets};

    return calls_uneven(group, kind, in, out, count, &lists, form);
}

static dist_status calls_scatter_v(dist_group *group, const void *in, const size_t *counts,
                                   const size_t *offsets, void *out, size_t count, dist_dtype dtype,
                                   int root, struct calls_form form)
{
    const struct calls_kind kind = calls_kind_of(DIST_COLL_SCATTER_V, dtype, root);
    const struct calls_lists lists = {.in_counts = counts, .in_offsets = offsets};

    return calls_uneven(group, kind, in, out, count, &lists, form);
}

static dist_status calls_all_to_all_v(dist_group *group, const void *in, const size_t *in_counts,
                                      const size_t *in_offsets, void *out, const size_t *out_counts,
                                      const size_t *out_offsets, dist_dtype dtype,
                                      struct calls_form form)
{
    const struct calls_kind kind = calls_kind_of(DIST_COLL_ALL_TO_ALL_V, dtype, 0);
    const struct calls_lists lists = {in_counts, in_offsets, out_counts, out_offsets};

    return calls_uneven(group, kind, in, out, 0, &lists, form);
}

dist_status dist_broadcast(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                           int root)
{
    return calls_move(group, DIST_COLL_BROADCAST, buffer, buffer, count, dtype, root,
                      calls_blocking);
}

dist_status dist_broadcast_async(dist_group *group, void *buffer, size_t count, dist_dtype dtype,
                                 int root, dist_work **work_p)
{
    return calls_move(group, DIST_COLL_BROADCAST, buffer, buffer, count, dtype, root,
                      calls_async(work_p));
}

dist_status dist_all_gather(dist_group *group, const void *in, void *out, size_t count,
                            dist_dtype dtype)
{
    return calls_move(group, DIST_COLL_ALL_GATHER, in, out, count, dtype, 0, calls_blocking);
}

dist_status dist_all_gather_async(dist_group *group, const void *in, void *out, size_t count,
                                  dist_dtype dtype, dist_work **work_p)
{
    return calls_move(group, DIST_COLL_ALL_GATHER, in, out, count, dtype, 0, calls_async(work_p));
}

dist_status dist_all_gather_v(dist_group *group, const void *in, void *out, const size_t *counts,
                              const size_t *offsets, dist_dtype dtype)
{
    return calls_all_gather_v(group, in, out, counts, offsets, dtype, calls_blocking);
}

dist_status dist_all_gather_v_async(dist_group *group, const void *in, void *out,
                                    const size_t *counts, const size_t *offsets, dist_dtype dtype,
                                    dist_work **work_p)
{
    return calls_all_gather_v(group, in, out, counts, offsets, dtype, calls_async(work_p));
}

dist_status dist_gather(dist_group *group, const void *in, void *out, size_t count,
                        dist_dtype dtype, int root)
{
    return calls_move(group, DIST_COLL_GATHER, in, out, count, dtype, root, calls_blocking);
}

dist_status dist_gather_async(dist_group *group, const void *in, void *out, size_t count,
                              dist_dtype dtype, int root, dist_work **work_p)
{
    return calls_move(group, DIST_COLL_GATHER, in, out, count, dtype, root, calls_async(work_p));
}

dist_status dist_gather_v(dist_group *group, const void *in, size_t count, void *out,
                          const size_t *counts, const size_t *offsets, dist_dtype dtype, int root)
{
    return calls_gather_v(group, in, count, out, counts, offsets, dtype, root, calls_blocking);
}

dist_status dist_gather_v_async(dist_group *group, const void *in, size_t count, void *out,
                                const size_t *counts, const size_t *offsets, dist_dtype dtype,
                                int root, dist_work **work_p)
{
    return calls_gather_v(group, in, count, out, counts, offsets, dtype, root, calls_async(work_p));
}

dist_status dist_scatter(dist_group *group, const void *in, void *out, size_t count,
                         dist_dtype dtype, int root)
{
    return calls_move(group, DIST_COLL_SCATTER, in, out, count, dtype, root, calls_blocking);
}

dist_status dist_scatter_async(dist_group *group, const void *in, void *out, size_t count,
                               dist_dtype dtype, int root, dist_work **work_p)
{
    return calls_move(group, DIST_COLL_SCATTER, in, out, count, dtype, root, calls_async(work_p));
}

dist_status dist_scatter_v(dist_group *group, const void *in, const size_t *counts,
                           const size_t *offsets, void *out, size_t count, dist_dtype dtype,
                           int root)
{
    return calls_scatter_v(group, in, counts, offsets, out, count, dtype, root, calls_blocking);
}

dist_status dist_scatter_v_async(dist_group *group, const void *in, const size_t *counts,
                                 const size_t *offsets, void *out, size_t count, dist_dtype dtype,
                                 int root, dist_work **work_p)
{
    return calls_scatter_v(group, in, counts, offsets, out, count, dtype, root,
                           calls_async(work_p));
}

dist_status dist_all_to_all(dist_group *group, const void *in, void *out, size_t count,
                            dist_dtype dtype)
{
    return calls_move(group, DIST_COLL_ALL_TO_ALL, in, out, count, dtype, 0, calls_blocking);
}

dist_status dist_all_to_all_async(dist_group *group, const void *in, void *out, size_t count,
                                  dist_dtype dtype, dist_work **work_p)
{
    return calls_move(group, DIST_COLL_ALL_TO_ALL, in, out, count, dtype, 0, calls_async(work_p));
}

dist_status dist_all_to_all_v(dist_group *group, const void *in, const size_t *in_counts,
                              const size_t *in_offsets, void *out, const size_t *out_counts,
                              const size_t *out_offsets, dist_dtype dtype)
{
    return calls_all_to_all_v(group, in, in_counts, in_offsets, out, out_counts, out_offsets, dtype,
                              calls_blocking);
}

dist_status dist_all_to_all_v_async(dist_group *group, const void *in, const size_t *in_counts,
                                    const size_t *in_offsets, void *out, const size_t *out_counts,
                                    const size_t *out_offsets, dist_dtype dtype, dist_work **work_p)
{
    return calls_all_to_all_v(group, in, in_counts, in_offsets, out, out_counts, out_offsets, dtype,
                              calls_async(work_p));
}
