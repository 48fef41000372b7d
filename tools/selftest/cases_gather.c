/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives that copy from one to all, or bring together: broadcast, all_gather, gather. */
#include "battery.h"

/* ---- broadcast ---- */

static void broadcast_shape(struct test_case *c)
{
    case_out(c, c->count);
    if (c->root == c->b->rank)
        case_give(c, &c->out, 0, 0, c->count);
    case_expect(c, 0, c->count, c->root, 0);
}

static dist_status broadcast_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_broadcast(c->b->group, c->get, c->count, c->data.dtype, c->root);
    return dist_broadcast_async(c->b->group, c->get, c->count, c->data.dtype, c->root, works);
}

const struct operation operation_broadcast = {
    .name = "broadcast",
    .collective = DIST_COLL_BROADCAST,
    .flags = OPERATION_ROOTED,
    .shape = broadcast_shape,
    .call = broadcast_call,
};

/* ---- all_gather and gather ---- */

/* What a rank without a result passes does not matter: nothing, `in`, or what stays as it is. */
static bool gather_passes(const struct test_case *c)
{
    bool has_result = !(c->operation->flags & OPERATION_ROOTED) || c->root == c->b->rank;

    return has_result || c->data.seed % 2;
}

static void gather_shape(struct test_case *c)
{
    int ranks = c->b->ranks, rank = c->b->rank;
    bool has_result = !(c->operation->flags & OPERATION_ROOTED) || c->root == rank;
    size_t total;

    total = case_blocks(c, &c->out_counts, &c->out_offsets);
    if (gather_passes(c))
        case_out(c, total);
    if (has_result && (c->in_place || c->layout == LAYOUT_WOVEN)) {
        size_t at = c->in_place ? c->out_offsets[rank] : 0;

        case_give(c, &c->out, at, 0, c->out_counts[rank]);
        c->give = case_at(c, &c->out, at);
    } else {
        case_in(c, c->out_counts[rank]);
        case_give(c, &c->in, 0, 0, c->out_counts[rank]);
    }
    if (!has_result && c->data.seed % 4 == 2)
        c->get = c->in.data;
    for (int r = 0; r < ranks && has_result; r++)
        case_expect(c, c->out_offsets[r], c->out_counts[r], r, 0);
}

static dist_status all_gather_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_all_gather(c->b->group, c->give, c->get, c->count, c->data.dtype);
    return dist_all_gather_async(c->b->group, c->give, c->get, c->count, c->data.dtype, works);
}

const struct operation operation_all_gather = {
    .name = "all_gather",
    .collective = DIST_COLL_ALL_GATHER,
    .flags = OPERATION_IN_PLACE | OPERATION_BLOCKS,
    .shape = gather_shape,
    .call = all_gather_call,
};

/* Blocks one after the other need no offsets. */
static const size_t *gather_offsets(const struct test_case *c)
{
    return case_has_offsets(c) ? c->out_offsets : NULL;
}

static dist_status all_gather_v_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_all_gather_v(c->b->group, c->give, c->get, c->out_counts, gather_offsets(c),
                                 c->data.dtype);
    return dist_all_gather_v_async(c->b->group, c->give, c->get, c->out_counts, gather_offsets(c),
                                   c->data.dtype, works);
}

const struct operation operation_all_gather_v = {
    .name = "all_gather_v",
    .collective = DIST_COLL_ALL_GATHER_V,
    .flags = OPERATION_IN_PLACE | OPERATION_LAYOUTS | OPERATION_BLOCKS,
    .shape = gather_shape,
    .call = all_gather_v_call,
};

static dist_status gather_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_gather(c->b->group, c->give, c->get, c->count, c->data.dtype, c->root);
    return dist_gather_async(c->b->group, c->give, c->get, c->count, c->data.dtype, c->root, works);
}

const struct operation operation_gather = {
    .name = "gather",
    .collective = DIST_COLL_GATHER,
    .flags = OPERATION_IN_PLACE | OPERATION_ROOTED | OPERATION_BLOCKS,
    .shape = gather_shape,
    .call = gather_call,
};

static dist_status gather_v_call(struct test_case *c, dist_work **works)
{
    const size_t *counts = gather_passes(c) ? c->out_counts : NULL;
    const size_t *offsets = counts ? gather_offsets(c) : NULL;
    size_t own = c->out_counts[c->b->rank];

    if (!works)
        return dist_gather_v(c->b->group, c->give, own, c->get, counts, offsets, c->data.dtype,
                             c->root);
    return dist_gather_v_async(c->b->group, c->give, own, c->get, counts, offsets, c->data.dtype,
                               c->root, works);
}

const struct operation operation_gather_v = {
    .name = "gather_v",
    .collective = DIST_COLL_GATHER_V,
    .flags = OPERATION_IN_PLACE | OPERATION_ROOTED | OPERATION_LAYOUTS | OPERATION_BLOCKS,
    .shape = gather_shape,
    .call = gather_v_call,
};
