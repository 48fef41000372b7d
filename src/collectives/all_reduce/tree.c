/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce over two binary trees: Sanders, Speck, Traeff, "Two-tree algorithms for full
 * bandwidth broadcast, reduction and scan", 2009; pipelined.
 *
 *   tree 0: even chunks          tree 1: odd chunks
 *
 *            3                          2
 *         /     \                    /     \           up: reduce what the children send
 *        1       5                  0       4          down: forward what the parent sends
 *       / \     /                    \     / \
 *      0   2   4                      1   3   5        (positions, 6 ranks)
 *
 * The trees are built over the machines and inside each again (topology/trees.c), so n - 1 edges of
 * each lie between n machines.
 * A rank that is inner in one tree is a leaf in the other, so both together use each rank's link
 * fully in both directions. Each tree carries `segments` chunks that follow each other.
 * Steps: 2 log2 n + 2 segments in sequence. Bytes sent by a rank: 2 vectors at most.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

/* Chunks of tree t: t, t + 2, ... */
struct tree {
    struct disti_builder *b;
    struct disti_tree_neighbours tree;
    uint32_t first, end;
    uint16_t channel;
};

/* One lane for all the children: their data goes into the same sum. */
static void tree_reduce(const struct tree *t)
{
    if (t->tree.children == 0)
        return;
    uint16_t lane = disti_build_lane(t->b, t->channel);
    for (uint32_t c = t->first; c < t->end; c += 2)
        for (int i = 0; i < t->tree.children; i++)
            disti_build_recv_reduce(t->b, .lane = lane, .peer = t->tree.child[i],
                                    .dst = disti_out(c), .src = disti_build_value(t->b, c),
                                    .data = c,
                                    .finish = t->tree.parent < 0 && i == t->tree.children - 1);
}

static void tree_parent(const struct tree *t)
{
    if (t->tree.parent < 0)
        return;
    uint16_t up = disti_build_lane(t->b, t->channel);
    uint16_t down = disti_build_lane(t->b, t->channel);
    for (uint32_t c = t->first; c < t->end; c += 2) {
        disti_build_send(t->b, .lane = up, .after = disti_build_written(t->b, c),
                         .peer = t->tree.parent, .src = disti_build_value(t->b, c), .data = c);
        disti_build_recv(t->b, .lane = down, .peer = t->tree.parent, .dst = disti_out(c),
                         .data = c);
    }
}

static void tree_forward(const struct tree *t)
{
    for (int i = 0; i < t->tree.children; i++) {
        uint16_t lane = disti_build_lane(t->b, t->channel);
        for (uint32_t c = t->first; c < t->end; c += 2)
            disti_build_send(t->b, .lane = lane, .after = disti_build_written(t->b, c),
                             .peer = t->tree.child[i], .src = disti_out(c), .data = c);
    }
}

void disti_all_reduce_tree(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t chunks = 2 * shape->segments;
    disti_build_chunks(b, chunks);
    for (int which = 0; which < 2; which++) {
        struct tree t = {
            .b = b, .first = (uint32_t)which, .end = chunks, .channel = (uint16_t)which};
        disti_tree_double(shape->topology, which, shape->rank, &t.tree);
        tree_reduce(&t);
        tree_parent(&t);
        tree_forward(&t);
    }
}
