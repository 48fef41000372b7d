/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather over a ring: Thakur, Rabenseifner, Gropp, 2005.
 *
 *   block i:   i --> i + 1 --> i + 2 --> ... --> i - 1     (positions), n - 1 hops
 *
 * Each block is cut into segments, which are pipelined. Steps: n - 1 hops in sequence. Bytes sent
 * by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

/* Returns the block of a ring position. Positions wrap around, negative ones too. */
static uint32_t ring_block(const struct disti_shape *shape, int position)
{
    int n = shape->ranks;
    return (uint32_t)shape->topology->order[(position % n + n) % n];
}

void disti_all_gather_ring(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    uint32_t own = (uint32_t)shape->rank * shape->segments;
    int position = topology->position[shape->rank];
    disti_build_chunks(b, shape->segments);
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(0),
                     .data = own, .chunks = shape->segments);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    for (int hop = 0; hop < shape->ranks - 1; hop++)
        for (uint32_t s = 0; s < shape->segments; s++) {
            /* Sends a block to the next rank: this rank's own block from IN, later the blocks
             * received. Receives a block from the previous rank. */
            uint32_t out = ring_block(shape, position - hop) * shape->segments + s;
            uint32_t in = ring_block(shape, position - hop - 1) * shape->segments + s;
            disti_build_send(b, .lane = send,
                             .after = hop ? disti_build_written(b, out) : DISTI_NOW,
                             .peer = disti_ring_next(topology, shape->rank),
                             .src = hop ? disti_out(out) : disti_in(s), .data = out);
            disti_build_recv(b, .lane = recv, .peer = disti_ring_previous(topology, shape->rank),
                             .dst = disti_out(in), .data = in);
        }
}

/*
 * All-gather with doubling distances: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms
 * for all-to-all communications in multiport message-passing systems", 1997.
 *
 *   Before round k, rank r has the 2^k blocks r, r + 1, ... It sends them to rank r - 2^k and
 *   receives the next 2^k blocks from rank r + 2^k:
 *
 *     rank 5 of 7:   5 | 6 | 0 1 | 2 3 4         (the last round transfers the remaining blocks)
 *
 * Each block is received at its final place in OUT. The blocks that a rank forwards may wrap around
 * from block n - 1 to block 0, so they need 1 or 2 messages (in a _V form, one message per block).
 * Steps: log2 n, rounded up. Bytes sent by a rank: n - 1 blocks.
 */

/* Returns how many of the `count` blocks from `first` on are consecutive in memory. */
static uint32_t bruck_run(const struct disti_shape *shape, uint32_t first, uint32_t count)
{
    uint32_t left = (uint32_t)shape->ranks - first;
    if (disti_collective_uneven(shape->collective))
        return 1;
    return count < left ? count : left;
}

void disti_all_gather_bruck(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t ranks = (uint32_t)shape->ranks, own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    struct disti_step_ref has =
        disti_build_copy(b, .lane = recv, .dst = disti_out(own), .src = disti_in(0), .data = own);
    for (uint32_t distance = 1; distance < ranks; distance *= 2) {
        uint32_t count = distance < ranks - distance ? distance : ranks - distance;
        uint32_t to = (own + ranks - distance) % ranks, from = (own + distance) % ranks, run;
        struct disti_step_ref before = has;
        for (uint32_t i = 0; i < count; i += run) {
            uint32_t block = (own + i) % ranks;
            run = bruck_run(shape, block, count - i);
            disti_build_send(b, .lane = send, .after = before, .peer = (int)to,
                             .src = disti_out(block), .data = block, .chunks = run);
        }
        for (uint32_t i = 0; i < count; i += run) {
            uint32_t block = (from + i) % ranks;
            run = bruck_run(shape, block, count - i);
            has = disti_build_recv(b, .lane = recv, .peer = (int)from, .dst = disti_out(block),
                                   .data = block, .chunks = run);
        }
    }
}

