/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce by recursive halving, then doubling: Rabenseifner's algorithm; Thakur, Rabenseifner,
 * Gropp, "Optimization of collective communication operations in MPICH", 2005.
 *
 *   rank 0    |########|  --upper half-->  |####....|  --> |##......|    halving: give one half,
 *   rank 1    |########|  <--lower half--  |....####|  --> |....##..|    reduce the other
 *
 *   and back: each gives all that it has complete and gets as much                     doubling
 *
 * Ranks are virtual ones (fold.h). Round j pairs those that differ in bit j, so that the longest
 * messages are those between neighbours. The half that is given and the half that is reduced are
 * apart, so nothing needs scratch. Surplus ranks are folded in first and get the result at the end
 * (fold.h). Steps: 2 log2 n (+ 2). Bytes sent by a rank: 2 (n - 1) / n of the vector (+ 1).
 */
#include "collectives/algorithms.h"
#include "collectives/common/fold.h"
#include "topology/topology.h"

struct halving {
    struct disti_builder *b;
    const int *order;
    struct disti_fold fold;
    uint16_t send, recv;
    uint32_t first, chunks;    /* the part of the vector that is still mine */
    struct disti_step_ref has; /* it is up to date */
};

static int halving_peer(const struct halving *h, int round)
{
    return h->order[disti_fold_position(&h->fold, h->fold.virtual_rank ^ (1 << round))];
}

/* Gives one half of what is mine, reduces the other. */
static void halving_round(struct halving *h, int round)
{
    uint32_t half = h->chunks / 2;
    bool upper = h->fold.virtual_rank >> round & 1;
    uint32_t keep = h->first + (upper ? half : 0), give = h->first + (upper ? 0 : half);
    int peer = halving_peer(h, round);
    struct disti_chunk_ref from = disti_build_value(h->b, give),
                           mine = disti_build_value(h->b, keep);
    disti_build_send(h->b, .lane = h->send, .after = h->has, .peer = peer, .src = from,
                     .data = give, .chunks = half);
    h->has = disti_build_recv_reduce(h->b, .lane = h->recv, .peer = peer, .dst = disti_out(keep),
                                     .src = mine, .data = keep, .chunks = half,
                                     .finish = round == h->fold.rounds - 1);
    h->first = keep;
    h->chunks = half;
}

/* Gives what is mine, gets the other half of what it was cut from. */
static void doubling_round(struct halving *h, int round)
{
    bool upper = h->fold.virtual_rank >> round & 1;
    uint32_t other = upper ? h->first - h->chunks : h->first + h->chunks;
    int peer = halving_peer(h, round);
    disti_build_send(h->b, .lane = h->send, .after = h->has, .peer = peer,
                     .src = disti_out(h->first), .data = h->first, .chunks = h->chunks);
    h->has = disti_build_recv(h->b, .lane = h->recv, .peer = peer, .dst = disti_out(other),
                              .data = other, .chunks = h->chunks);
    h->first = upper ? other : h->first;
    h->chunks *= 2;
}

static void halving_surplus(struct disti_builder *b, int peer, uint32_t chunks)
{
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_send(b, .lane = lane, .peer = peer, .src = disti_in(0), .chunks = chunks);
    disti_build_recv(b, .lane = lane, .peer = peer, .dst = disti_out(0), .chunks = chunks);
}

void disti_all_reduce_halving_doubling(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_fold fold = disti_fold(shape->ranks, shape->topology->position[shape->rank]);
    const int *order = shape->topology->order;
    uint32_t chunks = UINT32_C(1) << fold.rounds;
    disti_build_chunks(b, chunks);
    if (fold.virtual_rank < 0) {
        halving_surplus(b, order[fold.partner], chunks);
        return;
    }
    struct halving h = {.b = b,
                        .order = order,
                        .fold = fold,
                        .send = disti_build_lane(b, 0),
                        .recv = disti_build_lane(b, 0),
                        .chunks = chunks,
                        .has = DISTI_NOW};
    if (fold.partner >= 0)
        h.has = disti_build_recv_reduce(b, .lane = h.recv, .peer = order[fold.partner],
                                        .dst = disti_out(0), .src = disti_in(0), .chunks = chunks);
    for (int round = 0; round < fold.rounds; round++)
        halving_round(&h, round);
    for (int round = fold.rounds - 1; round >= 0; round--)
        doubling_round(&h, round);
    if (fold.partner >= 0)
        disti_build_send(b, .lane = h.send, .after = h.has, .peer = order[fold.partner],
                         .src = disti_out(0), .chunks = chunks);
}
