/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gather over a binomial tree, built inside the nodes first (disti_tree_binomial): Thakur,
 * Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", 2005.
 *
 *          0
 *       /  |  \          a rank sends its own block and those of its subtree, packed in
 *      4   2   1         scratch, as one message: 4 sends 4 5 6 7
 *     /|   |
 *    6 5   3             the root receives directly into OUT if the blocks are consecutive
 *    |
 *    7
 *
 * Steps: log2 n in sequence. Bytes sent by a rank: the blocks of its subtree.
 */
#include "collectives/algorithms.h"

void disti_gather_binomial(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_tree_neighbours tree;
    disti_tree_binomial(shape->topology, shape->root, shape->rank, &tree);
    disti_build_chunks(b, 1);
    uint32_t *list = disti_build_array(b, (size_t)shape->ranks);
    if (!list)
        return;
    if (tree.parent < 0) {
        uint32_t own = (uint32_t)shape->rank, slot = 0;
        disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own),
                         .src = disti_in(0), .data = own);
        for (int i = tree.children - 1; i >= 0; i--) {
            int child = tree.child[i];
            uint32_t count = disti_subtree(shape->topology, shape->root, child, list);
            uint16_t lane = disti_build_lane(b, 0);
            if (disti_subtree_run(list, count)) {
                disti_build_recv(b, .lane = lane, .peer = child, .dst = disti_out(list[0]),
                                 .data = list[0], .chunks = count);
                continue;
            }
            disti_build_scratch(b, slot + count);
            disti_build_recv(b, .lane = lane, .peer = child, .dst = disti_scratch(slot),
                             .list = list, .chunks = count);
            for (uint32_t j = 0; j < count; j++) /* copies the packed blocks to their places */
                disti_build_copy(b, .lane = lane, .dst = disti_out(list[j]),
                                 .src = disti_scratch(slot + j), .data = list[j]);
            slot += count;
        }
    } else {
        /* One lane, since all blocks must have been received before the send. */
        uint32_t own = (uint32_t)shape->rank;
        uint32_t count = disti_subtree(shape->topology, shape->root, shape->rank, list);
        uint16_t lane = disti_build_lane(b, 0);
        if (count == 1) {
            disti_build_send(b, .lane = lane, .peer = tree.parent, .src = disti_in(0), .data = own);
            return;
        }
        disti_build_scratch(b, count);
        disti_build_copy(b, .lane = lane, .dst = disti_scratch(0), .src = disti_in(0), .data = own);
        uint32_t *below = disti_build_array(b, count);
        for (uint32_t slot = 1, i = (uint32_t)tree.children; below && i > 0; i--) {
            int child = tree.child[i - 1];
            uint32_t many = disti_subtree(shape->topology, shape->root, child, below);
            disti_build_recv(b, .lane = lane, .peer = child, .dst = disti_scratch(slot),
                             .list = below, .chunks = many);
            slot += many;
        }
        disti_build_send(b, .lane = lane, .peer = tree.parent, .src = disti_scratch(0),
                         .list = list, .chunks = count);
    }
}

/*
 * Gather by direct sends: each rank sends its block to the root, which receives it at its place.
 *
 * The root has one lane per peer, so a slow peer does not delay other peers. Blocks may differ in
 * size. Steps: 1. Messages: n - 1.
 */

void disti_gather_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    if (shape->rank != shape->root) {
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = shape->root, .src = disti_in(0),
                         .data = own);
        return;
    }
    for (int i = 1; i < shape->ranks; i++) {
        uint32_t from = (uint32_t)disti_chain_rank(shape->topology, shape->root, i);
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = (int)from,
                         .dst = disti_out(from), .data = from);
    }
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(0),
                     .data = own);
}
