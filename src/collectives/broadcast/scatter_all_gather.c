/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast as a scatter and an all-gather: van de Geijn; Barnett et al., "Interprocessor
 * collective communication library (InterCom)", 1994.
 *
 *   the vector is cut into n slices, the i-th for place i of the chain (chain.h):
 *
 *     scatter, down a binomial tree        place 0 of 6: 0 1 2 3 4 5
 *                                             4: 4 5     2: 2 3     1: 1        3: 3     5: 5
 *     all-gather, round the chain          each place hands on what its next does not have
 *
 * Each slice is cut into segments that follow each other round the chain.
 * Steps: log2 n + n - 1 in sequence. Bytes sent by a rank: about 2 vectors at most (the root),
 * about one by the others.
 */
#include "collectives/algorithms.h"
#include "collectives/common/chain.h"

struct spread {
    const struct disti_shape *shape;
    struct disti_builder *b;
    int at; /* this rank's place on the chain */
};

enum { CHANNEL_SCATTER, CHANNEL_GATHER };

static int spread_rank(const struct spread *s, int place)
{
    return disti_chain_rank(s->shape->topology, s->shape->root, place);
}

/* The tree hands place `at` the slices from its own up to this one. */
static int spread_end(int at, int ranks)
{
    int64_t end = at + (int64_t)(at & -at);
    return at == 0 || end > ranks ? ranks : (int)end;
}

static void spread_scatter(const struct spread *s)
{
    int at = s->at, ranks = s->shape->ranks, end = spread_end(at, ranks);
    uint32_t segments = s->shape->segments, first = (uint32_t)at * segments;
    if (at > 0)
        disti_build_recv(s->b, .lane = disti_build_lane(s->b, CHANNEL_SCATTER),
                         .peer = spread_rank(s, at & (at - 1)), .dst = disti_out(first),
                         .data = first, .chunks = (uint32_t)(end - at) * segments);
    struct disti_step_ref has = disti_build_written(s->b, first);
    int64_t bit = 1;
    while (at + 2 * bit < end)
        bit *= 2;
    for (; bit > 0 && at + bit < end; bit /= 2) {
        int child = (int)(at + bit);
        uint32_t chunk = (uint32_t)child * segments;
        disti_build_send(s->b, .lane = disti_build_lane(s->b, CHANNEL_SCATTER), .after = has,
                         .peer = spread_rank(s, child), .src = disti_out(chunk), .data = chunk,
                         .chunks = (uint32_t)(spread_end(child, ranks) - child) * segments);
    }
}

/* Slice of hop h: what place `at` hands to the next one, if that has not got it from the tree. */
static void spread_hand_on(const struct spread *s, int hop, uint16_t send, uint16_t recv)
{
    int ranks = s->shape->ranks, next = (s->at + 1) % ranks, previous = (s->at + ranks - 1) % ranks;
    int out = (s->at + ranks - hop) % ranks, in = (previous + ranks - hop) % ranks;
    uint32_t segments = s->shape->segments;
    for (uint32_t i = 0; i < segments; i++) {
        uint32_t chunk = (uint32_t)out * segments + i, comes = (uint32_t)in * segments + i;
        if (out < next || out >= spread_end(next, ranks))
            disti_build_send(s->b, .lane = send, .after = disti_build_written(s->b, chunk),
                             .peer = spread_rank(s, next), .src = disti_out(chunk), .data = chunk);
        if (in < s->at || in >= spread_end(s->at, ranks))
            disti_build_recv(s->b, .lane = recv, .peer = spread_rank(s, previous),
                             .dst = disti_out(comes), .data = comes);
    }
}

void disti_broadcast_scatter_all_gather(const struct disti_shape *shape, struct disti_builder *b)
{
    struct spread s = {shape, b, disti_chain_place(shape->topology, shape->root, shape->rank)};
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    spread_scatter(&s);
    uint16_t send = disti_build_lane(b, CHANNEL_GATHER), recv = disti_build_lane(b, CHANNEL_GATHER);
    for (int hop = 0; hop < shape->ranks - 1; hop++)
        spread_hand_on(&s, hop, send, recv);
}
