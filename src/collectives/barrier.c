/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barrier by dissemination: Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization",
 * 1988.
 *
 *   round k: position p sends to p + 2^k, receives from p - 2^k (wrapping around)
 *
 *   After round k, each position has heard from the 2^(k + 1) positions that end with itself.
 *
 * Steps: log2 n, rounded up. Messages of a rank: the same number, without bytes.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

void disti_barrier_dissemination(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int64_t position = topology->position[shape->rank], ranks = shape->ranks;
    struct disti_step_ref received = DISTI_NOW;
    disti_build_chunks(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    for (int64_t distance = 1; distance < ranks; distance *= 2) {
        int to = topology->order[(position + distance) % ranks];
        int from = topology->order[(position + ranks - distance) % ranks];
        disti_build_send(b, .lane = send, .after = received, .peer = to, .src = disti_out(0));
        received = disti_build_recv(b, .lane = recv, .peer = from, .dst = disti_out(0));
    }
}

/*
 * Barrier over a tree, like the combining trees of Mellor-Crummey, Scott, "Algorithms for scalable
 * synchronization on shared-memory multiprocessors", 1991.
 *
 *      up:   each rank receives from its children, then sends to its parent
 *      down: each rank receives from its parent, then sends to its children
 *
 * The tree is the binomial one, built inside the nodes first, which minimizes network messages.
 * Steps: 2 log2 n. Messages of all ranks: 2 (n - 1), without bytes.
 */

void disti_barrier_tree(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_tree_neighbours tree;
    disti_tree_binomial(shape->topology, shape->topology->order[0], shape->rank, &tree);
    struct disti_step_ref received = DISTI_NOW;
    disti_build_chunks(b, 1);
    uint16_t lane = disti_build_lane(b, 0);
    for (int i = tree.children - 1; i >= 0; i--) /* the smallest subtree is ready first */
        received = disti_build_recv(b, .lane = lane, .peer = tree.child[i], .dst = disti_out(0));
    if (tree.parent >= 0) {
        disti_build_send(b, .lane = lane, .after = received, .peer = tree.parent,
                         .src = disti_out(0));
        received = disti_build_recv(b, .lane = lane, .peer = tree.parent, .dst = disti_out(0));
    }
    for (int i = 0; i < tree.children; i++)
        disti_build_send(b, .lane = disti_build_lane(b, 0), .after = received,
                         .peer = tree.child[i], .src = disti_out(0));
}
