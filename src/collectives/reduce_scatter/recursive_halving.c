/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter by recursive halving: Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", 2005.
 *
 *   virtual  0 1 2 3 4 5 6 7        (blocks too)
 *   round 0  0 <-----> 4            gives blocks 4 to 7, reduces 0 to 3
 *   round 1  0 <-> 2                gives 2 and 3, reduces 0 and 1
 *   round 2  0 - 1                  gives 1, reduces 0
 *
 * Ranks in order, since what a rank gives must lie together in IN. Sums are in scratch until the
 * last round. A surplus rank gives all of its vector to its partner first (fold.h), which then has
 * two blocks at the end and gives one back.
 * Steps: log2 n (+ 2). Bytes sent by a rank: n - 1 blocks (a surplus rank: n).
 */
#include "collectives/algorithms.h"
#include "collectives/common/fold.h"

struct halving {
    const struct disti_shape *shape;
    struct disti_builder *b;
    struct disti_fold fold;
    uint16_t send, recv;
    int low, high;             /* the virtual ranks whose blocks are still mine: [low, high) */
    bool fresh;                /* their values are still in IN */
    uint32_t base;             /* the block whose sum is in slot 0 */
    struct disti_step_ref has; /* the values are up to date */
};

/* The first block of a virtual rank. */
static uint32_t halving_block(const struct halving *h, int virtual_rank)
{
    int virtual_ranks = 1 << h->fold.rounds;
    return (uint32_t)(virtual_rank == virtual_ranks ? h->shape->ranks
                                                    : disti_fold_position(&h->fold, virtual_rank));
}

static struct disti_chunk_ref halving_value(const struct halving *h, uint32_t block)
{
    return h->fresh ? disti_in(block) : disti_scratch(block - h->base);
}

/* Gives the blocks of one half of the virtual ranks, reduces those of the other. */
static void halving_round(struct halving *h, int round)
{
    int half = (h->high - h->low) / 2, middle = h->low + half;
    bool upper = h->fold.virtual_rank >= middle;
    int peer = disti_fold_position(&h->fold, h->fold.virtual_rank ^ half);
    uint32_t give = halving_block(h, upper ? h->low : middle);
    uint32_t give_end = halving_block(h, upper ? middle : h->high);
    h->low = upper ? middle : h->low;
    h->high = upper ? h->high : middle;
    uint32_t keep = halving_block(h, h->low), count = halving_block(h, h->high) - keep;
    bool last = round == h->fold.rounds - 1;
    struct disti_chunk_ref mine = halving_value(h, keep);
    disti_build_send(h->b, .lane = h->send, .after = h->has, .peer = peer,
                     .src = halving_value(h, give), .data = give, .chunks = give_end - give);
    if (h->fresh) {
        disti_build_scratch(h->b, count);
        h->base = keep;
        h->fresh = false;
    }
    struct disti_chunk_ref sum = last && count == 1 ? disti_out(0) : halving_value(h, keep);
    h->has = disti_build_recv_reduce(h->b, .lane = h->recv, .peer = peer, .dst = sum, .src = mine,
                                     .data = keep, .chunks = count, .finish = last);
}

/* Its partner's block was reduced along with its own. */
static void halving_give_back(struct halving *h)
{
    uint32_t own = (uint32_t)h->shape->rank;
    disti_build_copy(h->b, .lane = h->recv, .dst = disti_out(0), .src = halving_value(h, own),
                     .data = own);
    disti_build_send(h->b, .lane = h->send, .after = h->has, .peer = h->fold.partner,
                     .src = halving_value(h, own + 1), .data = own + 1);
}

static void halving_surplus(const struct disti_shape *shape, struct disti_builder *b, int peer)
{
    uint32_t own = (uint32_t)shape->rank, ranks = (uint32_t)shape->ranks;
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_send(b, .lane = lane, .peer = peer, .src = disti_in(0), .chunks = ranks);
    disti_build_recv(b, .lane = lane, .peer = peer, .dst = disti_out(0), .data = own);
}

void disti_reduce_scatter_recursive_halving(const struct disti_shape *shape,
                                            struct disti_builder *b)
{
    struct disti_fold fold = disti_fold(shape->ranks, shape->rank);
    uint32_t ranks = (uint32_t)shape->ranks;
    disti_build_chunks(b, 1);
    if (fold.virtual_rank < 0) {
        halving_surplus(shape, b, fold.partner);
        return;
    }
    struct halving h = {.shape = shape,
                        .b = b,
                        .fold = fold,
                        .send = disti_build_lane(b, 0),
                        .recv = disti_build_lane(b, 0),
                        .high = 1 << fold.rounds,
                        .fresh = fold.partner < 0,
                        .has = DISTI_NOW};
    if (!h.fresh) {
        disti_build_scratch(b, ranks);
        h.has =
            disti_build_recv_reduce(b, .lane = h.recv, .peer = fold.partner,
                                    .dst = disti_scratch(0), .src = disti_in(0), .chunks = ranks);
    }
    for (int round = 0; round < fold.rounds; round++)
        halving_round(&h, round);
    if (fold.partner >= 0)
        halving_give_back(&h);
}
