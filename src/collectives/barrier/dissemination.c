/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Barrier by dissemination: Hensgen, Finkel, Manber, "Two algorithms for barrier
 * synchronization", 1988.
 *
 *   round k: tell position p + 2^k, hear from position p - 2^k (round the ring)
 *
 *   after round k each rank knows of the 2^(k + 1) ranks that end with it
 *
 * Steps: log2 n, rounded up. Messages of a rank: as many, without bytes.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

void disti_barrier_dissemination(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int64_t position = topology->position[shape->rank], ranks = shape->ranks;
    struct disti_step_ref heard = DISTI_NOW;
    disti_build_chunks(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    for (int64_t distance = 1; distance < ranks; distance *= 2) {
        int to = topology->order[(position + distance) % ranks];
        int from = topology->order[(position + ranks - distance) % ranks];
        disti_build_send(b, .lane = send, .after = heard, .peer = to, .src = disti_out(0));
        heard = disti_build_recv(b, .lane = recv, .peer = from, .dst = disti_out(0));
    }
}
