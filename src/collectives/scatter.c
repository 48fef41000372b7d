/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scatter over a binomial tree, built inside the nodes first (disti_tree_binomial): Thakur,
 * Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005. The
 * reverse of the binomial gather:
 *
 *          0
 *       /  |  \          a rank sends each child the blocks of that child's subtree, packed in
 *      4   2   1         scratch, as one message: 4 gets 4 5 6 7
 *     /|   |
 *    6 5   3             the root sends directly from IN if the blocks are consecutive
 *    |
 *    7
 *
 * Steps: log2 n in sequence. Bytes sent by a rank: to each child, the blocks of that child's
 * subtree.
 */
#include "collectives/algorithms.h"

void disti_scatter_binomial(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_tree_neighbours tree;
    disti_tree_binomial(shape->topology, shape->root, shape->rank, &tree);
    disti_build_chunks(b, 1);
    uint32_t *list = disti_build_array(b, (size_t)shape->ranks);
    if (!list)
        return;
    if (tree.parent < 0) {
        /* The largest subtree comes first, since it has the most steps. */
        uint32_t own = (uint32_t)shape->rank, slot = 0;
        for (int i = 0; i < tree.children; i++) {
            int child = tree.child[i];
            uint32_t count = disti_subtree(shape->topology, shape->root, child, list);
            uint16_t lane = disti_build_lane(b, 0);
            if (disti_subtree_run(list, count)) {
                disti_build_send(b, .lane = lane, .peer = child, .src = disti_in(list[0]),
                                 .data = list[0], .chunks = count);
                continue;
            }
            /* Packs the blocks of one message. */
            struct disti_step_ref packed = DISTI_NOW;
            disti_build_scratch(b, slot + count);
            for (uint32_t j = 0; j < count; j++)
                packed = disti_build_copy(b, .lane = lane, .dst = disti_scratch(slot + j),
                                          .src = disti_in(list[j]), .data = list[j]);
            disti_build_send(b, .lane = lane, .after = packed, .peer = child,
                             .src = disti_scratch(slot), .list = list, .chunks = count);
            slot += count;
        }
        disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(0),
                         .src = disti_in(own), .data = own);
    } else {
        uint32_t own = (uint32_t)shape->rank;
        uint32_t count = disti_subtree(shape->topology, shape->root, shape->rank, list),
                 slot = count;
        uint16_t lane = disti_build_lane(b, 0);
        if (count == 1) {
            disti_build_recv(b, .lane = lane, .peer = tree.parent, .dst = disti_out(0),
                             .data = own);
            return;
        }
        disti_build_scratch(b, count);
        struct disti_step_ref received =
            disti_build_recv(b, .lane = lane, .peer = tree.parent, .dst = disti_scratch(0),
                             .list = list, .chunks = count);
        for (int i = 0; i < tree.children; i++) { /* the largest subtree is the last in the list */
            uint32_t many = disti_subtree(shape->topology, shape->root, tree.child[i], list);
            slot -= many;
            disti_build_send(b, .lane = disti_build_lane(b, 0), .after = received,
                             .peer = tree.child[i], .src = disti_scratch(slot), .list = list,
                             .chunks = many);
        }
        disti_build_copy(b, .lane = lane, .dst = disti_out(0), .src = disti_scratch(0),
                         .data = own);
    }
}

/*
 * Scatter by direct sends: the root sends each rank its block from its place in IN.
 *
 * The root has one lane per peer, so a slow peer does not delay other peers. Blocks may differ in
 * size. Steps: 1. Messages: n - 1.
 */

void disti_scatter_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    if (shape->rank != shape->root) {
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = shape->root,
                         .dst = disti_out(0), .data = own);
        return;
    }
    for (int i = 1; i < shape->ranks; i++) {
        uint32_t to = (uint32_t)disti_chain_rank(shape->topology, shape->root, i);
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = (int)to, .src = disti_in(to),
                         .data = to);
    }
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(0), .src = disti_in(own),
                     .data = own);
}
