/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter of everybody with everybody (reduce_scatter/direct.c), which adds in the order of
 * reproducible results (plan.h).
 *
 *   all ranks --block i of IN--> rank i     which goes through the tree of additions by itself
 *
 * Half of what comes must wait in scratch for what it is to be added to: log2 n segments at most.
 * Blocks may differ in size.
 * Steps: 1. Messages of a rank: n - 1 a segment. Bytes sent by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "collectives/common/phases.h"

void disti_reduce_scatter_direct_ordered(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, shape->segments);
    struct disti_team team = {.size = shape->ranks,
                              .index = shape->rank,
                              .owners = shape->ranks,
                              .turns = 1,
                              .segments = shape->segments};
    disti_team_give(b, &team, 0, 0);
    uint16_t lane = disti_build_lane(b, 0);
    for (uint32_t s = 0; s < shape->segments; s++)
        disti_ordered_sum(b, lane, shape->ranks, shape->rank,
                          (uint32_t)shape->rank * shape->segments + s);
}
