/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Scatter from the root to everybody: it sends each rank its block, straight from where it lies.
 *
 * A lane a peer at the root, so that no slow one holds up the rest. Blocks may differ in size.
 * Steps: 1. Messages: n - 1.
 */
#include "collectives/algorithms.h"
#include "collectives/common/chain.h"

void disti_scatter_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    if (shape->rank != shape->root) {
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = shape->root,
                         .dst = disti_out(0), .data = own);
        return;
    }
    for (int i = 1; i < shape->ranks; i++) {
        uint32_t to = (uint32_t)disti_chain_rank(shape->topology, shape->root, i);
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = (int)to, .src = disti_in(to),
                         .data = to);
    }
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(0), .src = disti_in(own),
                     .data = own);
}
