/* SPDX-License-Identifier: BSD-3-Clause */
/* Reduce-scatter and all-gather around a ring, many segments on the way at once. */
#include "collectives/common/phases.h"

/* Chunk of a segment of a slice; slices count round the ring, backwards too. */
static uint32_t ring_chunk(const struct disti_ring *ring, int slice, uint32_t segment)
{
    int turned = (slice % ring->size + ring->size) % ring->size;
    return ring->first + (uint32_t)turned * ring->segments + segment;
}

/* Hop `hop` of one channel: my part of slice index - hop goes on, that of the slice before comes.
 */
static void ring_reduce_hop(struct disti_builder *b, const struct disti_ring *ring, int hop,
                            uint16_t channel, uint16_t send, uint16_t recv)
{
    bool last = hop == ring->size - 2;
    for (uint32_t s = channel; s < ring->segments; s += ring->channels) {
        uint32_t out = ring_chunk(ring, ring->index - hop, s);
        uint32_t in = ring_chunk(ring, ring->index - hop - 1, s);
        disti_build_send(b, .lane = send, .after = disti_build_written(b, out), .peer = ring->next,
                         .src = disti_build_value(b, out), .data = out);
        disti_build_recv_reduce(b, .lane = recv, .after = disti_build_written(b, in),
                                .peer = ring->previous, .dst = disti_out(in),
                                .src = disti_build_value(b, in), .data = in, .finish = last);
    }
}

static void ring_gather_hop(struct disti_builder *b, const struct disti_ring *ring, int hop,
                            uint16_t channel, uint16_t send, uint16_t recv)
{
    for (uint32_t s = channel; s < ring->segments; s += ring->channels) {
        uint32_t out = ring_chunk(ring, ring->index + 1 - hop, s);
        uint32_t in = ring_chunk(ring, ring->index - hop, s);
        disti_build_send(b, .lane = send, .after = disti_build_written(b, out), .peer = ring->next,
                         .src = disti_out(out), .data = out);
        disti_build_recv(b, .lane = recv, .peer = ring->previous, .dst = disti_out(in), .data = in);
    }
}

void disti_ring_all_reduce(struct disti_builder *b, const struct disti_ring *ring)
{
    if (ring->size < 2)
        return;
    for (uint16_t channel = 0; channel < ring->channels && channel < ring->segments; channel++) {
        uint16_t send = disti_build_lane(b, ring->channel + channel);
        uint16_t recv = disti_build_lane(b, ring->channel + channel);
        for (int hop = 0; hop < ring->size - 1; hop++)
            ring_reduce_hop(b, ring, hop, channel, send, recv);
        for (int hop = 0; hop < ring->size - 1; hop++)
            ring_gather_hop(b, ring, hop, channel, send, recv);
    }
}
