/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-all by pairs in turn: Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", 2005.
 *
 *   round i, n a power of two:   position p exchanges with position p xor i
 *   round i, any other n:        position p sends to p + i, receives from p - i (round the ring)
 *
 * A round begins when this rank's last one has ended, so that each rank is talked to by one rank at
 * a time. Near positions come first. Blocks may differ in size.
 * Steps: n - 1 in sequence. Bytes sent by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

void disti_all_to_all_pairwise(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int n = shape->ranks, position = topology->position[shape->rank];
    uint32_t ranks = (uint32_t)n, own = (uint32_t)shape->rank;
    bool pairs = (n & (n - 1)) == 0;
    disti_build_chunks(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(own),
                     .data = own * ranks + own);
    struct disti_step_ref sent = DISTI_NOW, came = DISTI_NOW;
    for (int i = 1; i < n; i++) {
        uint32_t to = (uint32_t)topology->order[pairs ? position ^ i : (position + i) % n];
        uint32_t from = (uint32_t)topology->order[pairs ? position ^ i : (position + n - i) % n];
        struct disti_step_ref before = sent;
        sent = disti_build_send(b, .lane = send, .after = came, .peer = (int)to,
                                .src = disti_in(to), .data = own * ranks + to);
        came = disti_build_recv(b, .lane = recv, .after = before, .peer = (int)from,
                                .dst = disti_out(from), .data = from * ranks + own);
    }
}
