/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce by recursive doubling: Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", 2005.
 *
 *   positions   0   1   2   3   4   5   6   7
 *   round 0     <--->   <--->   <--->   <--->     exchange all of it, both reduce
 *   round 1     <------->       <------->
 *                   <------->       <------->
 *   round 2     <--------------->  ...
 *
 * With 2^k + r ranks the odd ones of the first 2 r positions give their vector to the one before
 * first, and get the result from it at the end. Near positions meet first. Both of a pair compute
 * the same sum (addition commutes), so all ranks have the same bits.
 * Steps: log2 n (+ 2). Bytes sent by a rank: log2 n vectors.
 */
#include "collectives/algorithms.h"
#include "collectives/common/fold.h"
#include "topology/topology.h"

/*
 * A rank may not reduce into what it is just sending. So the value moves: each reception reduces
 * it into memory whose sending has ended, and the last one into OUT:
 *
 *   IN -> slot 0 -> OUT -> slot 0 -> OUT
 */
struct doubling {
    const struct disti_topology *topology;
    struct disti_builder *b;
    uint16_t send, recv;
    struct disti_chunk_ref value;    /* where the sum so far is */
    struct disti_step_ref has, sent; /* value is there; the value before has been sent */
    int receptions, done;
};

/* In place, IN is OUT: the first sum must lie elsewhere while IN is being sent. */
static struct disti_chunk_ref doubling_target(const struct doubling *d, bool sending)
{
    bool out = (d->receptions - 1 - d->done) % 2 == 0;
    if (out && sending && d->done == 0)
        return disti_scratch(1);
    return out ? disti_out(0) : disti_scratch(0);
}

static void doubling_take(struct doubling *d, int peer, bool sending)
{
    struct disti_chunk_ref target = doubling_target(d, sending);
    bool last = d->done == d->receptions - 1;
    d->has = disti_build_recv_reduce(d->b, .lane = d->recv, .after = d->sent, .peer = peer,
                                     .dst = target, .src = d->value, .finish = last);
    d->value = target;
    d->done++;
}

static void doubling_exchange(struct doubling *d, int peer)
{
    struct disti_step_ref sent =
        disti_build_send(d->b, .lane = d->send, .after = d->has, .peer = peer, .src = d->value);
    doubling_take(d, peer, true);
    d->sent = sent;
}

/* A surplus rank only sends its vector, and receives the result. */
static void doubling_surplus(struct disti_builder *b, int peer)
{
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_send(b, .lane = lane, .peer = peer, .src = disti_in(0));
    disti_build_recv(b, .lane = lane, .peer = peer, .dst = disti_out(0));
}

/* Moves the sum to OUT if it is elsewhere. Two ranks: the only reception was beside the only
 * sending; now that it has ended, OUT is free. */
static void doubling_copy_out(struct doubling *d)
{
    if (d->value.space == DISTI_OUT)
        return;
    d->has = disti_build_copy(d->b, .lane = d->recv, .after = d->sent, .dst = disti_out(0),
                              .src = d->value);
    d->value = disti_out(0);
}

void disti_all_reduce_recursive_doubling(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_fold fold = disti_fold(shape->ranks, shape->topology->position[shape->rank]);
    const int *order = shape->topology->order;
    disti_build_chunks(b, 1);
    disti_build_scratch(b, 2);
    if (fold.virtual_rank < 0) {
        doubling_surplus(b, order[fold.partner]);
        return;
    }
    bool folds = fold.partner >= 0;
    struct doubling d = {.topology = shape->topology,
                         .b = b,
                         .send = disti_build_lane(b, 0),
                         .recv = disti_build_lane(b, 0),
                         .value = disti_in(0),
                         .has = DISTI_NOW,
                         .sent = DISTI_NOW,
                         .receptions = fold.rounds + folds};
    if (folds)
        doubling_take(&d, order[fold.partner], false);
    for (int round = 0; round < fold.rounds; round++)
        doubling_exchange(&d, order[disti_fold_position(&fold, fold.virtual_rank ^ (1 << round))]);
    doubling_copy_out(&d);
    if (folds)
        disti_build_send(b, .lane = d.send, .after = d.has, .peer = order[fold.partner],
                         .src = disti_out(0));
}
