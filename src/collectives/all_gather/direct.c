/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather of everybody with everybody: each rank sends its block to all the others.
 *
 * A lane a peer and direction, so nobody waits for a slow one before taking from the rest. Rank i
 * starts with the rank after it on the ring. Steps: 1. Messages of a rank: n - 1.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

void disti_all_gather_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int position = topology->position[shape->rank], ranks = shape->ranks;
    uint32_t own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    for (int i = 1; i < ranks; i++) {
        int to = topology->order[(position + i) % ranks];
        int from = topology->order[(position + ranks - i) % ranks];
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = to, .src = disti_in(0),
                         .data = own);
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = from,
                         .dst = disti_out((uint32_t)from), .data = (uint32_t)from);
    }
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(0),
                     .data = own);
}
