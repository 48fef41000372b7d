/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather around a ring: Thakur, Rabenseifner, Gropp, 2005.
 *
 *   hop 0: my block to the next; hop h: to the next what came from the one before at hop h - 1
 *
 * Each block is cut into segments that follow each other. Steps: n - 1 hops in sequence. Bytes
 * sent by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

void disti_all_gather_ring(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    uint32_t segments = shape->segments, own = (uint32_t)shape->rank * segments;
    int next = disti_ring_next(topology, shape->rank);
    int previous = disti_ring_previous(topology, shape->rank);
    disti_build_chunks(b, segments);
    uint16_t copy = disti_build_lane(b, 0), send = disti_build_lane(b, 0);
    uint16_t recv = disti_build_lane(b, 0);
    for (uint32_t s = 0; s < segments; s++)
        disti_build_send(b, .lane = send, .peer = next, .src = disti_in(s), .data = own + s);
    disti_build_copy(b, .lane = copy, .dst = disti_out(own), .src = disti_in(0), .data = own,
                     .chunks = segments);
    for (int hop = 1, from = previous; hop < shape->ranks; hop++) {
        for (uint32_t s = 0; s < segments; s++) {
            uint32_t chunk = (uint32_t)from * segments + s;
            struct disti_mark came = disti_build_recv(b, .lane = recv, .peer = previous,
                                                      .dst = disti_out(chunk), .data = chunk);
            if (hop < shape->ranks - 1)
                disti_build_send(b, .lane = send, .after = came, .peer = next,
                                 .src = disti_out(chunk), .data = chunk);
        }
        from = disti_ring_previous(topology, from);
    }
}
