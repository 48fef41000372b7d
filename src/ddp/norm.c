/* SPDX-License-Identifier: BSD-3-Clause */
/* The norm of all gradients, and clipping by it. */
#include "ddp.h"

#include <math.h>

#include "base/kernels/environment.h"
#include "base/log.h"
#include "squares.h"

/* Called in the library's floating-point environment. */
#define NORM_APART __attribute__((noinline))

/* Sums that run beside each other, so that they vectorise. The order of additions is fixed. */
enum { NORM_LANES = 8 };

static double norm_add(const double sums[NORM_LANES])
{
    double sum = 0.0;

    for (int i = 0; i < NORM_LANES; i++)
        sum += sums[i];
    return sum;
}

NORM_APART static double norm_squares_f32(const float *x, size_t count)
{
    double sums[NORM_LANES] = {0.0};
    size_t i = 0;

    for (; i + NORM_LANES <= count; i += NORM_LANES)
        for (int j = 0; j < NORM_LANES; j++)
            sums[j] += (double)x[i + (size_t)j] * (double)x[i + (size_t)j];
    for (; i < count; i++)
        sums[0] += (double)x[i] * (double)x[i];
    return norm_add(sums);
}

double disti_squares_f32(const float *x, size_t count)
{
    const disti_environment saved = disti_environment_enter();
    const double squares = norm_squares_f32(x, count);

    disti_environment_leave(saved);
    return squares;
}

NORM_APART static double norm_squares_f64(const double *x, size_t count)
{
    double sums[NORM_LANES] = {0.0};

    for (size_t i = 0; i < count; i++)
        sums[i % NORM_LANES] += x[i] * x[i];
    return norm_add(sums);
}

static void norm_square(const struct dist_ddp *ddp, struct ddp_parameter *parameter)
{
    parameter->squares =
        ddp->options.dtype == DIST_FLOAT32
            ? norm_squares_f32((const float *)(const void *)parameter->gradient, parameter->count)
            : norm_squares_f64((const double *)(const void *)parameter->gradient, parameter->count);
}

void disti_ddp_square(struct dist_ddp *ddp, const struct ddp_bucket *bucket)
{
    const disti_environment saved = disti_environment_enter();

    for (int i = bucket->first; i < bucket->first + bucket->count; i++)
        norm_square(ddp, &ddp->parameters[ddp->order[i]]);
    disti_environment_leave(saved);
}

/* In the order of the parameters, whatever the buckets are. */
static double norm_of(struct dist_ddp *ddp)
{
    double sum = 0.0;

    for (int i = 0; i < ddp->count; i++) {
        if (!ddp->parameters[i].gradient)
            continue;
        if (!ddp->squared)
            norm_square(ddp, &ddp->parameters[i]);
        sum += ddp->parameters[i].squares;
    }
    return sqrt(sum);
}

static void norm_scale(const struct dist_ddp *ddp, double factor)
{
    for (int i = 0; i < ddp->count; i++) {
        void *gradient = ddp->parameters[i].gradient;
        const size_t count = gradient ? ddp->parameters[i].count : 0;

        if (ddp->options.dtype == DIST_FLOAT32)
            for (size_t j = 0; j < count; j++)
                ((float *)gradient)[j] *= (float)factor;
        else
            for (size_t j = 0; j < count; j++)
                ((double *)gradient)[j] *= factor;
    }
}

/* Returns the norm before clipping. */
NORM_APART static double norm_clip(struct dist_ddp *ddp, double max_norm)
{
    const double norm = norm_of(ddp);

    ddp->clips = true;
    if (isfinite(norm) && norm > max_norm) {
        norm_scale(ddp, max_norm / (norm + 1e-6));
        ddp->squared = false;
    }
    return norm;
}

dist_status dist_ddp_clip(dist_ddp *ddp, double max_norm, double *norm_p)
{
    dist_status status = disti_ddp_check_between(ddp, "dist_ddp_clip");
    disti_environment saved;
    double norm;

    if (status != DIST_OK)
        return status;
    if (!(max_norm >= 0.0))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_clip: max_norm is %g: give 0 or more", max_norm);
    if (ddp->device || (ddp->options.dtype != DIST_FLOAT32 && ddp->options.dtype != DIST_FLOAT64))
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "dist_ddp_clip: it is for float32 and float64 in host memory");
    saved = disti_environment_enter();
    norm = norm_clip(ddp, max_norm);
    disti_environment_leave(saved);
    if (norm_p)
        *norm_p = norm;
    return DIST_OK;
}
