/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives that hand out blocks: scatter and all_to_all. */
#include "battery.h"

/* ---- scatter ---- */

/* What the other ranks pass does not matter: nothing, `out`, or what stays as it is. */
static bool scatter_passes(const struct test_case *c)
{
    return c->root == c->b->rank || c->data.seed % 2;
}

static void scatter_shape(struct test_case *c)
{
    int rank = c->b->rank;
    bool root = c->root == rank;
    size_t own, total, at;

    total = case_blocks(c, &c->in_counts, &c->in_offsets);
    own = c->in_offsets[rank];
    if (root && (c->in_place || c->layout == LAYOUT_WOVEN)) {
        at = c->in_place ? own : 0;
        case_out(c, total);
        case_give(c, &c->out, 0, 0, total);
        c->give = c->out.data;
        c->get = case_at(c, &c->out, at);
        case_expect(c, at, c->in_counts[rank], rank, own);
        return;
    }
    if (scatter_passes(c))
        case_in(c, total);
    if (root)
        case_give(c, &c->in, 0, 0, total);
    case_out(c, c->in_counts[rank]);
    case_expect(c, 0, c->in_counts[rank], c->root, own);
    if (!root && c->data.seed % 4 == 2)
        c->give = c->out.data;
}

static dist_status scatter_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_scatter(c->b->group, c->give, c->get, c->count, c->data.dtype, c->root);
    return dist_scatter_async(c->b->group, c->give, c->get, c->count, c->data.dtype, c->root,
                              works);
}

const struct operation operation_scatter = {
    .name = "scatter",
    .collective = DIST_COLL_SCATTER,
    .flags = OPERATION_IN_PLACE | OPERATION_ROOTED | OPERATION_BLOCKS,
    .shape = scatter_shape,
    .call = scatter_call,
};

/* Blocks one after the other need no offsets. */
static const size_t *scatter_offsets(const struct test_case *c, const size_t *offsets)
{
    return case_has_offsets(c) ? offsets : NULL;
}

static dist_status scatter_v_call(struct test_case *c, dist_work **works)
{
    const size_t *counts = scatter_passes(c) ? c->in_counts : NULL;
    const size_t *offsets = counts ? scatter_offsets(c, c->in_offsets) : NULL;
    size_t own = c->in_counts[c->b->rank];

    if (!works)
        return dist_scatter_v(c->b->group, c->give, counts, offsets, c->get, own, c->data.dtype,
                              c->root);
    return dist_scatter_v_async(c->b->group, c->give, counts, offsets, c->get, own, c->data.dtype,
                                c->root, works);
}

const struct operation operation_scatter_v = {
    .name = "scatter_v",
    .collective = DIST_COLL_SCATTER_V,
    .flags = OPERATION_IN_PLACE | OPERATION_ROOTED | OPERATION_LAYOUTS | OPERATION_BLOCKS,
    .shape = scatter_shape,
    .call = scatter_v_call,
};

/* ---- all_to_all ---- */

/*
 * What `rank` sends: to rank r counts[r] elements, which begin at offsets[r] of its row. Woven,
 * they are in what is free before the blocks of out.
 */
static size_t to_all_sends(struct test_case *c, int rank, size_t *counts, size_t *offsets)
{
    size_t total;

    for (int r = 0; r < c->b->ranks; r++)
        counts[r] = case_block_count(c, rank, r);
    total = case_layout(c, counts, offsets);
    for (int r = 0; r < c->b->ranks && c->layout == LAYOUT_WOVEN; r++)
        offsets[r] -= c->count;
    return total;
}

static void to_all_shape(struct test_case *c)
{
    int ranks = c->b->ranks, rank = c->b->rank;
    size_t n = (size_t)ranks, total;

    c->in_counts = battery_alloc(n, sizeof(*c->in_counts));
    c->in_offsets = battery_alloc(n, sizeof(*c->in_offsets));
    c->out_counts = battery_alloc(n, sizeof(*c->out_counts));
    c->out_offsets = battery_alloc(n, sizeof(*c->out_offsets));
    for (int r = 0; r < ranks; r++)
        c->out_counts[r] = case_block_count(c, r, rank);
    case_out(c, case_layout(c, c->out_counts, c->out_offsets));
    for (int r = 0; r < ranks; r++) { /* the arrays for `in` serve for the others' first */
        to_all_sends(c, r, c->in_counts, c->in_offsets);
        case_expect(c, c->out_offsets[r], c->out_counts[r], r, c->in_offsets[rank]);
    }
    total = to_all_sends(c, rank, c->in_counts, c->in_offsets);
    if (c->layout != LAYOUT_WOVEN)
        case_in(c, total);
    case_give(c, c->in.memory ? &c->in : &c->out, 0, 0, total);
    if (!c->in.memory)
        c->give = c->out.data;
}

static dist_status all_to_all_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_all_to_all(c->b->group, c->give, c->get, c->count, c->data.dtype);
    return dist_all_to_all_async(c->b->group, c->give, c->get, c->count, c->data.dtype, works);
}

const struct operation operation_all_to_all = {
    .name = "all_to_all",
    .collective = DIST_COLL_ALL_TO_ALL,
    .flags = OPERATION_BLOCKS,
    .shape = to_all_shape,
    .call = all_to_all_call,
};

static dist_status all_to_all_v_call(struct test_case *c, dist_work **works)
{
    const size_t *in_offsets = scatter_offsets(c, c->in_offsets);
    const size_t *out_offsets = scatter_offsets(c, c->out_offsets);

    if (!works)
        return dist_all_to_all_v(c->b->group, c->give, c->in_counts, in_offsets, c->get,
                                 c->out_counts, out_offsets, c->data.dtype);
    return dist_all_to_all_v_async(c->b->group, c->give, c->in_counts, in_offsets, c->get,
                                   c->out_counts, out_offsets, c->data.dtype, works);
}

const struct operation operation_all_to_all_v = {
    .name = "all_to_all_v",
    .collective = DIST_COLL_ALL_TO_ALL_V,
    .flags = OPERATION_LAYOUTS | OPERATION_BLOCKS,
    .shape = to_all_shape,
    .call = all_to_all_v_call,
};
