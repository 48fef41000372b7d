/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce of everybody with everybody (all_reduce/direct.c), which adds in the order of
 * reproducible results (plan.h).
 *
 *   the vector is cut into n slices, slice i is rank i's own:
 *
 *     all ranks --slice i of IN--> rank i     which goes through the tree of additions by itself
 *     rank i --slice i of OUT--> all ranks    a segment as soon as it is complete
 *
 * Half of what comes must wait in scratch for what it is to be added to: log2 n segments at most.
 * Steps: 2 in sequence. Messages of a rank: 2 (n - 1) a segment. Bytes: as the ring.
 */
#include "collectives/algorithms.h"
#include "collectives/common/phases.h"

enum { CHANNEL_REDUCE, CHANNEL_GATHER };

void disti_all_reduce_direct_ordered(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_team team = {.size = shape->ranks,
                              .index = shape->rank,
                              .owners = shape->ranks,
                              .turns = 1,
                              .segments = shape->segments};
    disti_team_give(b, &team, 0, CHANNEL_REDUCE);
    uint16_t lane = disti_build_lane(b, CHANNEL_REDUCE);
    for (uint32_t s = 0; s < shape->segments; s++)
        disti_ordered_sum(b, lane, shape->ranks, shape->rank,
                          (uint32_t)shape->rank * shape->segments + s);
    disti_team_gather(b, &team, 0, CHANNEL_GATHER);
}