/*
 * All-gather by neighbour exchange: Chen, Zhang, Zhang, Yuan, "Performance evaluation of allgather
 * algorithms on terascale Linux cluster with fast Ethernet", 2005.
 *
 *   positions   0     1     2     3     4     5
 *   round 0     <----->     <----->     <----->     own blocks: now each position has its own pair
 *   round 1     -->   <----->     <----->   <--     own pairs: 0 gets 4 5, 1 gets 2 3, 2 gets 0 1
 *   round 2     <----->     <----->     <----->     the pair received last: 0 gets 2 3
 *
 * There are half as many rounds as hops of the ring, and each round is an exchange with one
 * neighbour. A pair is one message if its blocks are consecutive, otherwise two. An odd number of
 * ranks cannot be paired and uses the ring (disti_all_gather_ring). Steps: n / 2 in sequence. Bytes
 * sent by a rank: n - 1 blocks.
 */

/* Returns how many of the `count` (1 or 2) blocks from a position on are consecutive in memory. */
static int exchange_run(const struct disti_shape *shape, int position, int count)
{
    bool both = ring_block(shape, position + 1) == ring_block(shape, position) + 1;
    return both ? count : 1;
}

/* True if a position exchanges with its left neighbour in this round. */
static bool exchange_left(int position, int round)
{
    return (position % 2 == 0) == (round % 2);
}

/* Returns the first position of the pair that a position receives in a round. Pairs come
 * alternately from both sides, at growing distances. */
static int exchange_pair(int position, int round)
{
    int own = position - position % 2, away = (round + 1) / 2 * 2;
    return exchange_left(position, round) ? own - away : own + away;
}

void disti_all_gather_neighbour_exchange(const struct disti_shape *shape, struct disti_builder *b)
{
    if (shape->ranks % 2) {
        disti_all_gather_ring(shape, b);
        return;
    }
    int p = shape->topology->position[shape->rank];
    uint32_t own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    struct disti_step_ref has = /* the blocks sent next have been received */
        disti_build_copy(b, .lane = recv, .dst = disti_out(own), .src = disti_in(0), .data = own);
    for (int round = 0; round < shape->ranks / 2; round++) {
        int neighbour = exchange_left(p, round) ? p - 1 : p + 1;
        int peer = (int)ring_block(shape, neighbour);
        int send_first = round ? exchange_pair(p, round - 1) : p, count = round ? 2 : 1;
        int recv_first = round ? exchange_pair(p, round) : neighbour;
        for (int i = 0, run; i < count; i += run) {
            uint32_t block = ring_block(shape, send_first + i);
            run = exchange_run(shape, send_first + i, count - i);
            disti_build_send(b, .lane = send, .after = has, .peer = peer, .src = disti_out(block),
                             .data = block, .chunks = (uint32_t)run);
        }
        for (int i = 0, run; i < count; i += run) {
            uint32_t block = ring_block(shape, recv_first + i);
            run = exchange_run(shape, recv_first + i, count - i);
            has = disti_build_recv(b, .lane = recv, .peer = peer, .dst = disti_out(block),
                                   .data = block, .chunks = (uint32_t)run);
        }
    }
}

/*
 * All-gather by direct exchange: each rank sends its block to all other ranks.
 *
 * Each peer and direction has a lane of its own, so a slow peer does not delay other peers. Rank i
 * starts with the next rank on the ring. Steps: 1. Messages of a rank: n - 1.
 */

void disti_all_gather_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int position = topology->position[shape->rank], ranks = shape->ranks;
    uint32_t own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    for (int i = 1; i < ranks; i++) {
        int to = topology->order[(position + i) % ranks];
        int from = topology->order[(position + ranks - i) % ranks];
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = to, .src = disti_in(0),
                         .data = own);
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = from,
                         .dst = disti_out((uint32_t)from), .data = (uint32_t)from);
    }
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(0),
                     .data = own);
}

/*
 * All-gather across the nodes first, then inside them.
 *
 *   node 0: ranks 0 1 2        node 1: ranks 3 4 5        node 2: ranks 6 7 8
 *
 *     1. the i-th ranks of all nodes gather their blocks: 0 3 6, 1 4 7, 2 5 8   (a ring each)
 *     2. in each node each rank sends all its blocks to the other ranks         (direct)
 *
 * A segment is forwarded inside the node as soon as it has been received. A block enters each node
 * once, and the ring has one hop per node. If nodes have different numbers of ranks, there are no
 * matching i-th ranks, and one ring over all ranks is used (disti_all_gather_ring). Blocks may
 * differ in size.
 *
 * With m ranks on each of N nodes: steps: N in sequence. Bytes sent over the network by a rank: N -
 * 1 blocks; inside the node: (m - 1) N blocks.
 */

