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
        disti_build_send(b, disti_build_lane(b, 0), DISTI_NOW, to, disti_in(0), own, 1);
        disti_build_recv(b, disti_build_lane(b, 0), DISTI_NOW, from, disti_out((uint32_t)from),
                         (uint32_t)from, 1);
    }
    disti_build_copy(b, disti_build_lane(b, 0), DISTI_NOW, disti_out(own), disti_in(0), own, 1);
}
