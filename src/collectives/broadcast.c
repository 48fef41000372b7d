/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast over a binomial tree: Thakur, Rabenseifner, Gropp, 2005. The tree is built inside the
 * nodes first (disti_tree_binomial), so the data enter each node over the network once.
 *
 *          0
 *       /  |  \          a rank that has the data forwards it, to the largest subtree first
 *      4   2   1
 *     /|   |
 *    6 5   3
 *    |
 *    7
 *
 * Steps: log2 n in sequence. Bytes sent by a rank: up to log2 n vectors.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

void disti_broadcast_binomial(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_tree_neighbours tree;
    disti_tree_binomial(shape->topology, shape->root, shape->rank, &tree);
    disti_build_chunks(b, 1);
    if (tree.parent >= 0)
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = tree.parent,
                         .dst = disti_out(0));
    for (int i = 0; i < tree.children; i++)
        disti_build_send(b, .lane = disti_build_lane(b, 0), .after = disti_build_written(b, 0),
                         .peer = tree.child[i], .src = disti_out(0));
}

/*
 * Broadcast down a pipelined chain, like the fragmenting algorithms of Pjesivac-Grbovic et al.,
 * "Performance analysis of MPI collective operations", 2007.
 *
 *   root --3 2 1--> rank --3 2 1--> rank --3 2 1--> ...      pipelined segments
 *
 * The chain is the ring, started at the root, with all other ranks of the root's node first, so the
 * data enter each node once. Steps: n - 2 + segments in sequence. Bytes sent by a rank: one vector.
 */

void disti_stream_send(struct disti_builder *b, int channel, int peer, uint32_t first,
                       uint32_t step, uint32_t end)
{
    uint16_t lane = disti_build_lane(b, (uint16_t)channel);
    for (uint32_t c = first; c < end; c += step)
        disti_build_send(b, .lane = lane, .after = disti_build_written(b, c), .peer = peer,
                         .src = disti_out(c), .data = c);
}

void disti_stream_recv(struct disti_builder *b, int channel, int peer, uint32_t first,
                       uint32_t step, uint32_t end)
{
    uint16_t lane = disti_build_lane(b, (uint16_t)channel);
    for (uint32_t c = first; c < end; c += step)
        disti_build_recv(b, .lane = lane, .peer = peer, .dst = disti_out(c), .data = c);
}

void disti_broadcast_chain(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int position = disti_chain_position(topology, shape->root, shape->rank);
    disti_build_chunks(b, shape->segments);
    if (position > 0)
        disti_stream_recv(b, 0, disti_chain_rank(topology, shape->root, position - 1), 0, 1,
                          shape->segments);
    if (position < shape->ranks - 1)
        disti_stream_send(b, 0, disti_chain_rank(topology, shape->root, position + 1), 0, 1,
                          shape->segments);
}

/*
 * Broadcast over two binary trees: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan", 2009; pipelined.
 *
 *              root
 *        even /    \ odd chunks          both trees span all ranks but the root; an inner
 *       tree 0      tree 1               vertex of one tree is a leaf of the other
 *
 * The trees are built over the nodes and then inside each node (topology/trees.c), without the
 * root. Steps: log2 n + 2 segments in sequence. Bytes sent inside a node by a rank: at most one
 * vector; by a node to other nodes: at most one vector.
 */

void disti_broadcast_tree(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t chunks = 2 * shape->segments;
    disti_build_chunks(b, chunks);
    /* Tree 0 carries the even chunks, tree 1 the odd chunks. */
    for (int which = 0; which < 2; which++) {
        struct disti_tree_neighbours tree;
        disti_tree_double_rooted(shape->topology, which, shape->root, shape->rank, &tree);
        if (tree.parent >= 0)
            disti_stream_recv(b, which, tree.parent, (uint32_t)which, 2, chunks);
        for (int i = 0; i < tree.children; i++)
            disti_stream_send(b, which, tree.child[i], (uint32_t)which, 2, chunks);
    }
}

