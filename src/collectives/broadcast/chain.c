/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast down a pipelined chain, as the fragmenting algorithms of Pjesivac-Grbovic et al.,
 * "Performance analysis of MPI collective operations", 2007.
 *
 *   root --3 2 1--> rank --3 2 1--> rank --3 2 1--> ...      segments follow each other
 *
 * The chain is the ring, begun at the root with the rest of the root's node: each node is entered
 * once. Steps: n - 2 + segments in sequence. Bytes sent by a rank: one vector.
 */
#include "collectives/common/chain.h"
#include "collectives/algorithms.h"

void disti_broadcast_chain(const struct disti_shape *shape, struct disti_builder *b)
{
    int position = disti_chain_position(shape->topology, shape->root, shape->rank);
    disti_build_chunks(b, shape->segments);
    if (position > 0) {
        uint16_t lane = disti_build_lane(b, 0);
        int previous = disti_chain_rank(shape->topology, shape->root, position - 1);
        for (uint32_t c = 0; c < shape->segments; c++)
            disti_build_recv(b, .lane = lane, .peer = previous, .dst = disti_out(c), .data = c);
    }
    if (position < shape->ranks - 1) {
        uint16_t lane = disti_build_lane(b, 0);
        int next = disti_chain_rank(shape->topology, shape->root, position + 1);
        for (uint32_t c = 0; c < shape->segments; c++)
            disti_build_send(b, .lane = lane, .after = disti_build_written(b, c), .peer = next,
                             .src = disti_out(c), .data = c);
    }
}
