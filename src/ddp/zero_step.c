/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of one machine: each updates its share of the one copy of the parameters. */
#include "base/clock.h"
#include "base/dtype.h"
#include "base/kernels/environment.h"
#include "base/log.h"
#include "ddp/ddp.h"

#include <math.h>
#include <string.h>

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

static dist_status zero_update(struct dist_zero *zero, const struct zero_block *block,
                               float *gradients);

/* While the sums are in cache. */
static dist_status machine_update(struct dist_zero *zero, const struct zero_block *block)
{
    return zero_update(zero, block, machine_reduce(zero, block));
}

static void zero_square(struct dist_zero *zero, const float *gradients, size_t count)
{
    const double squares = disti_squares_f32(gradients, count);
    const disti_environment saved = disti_environment_enter();

    zero->squares += squares;
    disti_environment_leave(saved);
}

/* In place: nobody else reads what this rank owns of its own gradients. */
static dist_status machine_square(struct dist_zero *zero, const struct zero_block *block)
{
    const float *reduced = machine_reduce(zero, block);

    memmove(zero->gradients + block->at, reduced, block->count * sizeof(*reduced));
    zero_square(zero, reduced, block->count);
    return DIST_OK;
}

static dist_status machine_update_clipped(struct dist_zero *zero, const struct zero_block *block)
{
    return zero_update(zero, block, zero->gradients + block->at);
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

static dist_status zero_clip(struct dist_zero *zero);

static dist_status machine_finish(struct dist_zero *zero)
{
    const bool clips = zero->options.max_norm > 0.0;
    dist_status status = machine_barrier(zero);

    if (status == DIST_OK && clips)
        status = machine_work(zero, machine_square);
    if (status == DIST_OK && clips)
        status = zero_clip(zero);
    if (status == DIST_OK)
        status = machine_work(zero, clips ? machine_update_clipped : machine_update);
    return status == DIST_OK ? machine_barrier(zero) : status;
}

/* What rank 0 wrote the others see behind a barrier. */
const struct zero_form disti_zero_machine = {.finish = machine_finish, .sync = machine_barrier};

/* Ranks of several machines: buckets are reduced to their owners, and gathered when updated. */

/* Buckets start in their order on every rank. The first that moves is looked at for programs
 * without a progress thread. */
static dist_status network_start(struct dist_zero *zero)
{
    dist_status status = DIST_OK;
    bool done;

    while (zero->next < zero->bucket_count && zero->buckets[zero->next].missing == 0 &&
           status == DIST_OK) {
        struct zero_bucket *bucket = &zero->buckets[zero->next++];

        status = dist_reduce_scatter_v_async(
            zero->group, zero->gradients + bucket->at,
            zero->gradients + disti_zero_own(zero, bucket), bucket->counts, DIST_FLOAT32,
            zero->options.sum ? DIST_SUM : DIST_AVG, &bucket->work);
    }
    if (status == DIST_OK && zero->next > 0)
        status = dist_test(zero->buckets[0].work, &done);
    return status;
}

static dist_status network_square(struct dist_zero *zero, const struct zero_block *block)
{
    zero_square(zero, zero->gradients + block->at, block->count);
    return DIST_OK;
}

static dist_status network_update(struct dist_zero *zero, const struct zero_block *block)
{
    return zero_update(zero, block, zero->gradients + block->at);
}

static dist_status network_work(struct dist_zero *zero, const struct zero_bucket *bucket,
                                zero_visit_fn visit)
{
    const int64_t began = disti_now_ns();
    dist_status status = disti_zero_each(zero, bucket, visit);

    zero->stats.worked += (double)(disti_now_ns() - began) * 1e-9;
    return status;
}

/* Every gradient has to be there before the first may be scaled. */
static dist_status network_clip(struct dist_zero *zero)
{
    dist_status status = DIST_OK;

    for (int i = 0; i < zero->bucket_count && status == DIST_OK; i++) {
        status = disti_zero_wait(zero, &zero->buckets[i]);
        if (status == DIST_OK)
            status = network_work(zero, &zero->buckets[i], network_square);
    }
    return status == DIST_OK ? zero_clip(zero) : status;
}

/* A bucket's parameters travel while the next is updated. */
static dist_status network_finish(struct dist_zero *zero)
{
    dist_status status = zero->options.max_norm > 0.0 ? network_clip(zero) : DIST_OK;

    for (int i = 0; i < zero->bucket_count && status == DIST_OK; i++) {
        status = disti_zero_wait(zero, &zero->buckets[i]);
        if (status == DIST_OK)
            status = network_work(zero, &zero->buckets[i], network_update);
        if (status == DIST_OK)
            status = dist_all_gather_v_async(
                zero->group, zero->values + disti_zero_own(zero, &zero->buckets[i]),
                zero->values + zero->buckets[i].at, zero->buckets[i].counts,
                zero->buckets[i].offsets, DIST_FLOAT32, &zero->buckets[i].work);
    }
    for (int i = 0; i < zero->bucket_count && status == DIST_OK; i++)
        status = disti_zero_wait(zero, &zero->buckets[i]);
    return status;
}

static dist_status network_sync(struct dist_zero *zero)
{
    return dist_broadcast(zero->group, zero->values, zero->elements, DIST_FLOAT32, 0);
}

const struct zero_form disti_zero_network = {
    .start = network_start, .finish = network_finish, .sync = network_sync};

/* A step, as far as it is the same in both forms. */

dist_status disti_zero_wait(struct dist_zero *zero, struct zero_bucket *bucket)
{
    const int64_t began = disti_now_ns();
    dist_work *work = bucket->work;
    dist_status status;

    bucket->work = NULL;
    status = work ? dist_wait(work) : DIST_OK;
    zero->stats.waited += (double)(disti_now_ns() - began) * 1e-9;
    return status;
}

/* Adds the squares of a block to zero->squares. */
/* ---- for each block ---- */

/* Sets the norm, and the scale that brings it down to max_norm. */
static void step_norm(struct dist_zero *zero)
{
    const disti_environment saved = disti_environment_enter();
    const double limit = zero->options.max_norm, norm = sqrt(zero->squares);

    zero->stats.norm = norm;
    if (isfinite(norm) && norm > limit)
        zero->scale = (float)(limit / (norm + 1e-6));
    disti_environment_leave(saved);
}

static void step_scale(const struct dist_zero *zero, float *gradients, size_t count)
{
    const disti_environment saved = disti_environment_enter();

    for (size_t i = 0; i < count; i++)
        gradients[i] *= zero->scale;
    disti_environment_leave(saved);
}

/* The norm over all ranks, and zero->scale. Collective. */
static dist_status zero_clip(struct dist_zero *zero)
{
    const int64_t began = disti_now_ns();
    dist_status status =
        dist_all_reduce(zero->group, &zero->squares, &zero->squares, 1, DIST_FLOAT64, DIST_SUM);

    zero->stats.waited += (double)(disti_now_ns() - began) * 1e-9;
    if (status == DIST_OK)
        step_norm(zero);
    return status;
}

/* step.c, for the forms. The optimizer's step for a block, of which these are the gradients. */
static dist_status zero_update(struct dist_zero *zero, const struct zero_block *block,
                               float *gradients)
{
    float *state[DIST_ZERO_STATE_MAX];
    struct dist_zero_slice slice = {.parameter = block->parameter,
                                    .first = block->first,
                                    .count = block->count,
                                    .values = zero->values + block->at,
                                    .gradients = gradients,
                                    .state = state,
                                    .state_floats = zero->options.state_floats,
                                    .step = zero->made + 1};
    int result;

    for (int k = 0; k < slice.state_floats; k++)
        state[k] = zero->state + (size_t)k * zero->owned + block->owned_at;
    if (zero->scale < 1.0f)
        step_scale(zero, gradients, block->count);
    result = zero->options.step(zero->options.step_arg, &slice);
    if (result == 0)
        return DIST_OK;
    return disti_fail(DIST_ERR_ABORTED,
                      "rank %d: dist_zero_finish: the step function returned %d for %s", zero->rank,
                      result, zero->parameters[block->parameter].name);
}

/* ---- the public calls ---- */

dist_status dist_zero_ready(dist_zero *zero, int index)
{
    dist_status status = disti_zero_check(zero, "dist_zero_ready");
    struct zero_parameter *parameter;

    if (status != DIST_OK)
        return status;
    if (!dist_zero_gradient(zero, index))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_ready: there is no parameter %d; dist_zero_create was given "
                          "%d",
                          index, zero->count);
    parameter = &zero->parameters[index];
    if (parameter->ready)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_ready: gradient %s is ready for the second time in this step; "
                          "call it once, when all of the gradient is there",
                          parameter->name);
    if (parameter->source)
        memcpy(zero->gradients + parameter->at, parameter->source,
               parameter->count * sizeof(*parameter->source));
    parameter->ready = true;
    zero->buckets[parameter->bucket].missing--;
    status = zero->form->start ? zero->form->start(zero) : DIST_OK;
    return status == DIST_OK ? DIST_OK : disti_zero_fail(zero, status);
}

static dist_status step_check_all(const struct dist_zero *zero)
{
    struct ddp_list missing = {.count = 0};

    for (int i = 0; i < zero->count; i++)
        if (!zero->parameters[i].ready)
            disti_ddp_list_add(&missing, zero->parameters[i].name);
    if (missing.count == 0)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "rank %d: dist_zero_finish: there is no gradient for %s; call "
                      "dist_zero_ready for each of them",
                      zero->rank, disti_ddp_list_end(&missing));
}

dist_status dist_zero_finish(dist_zero *zero)
{
    dist_status status = disti_zero_check(zero, "dist_zero_finish");

    if (status != DIST_OK)
        return status;
    zero->squares = 0.0;
    zero->scale = 1.0f;
    status = step_check_all(zero);
    if (status == DIST_OK)
        status = zero->form->finish(zero);
    if (status != DIST_OK)
        return disti_zero_fail(zero, status);
    for (int i = 0; i < zero->count; i++)
        zero->parameters[i].ready = false;
    for (int i = 0; i < zero->bucket_count; i++)
        zero->buckets[i].missing = zero->buckets[i].last - zero->buckets[i].first + 1;
    zero->next = 0;
    zero->made++;
    zero->stats.steps++;
    return DIST_OK;
}
