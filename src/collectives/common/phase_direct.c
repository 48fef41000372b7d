/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduce-scatter and all-gather of everybody with everybody. */
#include "collectives/common/phases.h"

/* The chunk that is the `number`-th to be dealt with in the owner's slice. */
static uint32_t crew_chunk(const struct disti_crew *crew, int owner, uint32_t start,
                           uint32_t number)
{
    uint32_t turn = (start + crew->turns - number / crew->segments) % crew->turns;
    return ((uint32_t)owner * crew->turns + turn) * crew->segments + number % crew->segments;
}

int disti_crew_rank(const struct disti_crew *crew, int index)
{
    return crew->ranks ? crew->ranks[index] : index;
}

/* The member `distance` places after, or before, this one: not all start with the same. */
int disti_crew_after(const struct disti_crew *crew, int distance)
{
    return disti_crew_rank(crew, (crew->index + distance) % crew->size);
}

static int crew_before(const struct disti_crew *crew, int distance)
{
    return (crew->index + crew->size - distance) % crew->size;
}

/* A lane a peer, since each owner takes its slice when it is ready to. */
void disti_crew_give(struct disti_builder *b, const struct disti_crew *crew, uint32_t start,
                     uint16_t channel)
{
    for (int i = 1; i < crew->size; i++) {
        int owner = crew_before(crew, i);
        if (owner >= crew->owners)
            continue;
        uint16_t lane = disti_build_lane(b, channel);
        for (uint32_t n = 0; n < crew->turns * crew->segments; n++) {
            uint32_t chunk = crew_chunk(crew, owner, start, n);
            disti_build_send(b, .lane = lane, .peer = disti_crew_rank(crew, owner),
                             .src = disti_build_in(b, chunk), .data = chunk);
        }
    }
}

void disti_crew_reduce(struct disti_builder *b, const struct disti_crew *crew, uint32_t start,
                       uint16_t channel, bool finish)
{
    if (crew->size < 2)
        return;
    disti_crew_give(b, crew, start, channel);
    if (crew->index >= crew->owners)
        return;
    uint16_t lane = disti_build_lane(b, channel);
    for (uint32_t n = 0; n < crew->turns * crew->segments; n++) {
        uint32_t chunk = crew_chunk(crew, crew->index, start, n);
        for (int i = 1; i < crew->size; i++)
            disti_build_recv_reduce(b, .lane = lane, .peer = disti_crew_after(crew, i),
                                    .dst = disti_build_out(b, chunk),
                                    .src = disti_build_value(b, chunk), .data = chunk,
                                    .finish = finish && i == crew->size - 1);
    }
}

void disti_crew_gather(struct disti_builder *b, const struct disti_crew *crew, uint32_t start,
                       uint16_t channel)
{
    uint32_t chunks = crew->turns * crew->segments;
    for (int i = 1; i < crew->size && crew->index < crew->owners; i++) {
        uint16_t lane = disti_build_lane(b, channel);
        for (uint32_t n = 0; n < chunks; n++) {
            uint32_t chunk = crew_chunk(crew, crew->index, start, n);
            disti_build_send(b, .lane = lane, .after = disti_build_written(b, chunk),
                             .peer = disti_crew_after(crew, i), .src = disti_out(chunk),
                             .data = chunk);
        }
    }
    for (int i = 1; i < crew->size; i++) {
        int owner = crew_before(crew, i);
        if (owner >= crew->owners)
            continue;
        uint16_t lane = disti_build_lane(b, channel);
        for (uint32_t n = 0; n < chunks; n++) {
            uint32_t chunk = crew_chunk(crew, owner, start, n);
            disti_build_recv(b, .lane = lane, .peer = disti_crew_rank(crew, owner),
                             .dst = disti_out(chunk), .data = chunk);
        }
    }
}
