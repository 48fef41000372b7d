/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-to-all with doubling distances: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms
 * for all-to-all communications in multiport message-passing systems", 1997.
 *
 *   A block for the rank at distance j moves 2^k ranks forward in round k if bit k of j is set,
 *   in one message with all other blocks of the sending rank whose j has that bit:
 *
 *     n 7       j   6    5    4    3    2    1         rank r sends to r + 1, r + 2, r + 4
 *     round 0            5         3         1
 *     round 1       6              3    2
 *     round 2       6    5    4
 *
 * At any time a rank r has one block for each j. In round k, that block's origin is rank r - (j mod
 * 2^k). Blocks are packed in scratch in descending order of j, so that the blocks that have arrived
 * at their destination (j from 2^k to 2^(k+1) - 1) have the same order in the message as in OUT.
 * Steps: log2 n, rounded up. Bytes sent by a rank: about n / 2 blocks a step; scratch: twice as
 * many.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

struct bruck {
    struct disti_builder *b;
    uint32_t ranks, own;
    uint16_t send, recv;
    uint32_t *slot; /* by j: the scratch slot of the block; BRUCK_IN: still in IN */
    uint32_t *list;
    uint32_t slots; /* scratch slots in use */
};
#define BRUCK_IN UINT32_MAX

/* Returns the data chunk of the block for j on `rank` after the rounds of the bits below `bit`. */
static uint32_t bruck_data(const struct bruck *k, uint32_t rank, uint32_t j, uint32_t bit)
{
    uint32_t from = (rank + k->ranks - j % bit) % k->ranks;
    return from * k->ranks + (from + j) % k->ranks;
}

/* Returns the next lower j with the bit set; 0: none. */
static uint32_t bruck_next(uint32_t j, uint32_t bit)
{
    for (j--; j > 0 && !(j & bit); j--)
        ;
    return j;
}

/* Packs the blocks to send into scratch, starting at `slot`, with one copy per consecutive run. */
static struct disti_step_ref bruck_pack(const struct bruck *k, uint32_t bit, uint32_t slot)
{
    uint32_t begin = 0, count = 0;
    struct disti_chunk_ref source = {0, DISTI_IN};
    for (uint32_t j = bruck_next(k->ranks, bit); j > 0; j = bruck_next(j, bit), count++) {
        struct disti_chunk_ref value =
            k->slot[j] == BRUCK_IN ? disti_in((k->own + j) % k->ranks) : disti_scratch(k->slot[j]);
        if (count > begin && value.space == source.space &&
            value.chunk == source.chunk + count - begin)
            continue;
        if (count > begin)
            disti_build_copy(k->b, .lane = k->recv, .dst = disti_scratch(slot + begin),
                             .src = source, .list = k->list + begin, .chunks = count - begin);
        begin = count;
        source = value;
    }
    return disti_build_copy(k->b, .lane = k->recv, .dst = disti_scratch(slot + begin),
                            .src = source, .list = k->list + begin, .chunks = count - begin);
}

/* Copies the blocks that have arrived to OUT. They may wrap around the end of OUT. */
static void bruck_deliver(const struct bruck *k, uint32_t bit, uint32_t high, uint32_t slot)
{
    uint32_t count = high - bit + 1, run;
    for (uint32_t i = 0; i < count; i += run) {
        uint32_t out = (k->own + k->ranks - high + i) % k->ranks, left = k->ranks - out;
        run = count - i < left ? count - i : left;
        disti_build_copy(k->b, .lane = k->recv, .dst = disti_out(out),
                         .src = disti_scratch(slot + i), .list = k->list + (slot - k->slots) + i,
                         .chunks = run);
    }
}

