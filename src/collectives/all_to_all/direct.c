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
        disti_build_send(b, disti_build_lane(b, 0), DISTI_NOW, (int)to, disti_in(to),
                         own * ranks + to, 1);
        disti_build_recv(b, disti_build_lane(b, 0), DISTI_NOW, (int)from, disti_out(from),
                         from * ranks + own, 1);
    }
    disti_build_copy(b, disti_build_lane(b, 0), DISTI_NOW, disti_out(own), disti_in(own),
                     own * ranks + own, 1);
}
