/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce as a reduce-scatter and a gather: Rabenseifner's idea (Thakur, Rabenseifner, Gropp, 2005),
 * for memory that the ranks can read of each other.
 *
 *   the vector is cut into n slices, slice i is rank i's to add up:
 *
 *     all ranks --slice i of IN--> rank i     into scratch (the root: into OUT)
 *     rank i --slice i--> root                a segment as soon as it is complete
 *
 * So the additions are everybody's work, not the root's alone.
 * Steps: 2 in sequence. Bytes sent by a rank: one vector.
 */
#include "collectives/algorithms.h"
#include "collectives/common/phases.h"
#include "topology/topology.h"

enum { CHANNEL_REDUCE, CHANNEL_GATHER };

/* This rank's slice, from all ranks, and on to the root. */
static void slice_reduce(const struct disti_shape *shape, struct disti_builder *b,
                         const struct disti_team *team)
{
    bool root = shape->rank == shape->root;
    uint32_t first = (uint32_t)team->index * team->segments;
    uint16_t lane = disti_build_lane(b, CHANNEL_REDUCE);
    uint16_t send = root ? lane : disti_build_lane(b, CHANNEL_GATHER);
    disti_build_scratch(b, root ? 0 : team->segments);
    for (uint32_t s = 0; s < team->segments; s++) {
        uint32_t chunk = first + s;
        struct disti_chunk_ref value = disti_in(chunk),
                               sum = root ? disti_out(chunk) : disti_scratch(s);
        struct disti_step_ref has = DISTI_NOW;
        for (int i = 1; i < team->size; i++) {
            has = disti_build_recv_reduce(b, .lane = lane, .peer = disti_team_after(team, i),
                                          .dst = sum, .src = value, .data = chunk,
                                          .finish = i == team->size - 1);
            value = sum;
        }
        if (!root)
            disti_build_send(b, .lane = send, .after = has, .peer = shape->root, .src = sum,
                             .data = chunk);
    }
}

void disti_reduce_scatter_gather(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_team team = {.ranks = shape->topology->order,
                              .size = shape->ranks,
                              .index = shape->topology->position[shape->rank],
                              .owners = shape->ranks,
                              .turns = 1,
                              .segments = shape->segments};
    disti_team_give(b, &team, 0, CHANNEL_REDUCE);
    slice_reduce(shape, b, &team);
    for (int i = 0; i < team.size && shape->rank == shape->root; i++) {
        uint16_t lane = disti_build_lane(b, CHANNEL_GATHER);
        uint32_t first = (uint32_t)i * team.segments;
        for (uint32_t c = first; c < first + team.segments && i != team.index; c++)
            disti_build_recv(b, .lane = lane, .peer = disti_team_rank(&team, i),
                             .dst = disti_out(c), .data = c);
    }
}
