/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce inside the nodes, across them, inside again.
 *
 *   node 0: ranks 0 1 2        node 1: ranks 3 4 5
 *
 *     1. in each node slice i is reduced at its i-th rank          (direct)
 *     2. the i-th ranks of all nodes all-reduce slice i            (a ring a slice, side by side)
 *     3. in each node the i-th rank hands slice i to the others    (direct)
 *
 * A chunk goes on to the next phase as soon as it has left the last; phase 1 takes them in the
 * order in which the ring wants them, phase 3 in that in which it completes them. Where nodes
 * differ in their number of ranks, slices cannot be matched: the whole vector is the leaders'.
 *
 * With m ranks on each of N nodes: steps: 2 + 2 (N - 1) in sequence. Bytes over the network by a
 * rank: 2 (N - 1) / (N m) of the vector; inside the node 2 (m - 1) / m.
 */
#include "collectives/algorithms.h"
#include "collectives/common/phases.h"
#include "topology/topology.h"

enum { CHANNEL_REDUCE, CHANNEL_RING, CHANNEL_GATHER };

void disti_all_reduce_hierarchical(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int node = disti_node_of(topology, shape->rank), nodes = topology->nodes;
    int size = disti_node_size(topology, node);
    struct disti_team team = {.ranks = &topology->order[topology->node_first[node]],
                              .size = size,
                              .index = topology->position[shape->rank] - topology->node_first[node],
                              .owners = topology->uniform ? size : 1,
                              .turns = (uint32_t)nodes,
                              .segments = shape->segments};
    uint32_t slice = team.turns * team.segments;
    disti_build_chunks(b, (uint32_t)team.owners * slice);
    disti_team_reduce(b, &team, (uint32_t)node, CHANNEL_REDUCE, nodes == 1);
    if (team.index < team.owners) {
        int next = (node + 1) % nodes, previous = (node + nodes - 1) % nodes;
        struct disti_ring ring = {.size = nodes,
                                  .index = node,
                                  .next = disti_node_member(topology, next, team.index),
                                  .previous = disti_node_member(topology, previous, team.index),
                                  .first = (uint32_t)team.index * slice,
                                  .segments = shape->segments,
                                  .channel = CHANNEL_RING,
                                  .channels = 1};
        disti_ring_all_reduce(b, &ring);
    }
    disti_team_gather(b, &team, (uint32_t)(node + 1) % team.turns, CHANNEL_GATHER);
}
