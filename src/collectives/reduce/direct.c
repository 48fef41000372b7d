/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce at the root alone, which takes everybody's vector.
 *
 *   all ranks --IN--> root        reduced as they come, a segment from all ranks before the next
 *
 * A segment's sum stays in the cache, and nobody needs scratch.
 * Steps: n - 1 additions in sequence. Bytes sent by a rank: one vector.
 */
#include "collectives/algorithms.h"
#include "collectives/common/chain.h"

void disti_reduce_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_chunks(b, shape->segments);
    for (uint32_t c = 0; c < shape->segments; c++) {
        if (shape->rank != shape->root)
            disti_build_send(b, .lane = lane, .peer = shape->root, .src = disti_in(c), .data = c);
        for (int i = 1; i < shape->ranks && shape->rank == shape->root; i++)
            disti_build_recv_reduce(b, .lane = lane,
                                    .peer = disti_chain_rank(shape->topology, shape->root, i),
                                    .dst = disti_out(c), .src = disti_build_value(b, c), .data = c,
                                    .finish = i == shape->ranks - 1);
    }
}
