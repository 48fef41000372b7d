/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers, where what counts is when they end. */
#include "battery.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double barrier_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void barrier_nap(int ms)
{
    const struct timespec nap = {ms / 1000, ms % 1000 * 1000000L};

    nanosleep(&nap, NULL);
}

static dist_status barrier_monitored(dist_group *group)
{
    return dist_monitored_barrier(group, 0);
}

static dist_status barrier_async(dist_group *group)
{
    dist_work *work;
    dist_status status = dist_barrier_async(group, &work);

    return status == DIST_OK ? dist_wait(work) : status;
}

/*
 * Nobody leaves a barrier before everybody has come: each rank in turn comes last; the times of
 * coming, gathered, tell. One machine, one clock.
 */
static void barrier_holds(struct battery *b, dist_status (*barrier)(dist_group *), const char *name)
{
    double *came = battery_alloc((size_t)b->ranks, sizeof(*came)), mine, left;

    for (int late = 0; late < b->ranks; late++) {
        if (b->rank == late)
            barrier_nap(2);
        mine = barrier_now();
        battery_ok(b, barrier(b->group), name);
        left = barrier_now();
        battery_ok(b, dist_all_gather(b->group, &mine, came, 1, DIST_FLOAT64), "barrier's times");
        for (int r = 0; r < b->ranks; r++) {
            if (came[r] > left)
                battery_fault(b, "left a %s before rank %d had come", name, r);
        }
    }
    free(came);
}

/*
 * The last rank comes too late for a short timeout: rank 0 must name it, and the group must go on.
 * It comes when the others have given up: a barrier says so.
 */
static void barrier_names_the_missing(struct battery *b)
{
    int last = b->ranks - 1;
    dist_status status = DIST_OK;
    char name[32];

    if (b->ranks == 1)
        return;
    snprintf(name, sizeof(name), "rank %d", last);
    if (b->rank == last)
        battery_ok(b, dist_barrier(b->group), "barrier before a monitored one");
    status = dist_monitored_barrier(b->group, b->rank == last ? 0 : 150);
    b->checks++;
    if (b->rank == last)
        battery_ok(b, status, "a monitored barrier that this rank comes to late");
    else if (status != DIST_ERR_TIMEOUT)
        battery_fault(b, "a monitored barrier that %s misses: %s", name,
                      dist_status_string(status));
    else if (!strstr(dist_last_error(), name))
        battery_fault(b, "a monitored barrier does not name %s: %s", name, dist_last_error());
    if (b->rank != last)
        battery_ok(b, dist_barrier(b->group), "barrier after a monitored one that failed");
    battery_ok(b, dist_monitored_barrier(b->group, 0), "the next monitored barrier");
}

void cases_barrier(struct battery *b)
{
    barrier_holds(b, dist_barrier, "barrier");
    barrier_holds(b, barrier_async, "barrier_async");
    barrier_holds(b, barrier_monitored, "monitored barrier");
    barrier_names_the_missing(b);
}

/* The collectives that copy from one to all, or bring together: broadcast, all_gather, gather. */

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

/* The collectives that reduce. */

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

/* The collectives that hand out blocks: scatter and all_to_all. */

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
