/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter of everybody with everybody, for memory that the ranks can read of each other.
 *
 *   all ranks --block i of IN--> rank i     reduces as they come, a segment at a time
 *
 * The first half of the direct all-reduce: see there. Blocks may differ in size.
 * Steps: 1. Messages of a rank: n - 1 a segment. Bytes sent by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "collectives/common/phases.h"

void disti_reduce_scatter_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, shape->segments);
    struct disti_team team = {.size = shape->ranks,
                              .index = shape->rank,
                              .owners = shape->ranks,
                              .turns = 1,
                              .segments = shape->segments};
    disti_team_reduce(b, &team, 0, 0, true);
}
