/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce of everybody with everybody, for memory that the ranks can read of each other.
 *
 *   the vector is cut into n slices, slice i is rank i's own:
 *
 *     all ranks --slice i of IN--> rank i     reduces as they come, a segment at a time
 *     rank i --slice i of OUT--> all ranks    a segment as soon as it is complete
 *
 * A segment is reduced from all ranks before the next begins, so that its sum stays in the cache.
 * Rank i starts with rank i + 1, so that no rank is everybody's first. The order of the additions
 * depends only on the ranks.
 * Steps: 2 in sequence. Messages of a rank: 2 (n - 1) a segment. Bytes: as the ring.
 */
#include "collectives/algorithms.h"
#include "collectives/common/phases.h"
#include "topology/topology.h"

void disti_all_reduce_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_team team = {.ranks = shape->topology->order,
                              .size = shape->ranks,
                              .index = shape->topology->position[shape->rank],
                              .owners = shape->ranks,
                              .turns = 1,
                              .segments = shape->segments};
    disti_team_reduce(b, &team, 0, 0, true);
    disti_team_gather(b, &team, 0, 1);
}
