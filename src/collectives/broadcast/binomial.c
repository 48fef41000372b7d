/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast over a binomial tree: Thakur, Rabenseifner, Gropp, 2005; built inside the nodes first
 * (disti_tree_binomial), so that each node is reached over the network once.
 *
 *          0
 *       /  |  \          who has the data hands it on, to the largest subtree first
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
