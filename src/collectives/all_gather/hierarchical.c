/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather across the nodes first, then inside them.
 *
 *   node 0: ranks 0 1 2        node 1: ranks 3 4 5        node 2: ranks 6 7 8
 *
 *     1. the i-th ranks of all nodes gather their blocks: 0 3 6, 1 4 7, 2 5 8   (a ring each)
 *     2. in each node each rank sends what it has to the others              (direct)
 *
 * A segment goes on inside the node as soon as it has come. So a block enters each node once, and
 * the ring has as many hops as there are nodes. Where nodes differ in their number of ranks, there
 * are no i-th ranks: one ring of all then (all_gather/ring.c). Blocks may differ in size.
 *
 * With m ranks on each of N nodes: steps: N in sequence. Bytes sent over the network by a rank:
 * N - 1 blocks; inside the node (m - 1) N.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

enum { CHANNEL_RING, CHANNEL_NODE };

struct gather {
    const struct disti_shape *shape;
    struct disti_builder *b;
    int node, nodes, size, index; /* index: of the rank in its node */
};

/* Chunk s of the block that the `index`-th rank of the node has at hop `hop` on its ring. */
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

/* With the i-th rank after this one in the node: all that it has, all that this one has. */
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
