/* SPDX-License-Identifier: BSD-3-Clause */
/* A step, as far as it is the same in both forms. */
#include "zero.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/kernels/environment.h"
#include "base/log.h"
#include "ddp/common.h"
#include "ddp/squares.h"

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

/* ---- for each block ---- */

void disti_zero_square(struct dist_zero *zero, const float *gradients, size_t count)
{
    const double squares = disti_squares_f32(gradients, count);
    const disti_environment saved = disti_environment_enter();

    zero->squares += squares;
    disti_environment_leave(saved);
}

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

dist_status disti_zero_clip(struct dist_zero *zero)
{
    const int64_t began = disti_now_ns();
    dist_status status =
        dist_all_reduce(zero->group, &zero->squares, &zero->squares, 1, DIST_FLOAT64, DIST_SUM);

    zero->stats.waited += (double)(disti_now_ns() - began) * 1e-9;
    if (status == DIST_OK)
        step_norm(zero);
    return status;
}

dist_status disti_zero_update(struct dist_zero *zero, const struct zero_block *block,
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

static void step_end(struct dist_zero *zero)
{
    for (int i = 0; i < zero->count; i++)
        zero->parameters[i].ready = false;
    for (int i = 0; i < zero->bucket_count; i++)
        zero->buckets[i].missing = zero->buckets[i].last - zero->buckets[i].first + 1;
    zero->next = 0;
    zero->made++;
    zero->stats.steps++;
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
    step_end(zero);
    return DIST_OK;
}
