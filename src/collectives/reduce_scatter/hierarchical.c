/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter inside the nodes first, then across them.
 *
 *   node 0: ranks 0 1 2        node 1: ranks 3 4 5        node 2: ranks 6 7 8
 *
 *     1. in each node the i-th rank reduces the blocks of the i-th ranks of all nodes   (direct)
 *     2. the i-th ranks of all nodes reduce-scatter these sums: 0 3 6, 1 4 7, 2 5 8  (a ring each)
 *
 * Blocks are dealt with in the order in which the ring wants them, the own one last. A segment goes
 * on its ring as soon as its node has added it. So a block leaves each node once, and the ring has
 * as many hops as there are nodes. Where nodes differ in their number of ranks, there are no i-th
 * ranks: one ring of all then (reduce_scatter/ring.c). Blocks may differ in size.
 *
 * With m ranks on each of N nodes: steps: N in sequence. Bytes sent over the network by a rank:
 * N - 1 blocks; inside the node (m - 1) N.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

enum { CHANNEL_NODE, CHANNEL_RING };

struct scatter {
    const struct disti_shape *shape;
    struct disti_builder *b;
    int node, nodes, size, index; /* index: of the rank in its node */
    uint16_t reduce, send, recv;
};

/* Chunk s of the turn-th block of the node's `index`-th rank: its own is the last. */
static uint32_t scatter_chunk(const struct scatter *c, int index, int turn, uint32_t s)
{
    int node = (c->node + 2 * c->nodes - 1 - turn) % c->nodes;
    uint32_t owner = (uint32_t)disti_node_member(c->shape->topology, node, index);
    return owner * c->shape->segments + s;
}

/* Where the turn's sum is: the own block's in OUT. */
static struct disti_chunk_ref scatter_sum(const struct scatter *c, int turn, uint32_t s)
{
    if (turn == c->nodes - 1)
        return disti_out(s);
    return disti_scratch((uint32_t)turn * c->shape->segments + s);
}

/* A rank alone on its node has nothing to add to what is in IN. */
static struct disti_chunk_ref scatter_value(const struct scatter *c, int turn, uint32_t s)
{
    return c->size > 1 ? scatter_sum(c, turn, s) : disti_in(scatter_chunk(c, c->index, turn, s));
}

/* The node's last addition to a turn's segment: each has size - 1. */
static struct disti_step_ref scatter_added(const struct scatter *c, int turn, uint32_t s)
{
    uint32_t before = (uint32_t)turn * c->shape->segments + s;
    if (c->size == 1)
        return DISTI_NOW;
    return (struct disti_step_ref){c->reduce, (before + 1) * (uint32_t)(c->size - 1)};
}

/* Gives the i-th rank after this one in the node its blocks. */
static void scatter_give(const struct scatter *c, int i)
{
    int to = (c->index + i) % c->size;
    uint16_t lane = disti_build_lane(c->b, CHANNEL_NODE);
    for (int turn = 0; turn < c->nodes; turn++) {
        for (uint32_t s = 0; s < c->shape->segments; s++) {
            uint32_t chunk = scatter_chunk(c, to, turn, s);
            disti_build_send(c->b, .lane = lane,
                             .peer = disti_node_member(c->shape->topology, c->node, to),
                             .src = disti_in(chunk), .data = chunk);
        }
    }
}

static void scatter_reduce(const struct scatter *c, int turn, uint32_t s)
{
    uint32_t chunk = scatter_chunk(c, c->index, turn, s);
    struct disti_chunk_ref value = disti_in(chunk), sum = scatter_sum(c, turn, s);
    for (int i = 1; i < c->size; i++) {
        int from = disti_node_member(c->shape->topology, c->node, (c->index + i) % c->size);
        disti_build_recv_reduce(c->b, .lane = c->reduce, .peer = from, .dst = sum, .src = value,
                                .data = chunk, .finish = c->nodes == 1 && i == c->size - 1);
        value = sum;
    }
}

/* The turn's segment goes on, the next turn's comes and is added to the node's sum of it. */
static void scatter_hop(const struct scatter *c, int turn, uint32_t s)
{
    const struct disti_topology *topology = c->shape->topology;
    int next = disti_node_member(topology, (c->node + 1) % c->nodes, c->index);
    int previous = disti_node_member(topology, (c->node + c->nodes - 1) % c->nodes, c->index);
    uint32_t out = scatter_chunk(c, c->index, turn, s);
    uint32_t in = scatter_chunk(c, c->index, turn + 1, s);
    struct disti_step_ref came = {c->recv, (uint32_t)(turn - 1) * c->shape->segments + s + 1};
    struct disti_chunk_ref from = turn ? scatter_sum(c, turn, s) : scatter_value(c, turn, s);
    disti_build_send(c->b, .lane = c->send, .after = turn ? came : scatter_added(c, turn, s),
                     .peer = next, .src = from, .data = out);
    disti_build_recv_reduce(c->b, .lane = c->recv, .after = scatter_added(c, turn + 1, s),
                            .peer = previous, .dst = scatter_sum(c, turn + 1, s),
                            .src = scatter_value(c, turn + 1, s), .data = in,
                            .finish = turn == c->nodes - 2);
}

void disti_reduce_scatter_hierarchical(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    if (!topology->uniform) {
        disti_reduce_scatter_ring(shape, b);
        return;
    }
    int node = disti_node_of(topology, shape->rank);
    struct scatter c = {.shape = shape,
                        .b = b,
                        .node = node,
                        .nodes = topology->nodes,
                        .size = disti_node_size(topology, node),
                        .index = topology->position[shape->rank] - topology->node_first[node],
                        .reduce = disti_build_lane(b, CHANNEL_NODE),
                        .send = disti_build_lane(b, CHANNEL_RING),
                        .recv = disti_build_lane(b, CHANNEL_RING)};
    disti_build_chunks(b, shape->segments);
    disti_build_scratch(b, (uint32_t)(c.nodes - 1) * shape->segments);
    for (int i = 1; i < c.size; i++)
        scatter_give(&c, i);
    for (int turn = 0; turn < c.nodes; turn++)
        for (uint32_t s = 0; s < shape->segments; s++)
            scatter_reduce(&c, turn, s);
    for (int turn = 0; turn < c.nodes - 1; turn++)
        for (uint32_t s = 0; s < shape->segments; s++)
            scatter_hop(&c, turn, s);
}
