/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast as a scatter and an all-gather: van de Geijn; Barnett et al., "Interprocessor
 * collective communication library (InterCom)", 1994.
 *
 *   the vector is cut into n slices, the i-th for position i of the chain (chain.h):
 *
 *     scatter, down a binomial tree        position 0 of 6: 0 1 2 3 4 5
 *                                             4: 4 5     2: 2 3     1: 1        3: 3     5: 5
 *     all-gather, round the chain          each forwards what its next does not have
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
    int position; /* of this rank on the chain */
};

enum { CHANNEL_SCATTER, CHANNEL_GATHER };

static int spread_rank(const struct spread *s, int position)
{
    return disti_chain_rank(s->shape->topology, s->shape->root, position);
}

/* The tree gives a position the slices from its own up to this one. */
static int spread_end(int position, int ranks)
{
    int64_t end = position + (int64_t)(position & -position);
    return position == 0 || end > ranks ? ranks : (int)end;
}

static void spread_scatter(const struct spread *s)
{
    int position = s->position, ranks = s->shape->ranks, end = spread_end(position, ranks);
    uint32_t segments = s->shape->segments, first = (uint32_t)position * segments;
    if (position > 0)
        disti_build_recv(s->b, .lane = disti_build_lane(s->b, CHANNEL_SCATTER),
                         .peer = spread_rank(s, position & (position - 1)), .dst = disti_out(first),
                         .data = first, .chunks = (uint32_t)(end - position) * segments);
    struct disti_step_ref has = disti_build_written(s->b, first);
    int64_t bit = 1;
    while (position + 2 * bit < end)
        bit *= 2;
    for (; bit > 0 && position + bit < end; bit /= 2) {
        int child = (int)(position + bit);
        uint32_t chunk = (uint32_t)child * segments;
        disti_build_send(s->b, .lane = disti_build_lane(s->b, CHANNEL_SCATTER), .after = has,
                         .peer = spread_rank(s, child), .src = disti_out(chunk), .data = chunk,
                         .chunks = (uint32_t)(spread_end(child, ranks) - child) * segments);
    }
}

/* Slice of hop h: what this position forwards to the next one, if that has not got it from the
 * tree. */
static void spread_forward(const struct spread *s, int hop, uint16_t send, uint16_t recv)
{
    int ranks = s->shape->ranks, next = (s->position + 1) % ranks,
        previous = (s->position + ranks - 1) % ranks;
    int out = (s->position + ranks - hop) % ranks, in = (previous + ranks - hop) % ranks;
    uint32_t segments = s->shape->segments;
    for (uint32_t i = 0; i < segments; i++) {
        uint32_t chunk = (uint32_t)out * segments + i, comes = (uint32_t)in * segments + i;
        if (out < next || out >= spread_end(next, ranks))
            disti_build_send(s->b, .lane = send, .after = disti_build_written(s->b, chunk),
                             .peer = spread_rank(s, next), .src = disti_out(chunk), .data = chunk);
        if (in < s->position || in >= spread_end(s->position, ranks))
            disti_build_recv(s->b, .lane = recv, .peer = spread_rank(s, previous),
                             .dst = disti_out(comes), .data = comes);
    }
}

void disti_broadcast_scatter_all_gather(const struct disti_shape *shape, struct disti_builder *b)
{
    struct spread s = {shape, b, disti_chain_position(shape->topology, shape->root, shape->rank)};
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    spread_scatter(&s);
    uint16_t send = disti_build_lane(b, CHANNEL_GATHER), recv = disti_build_lane(b, CHANNEL_GATHER);
    for (int hop = 0; hop < shape->ranks - 1; hop++)
        spread_forward(&s, hop, send, recv);
}
