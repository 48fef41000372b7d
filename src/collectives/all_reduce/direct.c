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

/* The chunk that is the `number`-th to be dealt with in the owner's slice. */
static uint32_t team_chunk(const struct disti_team *team, int owner, uint32_t start,
                           uint32_t number)
{
    uint32_t turn = (start + team->turns - number / team->segments) % team->turns;
    return ((uint32_t)owner * team->turns + turn) * team->segments + number % team->segments;
}

int disti_team_rank(const struct disti_team *team, int index)
{
    return team->ranks ? team->ranks[index] : index;
}

/* The member `distance` members after, or before, this one: not all start with the same. */
int disti_team_after(const struct disti_team *team, int distance)
{
    return disti_team_rank(team, (team->index + distance) % team->size);
}

static int team_before(const struct disti_team *team, int distance)
{
    return (team->index + team->size - distance) % team->size;
}

/* ---- all ranks --slice i of IN--> rank i ---- */

/* A lane a peer, since each owner takes its slice when it is ready to. */
void disti_team_give(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                     uint16_t channel)
{
    for (int i = 1; i < team->size; i++) {
        int owner = team_before(team, i);
        if (owner >= team->owners)
            continue;
        uint16_t lane = disti_build_lane(b, channel);
        for (uint32_t n = 0; n < team->turns * team->segments; n++) {
            uint32_t chunk = team_chunk(team, owner, start, n);
            disti_build_send(b, .lane = lane, .peer = disti_team_rank(team, owner),
                             .src = disti_build_in(b, chunk), .data = chunk);
        }
    }
}

void disti_team_reduce(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                       uint16_t channel, bool finish)
{
    if (team->size < 2)
        return;
    disti_team_give(b, team, start, channel);
    if (team->index >= team->owners)
        return;
    uint16_t lane = disti_build_lane(b, channel);
    for (uint32_t n = 0; n < team->turns * team->segments; n++) {
        uint32_t chunk = team_chunk(team, team->index, start, n);
        for (int i = 1; i < team->size; i++)
            disti_build_recv_reduce(b, .lane = lane, .peer = disti_team_after(team, i),
                                    .dst = disti_build_out(b, chunk),
                                    .src = disti_build_value(b, chunk), .data = chunk,
                                    .finish = finish && i == team->size - 1);
    }
}

/* ---- rank i --slice i of OUT--> all ranks ---- */

void disti_team_gather(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                       uint16_t channel)
{
    uint32_t chunks = team->turns * team->segments;
    for (int i = 1; i < team->size && team->index < team->owners; i++) {
        uint16_t lane = disti_build_lane(b, channel);
        for (uint32_t n = 0; n < chunks; n++) {
            uint32_t chunk = team_chunk(team, team->index, start, n);
            disti_build_send(b, .lane = lane, .after = disti_build_written(b, chunk),
                             .peer = disti_team_after(team, i), .src = disti_out(chunk),
                             .data = chunk);
        }
    }
    for (int i = 1; i < team->size; i++) {
        int owner = team_before(team, i);
        if (owner >= team->owners)
            continue;
        uint16_t lane = disti_build_lane(b, channel);
        for (uint32_t n = 0; n < chunks; n++) {
            uint32_t chunk = team_chunk(team, owner, start, n);
            disti_build_recv(b, .lane = lane, .peer = disti_team_rank(team, owner),
                             .dst = disti_out(chunk), .data = chunk);
        }
    }
}

/* ---- the algorithm ---- */

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
