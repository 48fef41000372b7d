/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce around a ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations", 2009; segmented.
 *
 *   the vector is cut into n slices; slice i starts at position i and collects on its way:
 *
 *     i --> i + 1 --> i + 2 --> ... --> i - 1     n - 1 hops: each adds its own; now complete
 *     i - 1 --> i --> i + 1 --> ... --> i - 2     n - 1 hops: now all have it
 *
 * Each slice is cut into segments that follow each other, over up to 4 channels. The first hop
 * sends IN and each reduction reads IN, so that nothing is copied out of place.
 * Steps: 2 (n - 1) hops in sequence. Bytes sent by a rank: 2 (n - 1) / n of the vector.
 */
#include "collectives/algorithms.h"
#include "collectives/common/phases.h"
#include "topology/topology.h"

#define RING_CHANNELS 4

/* The ring on one of its channels, which has each so many-th segment of every slice. */
struct channel {
    struct disti_builder *b;
    const struct disti_ring *ring;
    uint16_t number, send, recv; /* send, recv: lanes */
};

/* Chunk of a segment of a slice; slices count round the ring, backwards too. */
static uint32_t ring_chunk(const struct disti_ring *ring, int slice, uint32_t segment)
{
    int turned = (slice % ring->size + ring->size) % ring->size;
    return ring->first + (uint32_t)turned * ring->segments + segment;
}

/* To the next rank: my value of the slice, as far as it has come. */
static void ring_send_slice(const struct channel *c, int slice)
{
    for (uint32_t s = c->number; s < c->ring->segments; s += c->ring->channels) {
        uint32_t chunk = ring_chunk(c->ring, slice, s);
        disti_build_send(c->b, .lane = c->send, .after = disti_build_written(c->b, chunk),
                         .peer = c->ring->next, .src = disti_build_value(c->b, chunk),
                         .data = chunk);
    }
}

/* From the rank before: its sum of the slice, to which mine is added; last: all ranks' is in. */
static void ring_reduce_slice(const struct channel *c, int slice, bool last)
{
    for (uint32_t s = c->number; s < c->ring->segments; s += c->ring->channels) {
        uint32_t chunk = ring_chunk(c->ring, slice, s);
        disti_build_recv_reduce(c->b, .lane = c->recv, .after = disti_build_written(c->b, chunk),
                                .peer = c->ring->previous, .dst = disti_out(chunk),
                                .src = disti_build_value(c->b, chunk), .data = chunk,
                                .finish = last);
    }
}

/* From the rank before: the slice, complete. */
static void ring_recv_slice(const struct channel *c, int slice)
{
    for (uint32_t s = c->number; s < c->ring->segments; s += c->ring->channels) {
        uint32_t chunk = ring_chunk(c->ring, slice, s);
        disti_build_recv(c->b, .lane = c->recv, .peer = c->ring->previous, .dst = disti_out(chunk),
                         .data = chunk);
    }
}

/* Twice round the ring. */
static void ring_run(const struct channel *c)
{
    int i = c->ring->index, hops = c->ring->size - 1;
    for (int hop = 0; hop < hops; hop++) { /* reduce-scatter */
        ring_send_slice(c, i - hop);
        ring_reduce_slice(c, i - hop - 1, hop == hops - 1);
    }
    for (int hop = 0; hop < hops; hop++) { /* all-gather */
        ring_send_slice(c, i + 1 - hop);
        ring_recv_slice(c, i - hop);
    }
}

void disti_ring_all_reduce(struct disti_builder *b, const struct disti_ring *ring)
{
    for (uint16_t k = 0; ring->size > 1 && k < ring->channels && k < ring->segments; k++) {
        uint16_t send = disti_build_lane(b, ring->channel + k);
        uint16_t recv = disti_build_lane(b, ring->channel + k);
        ring_run(&(struct channel){b, ring, k, send, recv});
    }
}

void disti_all_reduce_ring(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_ring ring = {.size = shape->ranks,
                              .index = shape->topology->position[shape->rank],
                              .next = disti_ring_next(shape->topology, shape->rank),
                              .previous = disti_ring_previous(shape->topology, shape->rank),
                              .segments = shape->segments,
                              .channels = RING_CHANNELS};
    disti_ring_all_reduce(b, &ring);
}
