/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather by neighbour exchange: Chen, Zhang, Zhang, Yuan, "Performance evaluation of allgather
 * algorithms on terascale Linux cluster with fast Ethernet", 2005.
 *
 *   positions   0     1     2     3     4     5
 *   round 0     <----->     <----->     <----->     own blocks: each has its own pair now
 *   round 1     -->   <----->     <----->   <--     pairs: 0 gets 4 5, 1 gets 2 3, 2 gets 0 1
 *   round 2     <----->     <----->     <----->     the pair that came last: 0 gets 2 3
 *
 * Half of the ring's rounds, each with a neighbour in both directions at once. A pair is one
 * message if its blocks lie together, else two. An odd number of ranks cannot be paired: the ring
 * then (all_gather/ring.c).
 * Steps: n / 2 in sequence. Bytes sent by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

struct exchange {
    const struct disti_shape *shape;
    struct disti_builder *b;
    uint16_t send, recv;
    struct disti_step_ref has; /* what came last is here */
};

/* The block of a position; positions count round the ring, backwards too. */
static uint32_t exchange_block(const struct exchange *e, int position)
{
    int n = e->shape->ranks;
    return (uint32_t)e->shape->topology->order[(position % n + n) % n];
}

/* How many of the `count` blocks from a position on lie together: the first, or both. */
static int exchange_run(const struct exchange *e, int position, int count)
{
    bool both = exchange_block(e, position + 1) == exchange_block(e, position) + 1;
    return both ? count : 1;
}

static void exchange_send(const struct exchange *e, int peer, int position, int count)
{
    for (int i = 0, run; i < count; i += run) {
        uint32_t block = exchange_block(e, position + i);
        run = exchange_run(e, position + i, count - i);
        disti_build_send(e->b, .lane = e->send, .after = e->has, .peer = peer,
                         .src = disti_out(block), .data = block, .chunks = (uint32_t)run);
    }
}

static void exchange_recv(struct exchange *e, int peer, int position, int count)
{
    for (int i = 0, run; i < count; i += run) {
        uint32_t block = exchange_block(e, position + i);
        run = exchange_run(e, position + i, count - i);
        e->has = disti_build_recv(e->b, .lane = e->recv, .peer = peer, .dst = disti_out(block),
                                  .data = block, .chunks = (uint32_t)run);
    }
}

/* Is a position's neighbour in a round the one on its left? */
static bool exchange_left(int position, int round)
{
    return (position % 2 == 0) == (round % 2);
}

/* The pair that a position gets in a round: from each side in turn, always one further away. */
static int exchange_pair(int position, int round)
{
    int own = position - position % 2, away = (round + 1) / 2 * 2;
    return exchange_left(position, round) ? own - away : own + away;
}

void disti_all_gather_neighbour_exchange(const struct disti_shape *shape, struct disti_builder *b)
{
    if (shape->ranks % 2) {
        disti_all_gather_ring(shape, b);
        return;
    }
    int p = shape->topology->position[shape->rank];
    uint32_t own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    struct exchange e = {.shape = shape, .b = b};
    e.send = disti_build_lane(b, 0);
    e.recv = disti_build_lane(b, 0);
    e.has =
        disti_build_copy(b, .lane = e.recv, .dst = disti_out(own), .src = disti_in(0), .data = own);
    for (int round = 0; round < shape->ranks / 2; round++) {
        int neighbour = exchange_left(p, round) ? p - 1 : p + 1;
        int peer = (int)exchange_block(&e, neighbour);
        exchange_send(&e, peer, round ? exchange_pair(p, round - 1) : p, round ? 2 : 1);
        exchange_recv(&e, peer, round ? exchange_pair(p, round) : neighbour, round ? 2 : 1);
    }
}
