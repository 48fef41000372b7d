/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast over two binary trees: Sanders, Speck, Traeff, "Two-tree algorithms for full
 * bandwidth broadcast, reduction and scan", 2009; pipelined.
 *
 *              root
 *        even /    \ odd chunks          both trees span all the other ranks;
 *       tree 0      tree 1               inner in one is leaf in the other
 *
 * The trees are built over the machines and inside each again (topology/trees.c); the root stands
 * outside of both. Steps: log2 n + 2 segments in sequence. Bytes sent by a rank on one machine: one
 * vector at most; by a machine to others: the same.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

/* The chunks of tree t: t, t + 2, ... */
static void tree_send(const struct disti_shape *shape, struct disti_builder *b, int which,
                      int child)
{
    uint16_t lane = disti_build_lane(b, (uint16_t)which);
    for (uint32_t c = (uint32_t)which; c < 2 * shape->segments; c += 2)
        disti_build_send(b, .lane = lane, .after = disti_build_written(b, c), .peer = child,
                         .src = disti_out(c), .data = c);
}

static void tree_recv(const struct disti_shape *shape, struct disti_builder *b, int which,
                      int parent)
{
    uint16_t lane = disti_build_lane(b, (uint16_t)which);
    for (uint32_t c = (uint32_t)which; c < 2 * shape->segments; c += 2)
        disti_build_recv(b, .lane = lane, .peer = parent, .dst = disti_out(c), .data = c);
}

void disti_broadcast_tree(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 2 * shape->segments);
    for (int which = 0; which < 2; which++) {
        struct disti_tree_neighbours tree;
        disti_tree_double_rooted(shape->topology, which, shape->root, shape->rank, &tree);
        if (tree.parent >= 0)
            tree_recv(shape, b, which, tree.parent);
        for (int i = 0; i < tree.children; i++)
            tree_send(shape, b, which, tree.child[i]);
    }
}
