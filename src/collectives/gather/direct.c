/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gather of everybody to the root: each rank sends its block, straight to where it belongs.
 *
 * A lane a peer at the root, so that it waits for no slow one before taking from the rest. Blocks
 * may differ in size. Steps: 1. Messages: n - 1.
 */
#include "collectives/algorithms.h"
#include "collectives/common/chain.h"

void disti_gather_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    if (shape->rank != shape->root) {
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = shape->root, .src = disti_in(0),
                         .data = own);
        return;
    }
    for (int i = 1; i < shape->ranks; i++) {
        uint32_t from = (uint32_t)disti_chain_rank(shape->topology, shape->root, i);
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = (int)from,
                         .dst = disti_out(from), .data = from);
    }
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(0),
                     .data = own);
}
