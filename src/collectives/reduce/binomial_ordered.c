/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce over a binomial tree whose shape is the order of reproducible results (plan.h), whoever is
 * its root; pipelined.
 *
 *   virtual    0   1   2   3   4   5   6   7      root 5: who has the bits of 5 so far
 *   round 0      ->      ->      ->      ->       goes on
 *   round 1        --------->        <-------
 *   round 2                ---------->
 *
 * In round k the two whose virtual ranks differ in bit k, and who have gone on so far, come
 * together: the one with the root's bit receives. Two ranks that are folded together (fold.h)
 * begin: the even one receives, or the root. What passes is in a few slots of scratch. Steps: log2
 * n (+ 1) + segments in sequence. Bytes sent by a rank: one vector.
 */
#include "collectives/algorithms.h"
#include "collectives/common/fold.h"
#include "collectives/common/window.h"

struct cube {
    const struct disti_shape *shape;
    struct disti_builder *b;
    struct disti_fold fold;
    int virtual_rank, virtual_root;
};

/* The virtual rank of a rank, or of the two that are folded together. */
static int cube_virtual_rank(int ranks, int rank)
{
    struct disti_fold fold = disti_fold(ranks, rank);
    return fold.virtual_rank < 0 ? rank / 2 : fold.virtual_rank;
}

/* The rank that goes on for a virtual rank. */
static int cube_rank(const struct cube *c, int virtual_rank)
{
    return virtual_rank == c->virtual_root ? c->shape->root
                                           : disti_fold_position(&c->fold, virtual_rank);
}

/* The round in which this virtual rank sends its sum; rounds: never, it is the root's. */
static int cube_rounds(const struct cube *c)
{
    int differ = c->virtual_rank ^ c->virtual_root;
    return differ ? __builtin_ctz((unsigned)differ) : c->fold.rounds;
}

/* The sum of chunk at this rank, and where it goes; the window says when its slot is free. */
static void cube_chunk(const struct cube *c, struct disti_window *window, uint16_t recv,
                       uint16_t send, uint32_t chunk)
{
    bool root = c->shape->rank == c->shape->root;
    int rounds = cube_rounds(c), to = root ? -1 : cube_rank(c, c->virtual_rank ^ (1 << rounds));
    struct disti_chunk_ref value = disti_in(chunk);
    struct disti_chunk_ref sum = root ? disti_out(chunk) : disti_window_slot(window, chunk);
    struct disti_step_ref has = DISTI_NOW, *sent = &window->sent[chunk % DISTI_WINDOW];
    for (int round = -1; round < rounds; round++) {
        int from = round < 0 ? c->fold.partner : cube_rank(c, c->virtual_rank ^ (1 << round));
        if (from < 0)
            continue; /* nobody is folded in here */
        has = disti_build_recv_reduce(c->b, .lane = recv, .after = *sent, .peer = from, .dst = sum,
                                      .src = value, .data = chunk,
                                      .finish = root && round == rounds - 1);
        value = sum;
    }
    if (!root)
        *sent = disti_build_send(c->b, .lane = send, .after = has, .peer = to, .src = value,
                                 .data = chunk);
}

void disti_reduce_binomial_ordered(const struct disti_shape *shape, struct disti_builder *b)
{
    struct cube c = {.shape = shape,
                     .b = b,
                     .fold = disti_fold(shape->ranks, shape->rank),
                     .virtual_rank = cube_virtual_rank(shape->ranks, shape->rank),
                     .virtual_root = cube_virtual_rank(shape->ranks, shape->root)};
    int goes_on = cube_rank(&c, c.virtual_rank);
    disti_build_chunks(b, shape->segments);
    uint16_t recv = disti_build_lane(b, 0), send = disti_build_lane(b, 0);
    struct disti_window window = disti_window(b, 0);
    for (uint32_t chunk = 0; chunk < shape->segments; chunk++) {
        if (goes_on == shape->rank)
            cube_chunk(&c, &window, recv, send, chunk);
        else
            disti_build_send(b, .lane = send, .peer = goes_on, .src = disti_in(chunk),
                             .data = chunk);
    }
}
