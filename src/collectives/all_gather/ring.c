/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather around a ring: Thakur, Rabenseifner, Gropp, 2005.
 *
 *   block i:   i --> i + 1 --> i + 2 --> ... --> i - 1     (positions), n - 1 hops
 *
 * Each block is cut into segments that follow each other. Steps: n - 1 hops in sequence. Bytes
 * sent by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

struct ring {
    const struct disti_shape *shape;
    struct disti_builder *b;
    uint16_t send, recv;
};

/* Chunk of a segment of a position's block; positions count backwards too. */
static uint32_t ring_chunk(const struct ring *r, int position, uint32_t segment)
{
    int n = r->shape->ranks;
    uint32_t owner = (uint32_t)r->shape->topology->order[(position + n) % n];
    return owner * r->shape->segments + segment;
}

/* To the next rank: the block, each segment once it has come; the own one from IN. */
static void ring_send_block(const struct ring *r, int position, bool own)
{
    for (uint32_t s = 0; s < r->shape->segments; s++) {
        uint32_t chunk = ring_chunk(r, position, s);
        disti_build_send(r->b, .lane = r->send,
                         .after = own ? DISTI_NOW : disti_build_written(r->b, chunk),
                         .peer = disti_ring_next(r->shape->topology, r->shape->rank),
                         .src = own ? disti_in(s) : disti_out(chunk), .data = chunk);
    }
}

/* From the rank before. */
static void ring_recv_block(const struct ring *r, int position)
{
    for (uint32_t s = 0; s < r->shape->segments; s++) {
        uint32_t chunk = ring_chunk(r, position, s);
        disti_build_recv(r->b, .lane = r->recv,
                         .peer = disti_ring_previous(r->shape->topology, r->shape->rank),
                         .dst = disti_out(chunk), .data = chunk);
    }
}

void disti_all_gather_ring(const struct disti_shape *shape, struct disti_builder *b)
{
    int i = shape->topology->position[shape->rank];
    uint32_t own = (uint32_t)shape->rank * shape->segments;
    disti_build_chunks(b, shape->segments);
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(0),
                     .data = own, .chunks = shape->segments);
    struct ring r = {.shape = shape, .b = b};
    r.send = disti_build_lane(b, 0);
    r.recv = disti_build_lane(b, 0);
    for (int hop = 0; hop < shape->ranks - 1; hop++) {
        ring_send_block(&r, i - hop, hop == 0);
        ring_recv_block(&r, i - hop - 1);
    }
}
