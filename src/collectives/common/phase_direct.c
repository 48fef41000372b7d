/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduce-scatter and all-gather of everybody with everybody. */
#include "collectives/common/phases.h"

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
