/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-all of everybody with everybody at once: each rank sends each other rank its block.
 *
 * A lane a peer and direction, so nobody waits for a slow one before taking from the rest. Rank i
 * starts with the rank after it on the ring. Blocks may differ in size.
 * Steps: 1. Messages of a rank: n - 1. Bytes sent by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

void disti_all_to_all_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int position = topology->position[shape->rank];
    uint32_t ranks = (uint32_t)shape->ranks, own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    for (int i = 1; i < shape->ranks; i++) {
        uint32_t to = (uint32_t)topology->order[(position + i) % shape->ranks];
        uint32_t from = (uint32_t)topology->order[(position + shape->ranks - i) % shape->ranks];
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = (int)to, .src = disti_in(to),
                         .data = own * ranks + to);
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = (int)from,
                         .dst = disti_out(from), .data = from * ranks + own);
    }
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(own),
                     .data = own * ranks + own);
}