/*
 * Broadcast as a scatter and an all-gather: van de Geijn; Barnett et al., "Interprocessor
 * collective communication library (InterCom)", 1994.
 *
 * The vector is cut into n slices, slice i for position i of the chain (disti_chain_rank). The
 * scatter sends slices down a binomial tree. With 6 ranks, the positions then have these slices:
 *
 *     position   0             1     2     3     4     5
 *     slices     0 1 2 3 4 5   1     2 3   3     4 5   5
 *
 * The all-gather runs around the chain: each rank forwards the slices that the next rank lacks.
 *
 * Each slice is cut into segments, which are pipelined. Steps: log2 n + n - 1 in sequence. Bytes
 * sent by a rank: at most about 2 vectors (the root), about 1 by the other ranks.
 */

struct spread {
    const struct disti_shape *shape;
    struct disti_builder *b;
    int position; /* this rank's position on the chain */
};

enum { CHANNEL_SCATTER, CHANNEL_GATHER };

static int spread_rank(const struct spread *s, int position)
{
    return disti_chain_rank(s->shape->topology, s->shape->root, position);
}

/*
 * Returns the end of the range of slices that the tree delivers to a position. The range begins
 * with the position's own slice.
 */
static int spread_end(int position, int ranks)
{
    int64_t end = position + (int64_t)(position & -position);
    return position == 0 || end > ranks ? ranks : (int)end;
}

/*
 * One hop of the all-gather. Position p sends slice (p - hop) mod n to the next position, and
 * receives slice (p - 1 - hop) mod n from the previous one. A slice that the tree has delivered to
 * the receiving position is not sent.
 */
static void spread_forward(const struct spread *s, int hop, uint16_t send, uint16_t recv)
{
    int ranks = s->shape->ranks, next = (s->position + 1) % ranks,
        previous = (s->position + ranks - 1) % ranks;
    int out = (s->position + ranks - hop) % ranks, in = (previous + ranks - hop) % ranks;
    uint32_t segments = s->shape->segments;
    for (uint32_t i = 0; i < segments; i++) {
        uint32_t chunk = (uint32_t)out * segments + i, in_chunk = (uint32_t)in * segments + i;
        if (out < next || out >= spread_end(next, ranks))
            disti_build_send(s->b, .lane = send, .after = disti_build_written(s->b, chunk),
                             .peer = spread_rank(s, next), .src = disti_out(chunk), .data = chunk);
        if (in < s->position || in >= spread_end(s->position, ranks))
            disti_build_recv(s->b, .lane = recv, .peer = spread_rank(s, previous),
                             .dst = disti_out(in_chunk), .data = in_chunk);
    }
}

void disti_broadcast_scatter_all_gather(const struct disti_shape *shape, struct disti_builder *b)
{
    struct spread s = {shape, b, disti_chain_position(shape->topology, shape->root, shape->rank)};
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    int position = s.position, ranks = s.shape->ranks, end = spread_end(position, ranks);
    uint32_t segments = s.shape->segments, first = (uint32_t)position * segments;
    if (position > 0)
        disti_build_recv(s.b, .lane = disti_build_lane(s.b, CHANNEL_SCATTER),
                         .peer = spread_rank(&s, position & (position - 1)),
                         .dst = disti_out(first), .data = first,
                         .chunks = (uint32_t)(end - position) * segments);
    struct disti_step_ref has = disti_build_written(s.b, first);
    int64_t bit = 1;
    while (position + 2 * bit < end)
        bit *= 2;
    for (; bit > 0 && position + bit < end; bit /= 2) {
        int child = (int)(position + bit);
        uint32_t chunk = (uint32_t)child * segments;
        disti_build_send(s.b, .lane = disti_build_lane(s.b, CHANNEL_SCATTER), .after = has,
                         .peer = spread_rank(&s, child), .src = disti_out(chunk), .data = chunk,
                         .chunks = (uint32_t)(spread_end(child, ranks) - child) * segments);
    }
    uint16_t send = disti_build_lane(b, CHANNEL_GATHER), recv = disti_build_lane(b, CHANNEL_GATHER);
    for (int hop = 0; hop < shape->ranks - 1; hop++)
        spread_forward(&s, hop, send, recv);
}