void disti_all_to_all_bruck(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t ranks = (uint32_t)shape->ranks, own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    struct bruck k = {.b = b,
                      .ranks = ranks,
                      .own = own,
                      .send = disti_build_lane(b, 0),
                      .recv = disti_build_lane(b, 0),
                      .slot = disti_build_array(b, ranks),
                      .list = disti_build_array(b, ranks)};
    if (!k.slot || !k.list)
        return;
    for (uint32_t j = 0; j < ranks; j++)
        k.slot[j] = BRUCK_IN;
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(own),
                     .data = own * ranks + own);
    for (uint32_t bit = 1; bit < ranks; bit *= 2) {
        uint32_t to = (k.own + bit) % k.ranks, from = (k.own + k.ranks - bit) % k.ranks;
        uint32_t count = 0, high = 2 * bit - 1 < k.ranks ? 2 * bit - 1 : k.ranks - 1;
        for (uint32_t j = bruck_next(ranks, bit); j > 0; j = bruck_next(j, bit))
            k.list[count++] = bruck_data(&k, k.own, j, bit);
        disti_build_scratch(k.b, k.slots + 2 * count);
        struct disti_step_ref packed = bruck_pack(&k, bit, k.slots);
        disti_build_send(k.b, .lane = k.send, .after = packed, .peer = (int)to,
                         .src = disti_scratch(k.slots), .list = k.list, .chunks = count);
        k.slots += count;
        uint32_t i = 0;
        for (uint32_t j = bruck_next(ranks, bit); j > 0; j = bruck_next(j, bit)) {
            k.slot[j] = k.slots + i;
            k.list[i++] = bruck_data(&k, from, j, bit);
        }
        disti_build_recv(k.b, .lane = k.recv, .peer = (int)from, .dst = disti_scratch(k.slots),
                         .list = k.list, .chunks = count);
        bruck_deliver(&k, bit, high, k.slots + count - (high - bit + 1));
        k.slots += count;
    }
}

/*
 * All-to-all by direct exchange: each rank sends each other rank its block.
 *
 * Each peer and direction has a lane of its own, so a slow peer does not delay other peers. Rank i
 * starts with the next rank on the ring. Blocks may differ in size. Steps: 1. Messages of a rank: n
 * - 1. Bytes sent by a rank: n - 1 blocks.
 */

void disti_all_to_all_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int position = topology->position[shape->rank];
    uint32_t ranks = (uint32_t)shape->ranks, own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    for (int i = 1; i < shape->ranks; i++) {
        uint32_t to = (uint32_t)topology->order[(position + i) % shape->ranks];
        uint32_t from = (uint32_t)topology->order[(position + shape->ranks - i) % shape->ranks];
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = (int)to, .src = disti_in(to),
                         .data = own * ranks + to);
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = (int)from,
                         .dst = disti_out(from), .data = from * ranks + own);
    }
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(own),
                     .data = own * ranks + own);
}

/*
 * All-to-all by pairwise exchange: Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", 2005.
 *
 *   round i, n a power of two:   position p exchanges with position p xor i
 *   round i, any other n:        position p sends to p + i, receives from p - i (wrapping around)
 *
 * A round begins after this rank's previous round has ended, so that each rank communicates with
 * one sender and one receiver at a time. Rounds begin with neighbouring positions. Blocks may
 * differ in size. Steps: n - 1 in sequence. Bytes sent by a rank: n - 1 blocks.
 */

void disti_all_to_all_pairwise(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int n = shape->ranks, position = topology->position[shape->rank];
    uint32_t ranks = (uint32_t)n, own = (uint32_t)shape->rank;
    bool pairs = (n & (n - 1)) == 0;
    disti_build_chunks(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    disti_build_copy(b, .lane = disti_build_lane(b, 0), .dst = disti_out(own), .src = disti_in(own),
                     .data = own * ranks + own);
    struct disti_step_ref sent = DISTI_NOW, received = DISTI_NOW;
    for (int i = 1; i < n; i++) {
        uint32_t to = (uint32_t)topology->order[pairs ? position ^ i : (position + i) % n];
        uint32_t from = (uint32_t)topology->order[pairs ? position ^ i : (position + n - i) % n];
        struct disti_step_ref before = sent;
        sent = disti_build_send(b, .lane = send, .after = received, .peer = (int)to,
                                .src = disti_in(to), .data = own * ranks + to);
        received = disti_build_recv(b, .lane = recv, .after = before, .peer = (int)from,
                                    .dst = disti_out(from), .data = from * ranks + own);
    }
}
