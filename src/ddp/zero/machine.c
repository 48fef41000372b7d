/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of one machine: each updates its share of the one copy of the parameters. */
#include "zero.h"

#include <string.h>

#include "base/clock.h"
#include "base/dtype.h"

/*
 *     rank 0   forward  backward  |barrier|  sum and update share 0  |barrier|  forward ...
 *     rank 1   forward  backward  |       |  sum and update share 1  |       |  forward ...
 *
 * Before the first barrier all read the parameters and nobody writes them. Between the two each
 * rank reads its share of everyone's gradients and writes its share of the parameters, and nobody
 * touches anything else. With max_norm the sum of squares is between sums and updates.
 */
static dist_status machine_barrier(struct dist_zero *zero)
{
    const int64_t began = disti_now_ns();
    dist_status status = dist_barrier(zero->group);

    zero->stats.waited += (double)(disti_now_ns() - began) * 1e-9;
    return status;
}

/* Operands `first` to `first + operands - 1`, of which those below `surplus` are two ranks each. */
struct machine_sum {
    const struct dist_zero *zero;
    size_t at, count;
    int surplus;
};

/*
 * As all-reduces of one machine and reproducible ones add: the ranks up to a power of two are a
 * balanced tree, in which the first operands stand for the ranks beyond it too. So the bits are
 * those of dist_ddp.
 */
static float *machine_add(const struct machine_sum *sum, int first, int operands, float *dst,
                          float *tiles)
{
    float *const *peers = sum->zero->peers;
    const float *left, *right;

    if (operands == 1 && first >= sum->surplus)
        return peers[first + sum->surplus] + sum->at;
    if (operands == 1) {
        left = peers[2 * first] + sum->at;
        right = peers[2 * first + 1] + sum->at;
    } else {
        left = machine_add(sum, first, operands / 2, dst, tiles);
        right = machine_add(sum, first + operands / 2, operands / 2, tiles, tiles + ZERO_BLOCK);
    }
    disti_reduce(DIST_FLOAT32, DIST_SUM, dst, left, right, sum->count);
    return dst;
}

/* The sum or mean of all ranks' gradients. In the tiles; of one rank, where they are. */
static float *machine_reduce(const struct dist_zero *zero, const struct zero_block *block)
{
    const dist_op op = zero->options.sum ? DIST_SUM : DIST_AVG;
    struct machine_sum sum = {.zero = zero, .at = block->at, .count = block->count};
    float *reduced;
    int operands = 1;

    while (operands * 2 <= zero->world)
        operands *= 2;
    sum.surplus = zero->world - operands;
    reduced = machine_add(&sum, 0, operands, zero->tiles, zero->tiles + ZERO_BLOCK);
    disti_finish(reduced, block->count, DIST_FLOAT32, op, zero->world);
    return reduced;
}

/* While the sums are in cache. */
static dist_status machine_update(struct dist_zero *zero, const struct zero_block *block)
{
    return disti_zero_update(zero, block, machine_reduce(zero, block));
}

/* In place: nobody else reads what this rank owns of its own gradients. */
static dist_status machine_square(struct dist_zero *zero, const struct zero_block *block)
{
    const float *reduced = machine_reduce(zero, block);

    memmove(zero->gradients + block->at, reduced, block->count * sizeof(*reduced));
    disti_zero_square(zero, reduced, block->count);
    return DIST_OK;
}

static dist_status machine_update_clipped(struct dist_zero *zero, const struct zero_block *block)
{
    return disti_zero_update(zero, block, zero->gradients + block->at);
}

/* This rank's share of all buckets. */
static dist_status machine_work(struct dist_zero *zero, zero_visit_fn visit)
{
    const int64_t began = disti_now_ns();
    dist_status status = DIST_OK;

    for (int i = 0; i < zero->bucket_count && status == DIST_OK; i++)
        status = disti_zero_each(zero, &zero->buckets[i], visit);
    zero->stats.worked += (double)(disti_now_ns() - began) * 1e-9;
    return status;
}

static dist_status machine_finish(struct dist_zero *zero)
{
    const bool clips = zero->options.max_norm > 0.0;
    dist_status status = machine_barrier(zero);

    if (status == DIST_OK && clips)
        status = machine_work(zero, machine_square);
    if (status == DIST_OK && clips)
        status = disti_zero_clip(zero);
    if (status == DIST_OK)
        status = machine_work(zero, clips ? machine_update_clipped : machine_update);
    return status == DIST_OK ? machine_barrier(zero) : status;
}

/* What rank 0 wrote the others see behind a barrier. */
const struct zero_form disti_zero_machine = {.finish = machine_finish, .sync = machine_barrier};
