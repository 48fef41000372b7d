/* SPDX-License-Identifier: BSD-3-Clause */
/* The collectives that reduce. */
#include "battery.h"

/* ---- all_reduce ---- */

static void reduce_shape(struct test_case *c)
{
    bool has_result = !(c->operation->flags & OPERATION_ROOTED) || c->root == c->b->rank;

    if (!c->in_place) {
        case_in(c, c->count);
        case_give(c, &c->in, 0, 0, c->count);
    }
    /* What a rank without a result passes does not matter: nothing, or memory that stays. */
    if (c->in_place || has_result || c->b->seed % 2)
        case_out(c, c->count);
    if (c->in_place) {
        case_give(c, &c->out, 0, 0, c->count);
        c->give = c->get;
    }
    if (has_result)
        case_expect(c, 0, c->count, REDUCED, 0);
}

static dist_op reduce_op(const struct test_case *c)
{
    return c->b->ops[c->data.op];
}

static dist_status all_reduce_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_all_reduce(c->b->group, c->give, c->get, c->count, c->data.dtype, reduce_op(c));
    return dist_all_reduce_async(c->b->group, c->give, c->get, c->count, c->data.dtype,
                                 reduce_op(c), works);
}

const struct operation operation_all_reduce = {
    .name = "all_reduce",
    .collective = DIST_COLL_ALL_REDUCE,
    .flags = OPERATION_REDUCES | OPERATION_IN_PLACE | OPERATION_AGREES,
    .shape = reduce_shape,
    .call = all_reduce_call,
};

static dist_status reduce_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_reduce(c->b->group, c->give, c->get, c->count, c->data.dtype, reduce_op(c),
                           c->root);
    return dist_reduce_async(c->b->group, c->give, c->get, c->count, c->data.dtype, reduce_op(c),
                             c->root, works);
}

const struct operation operation_reduce = {
    .name = "reduce",
    .collective = DIST_COLL_REDUCE,
    .flags = OPERATION_REDUCES | OPERATION_IN_PLACE | OPERATION_ROOTED,
    .shape = reduce_shape,
    .call = reduce_call,
};

/* ---- all_reduce_coalesced ---- */

/* So many buffers of these parts of count, each somewhere in `out`, gaps between. */
#define COALESCED_BUFFERS 6

static size_t coalesced_count(const struct test_case *c, int i)
{
    const size_t counts[COALESCED_BUFFERS] = {c->count / 2, c->count, 0, 1, c->count / 7, c->count};

    return counts[i];
}

static void coalesced_shape(struct test_case *c)
{
    size_t total = 0, at = 0;

    for (int i = 0; i < COALESCED_BUFFERS; i++)
        total += coalesced_count(c, i) + 1;
    case_out(c, total);
    for (int i = 0; i < COALESCED_BUFFERS; i++) {
        size_t count = coalesced_count(c, i);

        case_give(c, &c->out, at, at, count);
        case_expect(c, at, count, REDUCED, at);
        at += count + 1;
    }
}

static dist_status coalesced_call(struct test_case *c, dist_work **works)
{
    void *buffers[COALESCED_BUFFERS];
    size_t counts[COALESCED_BUFFERS];

    for (int i = 0; i < COALESCED_BUFFERS; i++) {
        counts[i] = coalesced_count(c, i);
        buffers[i] = counts[i] ? case_at(c, &c->out, c->blocks[i].at) : NULL;
    }
    if (!works)
        return dist_all_reduce_coalesced(c->b->group, buffers, counts, COALESCED_BUFFERS,
                                         c->data.dtype, reduce_op(c));
    return dist_all_reduce_coalesced_async(c->b->group, buffers, counts, COALESCED_BUFFERS,
                                           c->data.dtype, reduce_op(c), works);
}

const struct operation operation_all_reduce_coalesced = {
    .name = "all_reduce_coalesced",
    .collective = DIST_COLL_ALL_REDUCE,
    .flags = OPERATION_REDUCES | OPERATION_AGREES,
    .shape = coalesced_shape,
    .call = coalesced_call,
};

/* ---- reduce_scatter ---- */

/* Rank r's block begins where the blocks before it end; in place it stays there. */
static void reduce_scatter_shape(struct test_case *c)
{
    int rank = c->b->rank;
    size_t own, total;

    total = case_blocks(c, &c->in_counts, &c->in_offsets);
    own = c->in_offsets[rank];
    if (c->in_place) {
        case_out(c, total);
        case_give(c, &c->out, 0, 0, total);
        case_expect(c, own, c->in_counts[rank], REDUCED, own);
        c->give = c->out.data;
        c->get = case_at(c, &c->out, own);
        return;
    }
    case_in(c, total);
    case_give(c, &c->in, 0, 0, total);
    case_out(c, c->in_counts[rank]);
    case_expect(c, 0, c->in_counts[rank], REDUCED, own);
}

static dist_status reduce_scatter_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_reduce_scatter(c->b->group, c->give, c->get, c->count, c->data.dtype,
                                   reduce_op(c));
    return dist_reduce_scatter_async(c->b->group, c->give, c->get, c->count, c->data.dtype,
                                     reduce_op(c), works);
}

const struct operation operation_reduce_scatter = {
    .name = "reduce_scatter",
    .collective = DIST_COLL_REDUCE_SCATTER,
    .flags = OPERATION_REDUCES | OPERATION_IN_PLACE | OPERATION_BLOCKS,
    .shape = reduce_scatter_shape,
    .call = reduce_scatter_call,
};

static dist_status reduce_scatter_v_call(struct test_case *c, dist_work **works)
{
    if (!works)
        return dist_reduce_scatter_v(c->b->group, c->give, c->get, c->in_counts, c->data.dtype,
                                     reduce_op(c));
    return dist_reduce_scatter_v_async(c->b->group, c->give, c->get, c->in_counts, c->data.dtype,
                                       reduce_op(c), works);
}

/* It has no offsets: gaps are left out. */
static void reduce_scatter_v_shape(struct test_case *c)
{
    if (case_has_offsets(c))
        c->layout = LAYOUT_UNEVEN;
    reduce_scatter_shape(c);
}

const struct operation operation_reduce_scatter_v = {
    .name = "reduce_scatter_v",
    .collective = DIST_COLL_REDUCE_SCATTER_V,
    .flags = OPERATION_REDUCES | OPERATION_IN_PLACE | OPERATION_LAYOUTS | OPERATION_BLOCKS,
    .shape = reduce_scatter_v_shape,
    .call = reduce_scatter_v_call,
};
