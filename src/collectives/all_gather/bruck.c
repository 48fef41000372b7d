/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-gather by doubling distances: Bruck, Ho, Kipnis, Upfal, Weathersby, "Efficient algorithms for
 * all-to-all communications in multiport message-passing systems", 1997.
 *
 *   before round k rank r has the 2^k blocks from its own on; it hands them to rank r - 2^k and
 *   gets the next ones from rank r + 2^k:
 *
 *     rank 5 of 7:   5 | 6 | 0 1 | 2 3 4         (the last round brings what is left)
 *
 * Each block goes straight to where it belongs in OUT. What a rank forwards begins at block 0
 * behind the last block, so it is one message or two (where blocks may lie anywhere: one a block).
 * Steps: log2 n, rounded up. Bytes sent by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"

/* Blocks that follow `first` in memory, of `count` that follow it round the end. */
static uint32_t bruck_run(const struct disti_shape *shape, uint32_t first, uint32_t count)
{
    uint32_t left = (uint32_t)shape->ranks - first;
    if (disti_collective_uneven(shape->collective))
        return 1;
    return count < left ? count : left;
}

void disti_all_gather_bruck(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t ranks = (uint32_t)shape->ranks, own = (uint32_t)shape->rank;
    disti_build_chunks(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    struct disti_step_ref has =
        disti_build_copy(b, .lane = recv, .dst = disti_out(own), .src = disti_in(0), .data = own);
    for (uint32_t distance = 1; distance < ranks; distance *= 2) {
        uint32_t count = distance < ranks - distance ? distance : ranks - distance;
        uint32_t to = (own + ranks - distance) % ranks, from = (own + distance) % ranks, run;
        struct disti_step_ref before = has;
        for (uint32_t i = 0; i < count; i += run) {
            uint32_t block = (own + i) % ranks;
            run = bruck_run(shape, block, count - i);
            disti_build_send(b, .lane = send, .after = before, .peer = (int)to,
                             .src = disti_out(block), .data = block, .chunks = run);
        }
        for (uint32_t i = 0; i < count; i += run) {
            uint32_t block = (from + i) % ranks;
            run = bruck_run(shape, block, count - i);
            has = disti_build_recv(b, .lane = recv, .peer = (int)from, .dst = disti_out(block),
                                   .data = block, .chunks = run);
        }
    }
}