enum { CHANNEL_RING, CHANNEL_NODE };

struct gather {
    const struct disti_shape *shape;
    struct disti_builder *b;
    int node, nodes, size, index; /* index: of this rank in its node */
};

/* Returns chunk s of the block that the `index`-th rank of the node has after hop `hop` of its
 * ring. */
static uint32_t gather_chunk(const struct gather *g, int index, int hop, uint32_t s)
{
    int node = (g->node + g->nodes - hop) % g->nodes;
    uint32_t owner = (uint32_t)disti_node_member(g->shape->topology, node, index);
    return owner * g->shape->segments + s;
}

static struct disti_chunk_ref gather_value(const struct gather *g, int hop, uint32_t chunk)
{
    return hop == 0 ? disti_build_in(g->b, chunk) : disti_out(chunk);
}

static void gather_ring(const struct gather *g)
{
    const struct disti_topology *topology = g->shape->topology;
    int next = disti_node_member(topology, (g->node + 1) % g->nodes, g->index);
    int previous = disti_node_member(topology, (g->node + g->nodes - 1) % g->nodes, g->index);
    uint16_t send = disti_build_lane(g->b, CHANNEL_RING);
    uint16_t recv = disti_build_lane(g->b, CHANNEL_RING);
    for (int hop = 0; hop < g->nodes - 1; hop++) {
        for (uint32_t s = 0; s < g->shape->segments; s++) {
            uint32_t out = gather_chunk(g, g->index, hop, s);
            uint32_t in = gather_chunk(g, g->index, hop + 1, s);
            struct disti_step_ref has = hop == 0 ? DISTI_NOW : disti_build_written(g->b, out);
            disti_build_send(g->b, .lane = send, .after = has, .peer = next,
                             .src = gather_value(g, hop, out), .data = out);
            disti_build_recv(g->b, .lane = recv, .peer = previous, .dst = disti_out(in),
                             .data = in);
        }
    }
}

/* Sends all blocks of this rank's ring to the i-th rank after it in the node, and receives all
 * blocks of the i-th rank before it. */
static void gather_mates(const struct gather *g, int i)
{
    const struct disti_topology *topology = g->shape->topology;
    int to = (g->index + i) % g->size, from = (g->index + g->size - i) % g->size;
    uint16_t send = disti_build_lane(g->b, CHANNEL_NODE);
    uint16_t recv = disti_build_lane(g->b, CHANNEL_NODE);
    for (int hop = 0; hop < g->nodes; hop++) {
        for (uint32_t s = 0; s < g->shape->segments; s++) {
            uint32_t out = gather_chunk(g, g->index, hop, s);
            uint32_t in = gather_chunk(g, from, hop, s);
            struct disti_step_ref has = hop == 0 ? DISTI_NOW : disti_build_written(g->b, out);
            disti_build_send(g->b, .lane = send, .after = has,
                             .peer = disti_node_member(topology, g->node, to),
                             .src = gather_value(g, hop, out), .data = out);
            disti_build_recv(g->b, .lane = recv, .peer = disti_node_member(topology, g->node, from),
                             .dst = disti_out(in), .data = in);
        }
    }
}

void disti_all_gather_hierarchical(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    if (!topology->uniform) {
        disti_all_gather_ring(shape, b);
        return;
    }
    int node = disti_node_of(topology, shape->rank);
    struct gather g = {.shape = shape,
                       .b = b,
                       .node = node,
                       .nodes = topology->nodes,
                       .size = disti_node_size(topology, node),
                       .index = topology->position[shape->rank] - topology->node_first[node]};
    uint32_t own = (uint32_t)shape->rank * shape->segments;
    disti_build_chunks(b, shape->segments);
    gather_ring(&g);
    for (int i = 1; i < g.size; i++)
        gather_mates(&g, i);
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(0),
                     .data = own, .chunks = shape->segments);
}
