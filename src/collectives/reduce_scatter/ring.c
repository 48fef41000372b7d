/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter around a ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations", 2009, the first half; segmented.
 *
 *   block of position i:   i + 1 --> i + 2 --> ... --> i - 1 --> i     n - 1 hops
 *                          each adds its own as it passes
 *
 * What passes is in scratch, of two blocks' size: a hop comes in while the one before goes out.
 * The last hop goes to OUT. Blocks may differ in size.
 * Steps: n - 1 hops in sequence. Bytes sent by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

struct ring {
    const struct disti_shape *shape;
    struct disti_builder *b;
    uint16_t send, recv;
};

/* Chunk s of the block that this rank sends on in hop `hop`; in hop + 1 it is the one that came. */
static uint32_t ring_chunk(const struct ring *r, int hop, uint32_t s)
{
    const struct disti_topology *topology = r->shape->topology;
    int ranks = r->shape->ranks, position = topology->position[r->shape->rank];
    int owner = topology->order[(position + 2 * ranks - 1 - hop) % ranks];
    return (uint32_t)owner * r->shape->segments + s;
}

static struct disti_chunk_ref ring_slot(const struct ring *r, int hop, uint32_t s)
{
    return disti_scratch((uint32_t)(hop % 2) * r->shape->segments + s);
}

/* The lane has ended its step for the segment in a hop: each hop has one a segment. */
static struct disti_step_ref ring_step_ref(const struct ring *r, uint16_t lane, int hop, uint32_t s)
{
    return (struct disti_step_ref){lane, (uint32_t)hop * r->shape->segments + s + 1};
}

static void ring_hop(const struct ring *r, int hop, uint32_t s)
{
    const struct disti_shape *shape = r->shape;
    int next = disti_ring_next(shape->topology, shape->rank);
    int previous = disti_ring_previous(shape->topology, shape->rank);
    uint32_t out = ring_chunk(r, hop, s), in = ring_chunk(r, hop + 1, s);
    bool last = hop == shape->ranks - 2;
    struct disti_chunk_ref from = hop == 0 ? disti_in(out) : ring_slot(r, hop - 1, s);
    struct disti_chunk_ref to = last ? disti_build_out(r->b, in) : ring_slot(r, hop, s);
    struct disti_step_ref has = hop == 0 ? DISTI_NOW : ring_step_ref(r, r->recv, hop - 1, s);
    /* what was in the slot two hops ago left in the hop before */
    struct disti_step_ref gone =
        hop < 2 || last ? DISTI_NOW : ring_step_ref(r, r->send, hop - 1, s);
    disti_build_send(r->b, .lane = r->send, .after = has, .peer = next, .src = from, .data = out);
    disti_build_recv_reduce(r->b, .lane = r->recv, .after = gone, .peer = previous, .dst = to,
                            .src = disti_in(in), .data = in, .finish = last);
}

void disti_reduce_scatter_ring(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, shape->segments);
    disti_build_scratch(b, 2 * shape->segments);
    struct ring r = {shape, b, disti_build_lane(b, 0), disti_build_lane(b, 0)};
    for (int hop = 0; hop < shape->ranks - 1; hop++)
        for (uint32_t s = 0; s < shape->segments; s++)
            ring_hop(&r, hop, s);
}
