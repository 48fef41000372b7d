/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce over a binomial tree: Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", 2005; built inside the nodes first (disti_tree_binomial), so
 * that each node sends over the network once.
 *
 *          0
 *       /  |  \          who has the sum of its children's vectors and its own hands it up;
 *      4   2   1         the smallest subtree is ready first
 *     /|   |
 *    6 5   3
 *    |
 *    7
 *
 * Steps: log2 n in sequence. Bytes sent by a rank: one vector.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

void disti_reduce_binomial(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_tree_neighbours tree;
    disti_tree_binomial(shape->topology, shape->root, shape->rank, &tree);
    disti_build_chunks(b, 1);
    disti_build_scratch(b, 1);
    uint16_t lane = disti_build_lane(b, 0);
    struct disti_chunk_ref value = disti_in(0),
                           sum = tree.parent < 0 ? disti_out(0) : disti_scratch(0);
    for (int i = tree.children - 1; i >= 0; i--) {
        disti_build_recv_reduce(b, .lane = lane, .peer = tree.child[i], .dst = sum, .src = value,
                                .finish = tree.parent < 0 && i == 0);
        value = sum;
    }
    if (tree.parent >= 0)
        disti_build_send(b, .lane = lane, .peer = tree.parent, .src = value);
}
