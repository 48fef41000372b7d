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
        disti_build_recv(b, disti_build_lane(b, 0), DISTI_NOW, shape->root, disti_out(0), own, 1);
        return;
    }
    for (int i = 1; i < shape->ranks; i++) {
        uint32_t to = (uint32_t)disti_chain_rank(shape->topology, shape->root, i);
        disti_build_send(b, disti_build_lane(b, 0), DISTI_NOW, (int)to, disti_in(to), to, 1);
    }
    disti_build_copy(b, disti_build_lane(b, 0), DISTI_NOW, disti_out(0), disti_in(own), own, 1);
}
