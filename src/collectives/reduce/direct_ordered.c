/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce at the root alone (reduce/direct.c), which adds in the order of reproducible results
 * (plan.h).
 *
 *   all ranks --IN--> root        which goes through the tree of additions, segment by segment
 *
 * Half of what comes must wait in scratch for what it is to be added to: log2 n segments at most.
 * Steps: n - 1 additions in sequence. Bytes sent by a rank: one vector.
 */
#include "collectives/algorithms.h"
#include "collectives/common/phases.h"

void disti_reduce_direct_ordered(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, shape->segments);
    uint16_t lane = disti_build_lane(b, 0);
    for (uint32_t c = 0; c < shape->segments; c++) {
        if (shape->rank == shape->root)
            disti_ordered_sum(b, lane, shape->ranks, shape->rank, c);
        else
            disti_build_send(b, .lane = lane, .peer = shape->root, .src = disti_in(c), .data = c);
    }
}
