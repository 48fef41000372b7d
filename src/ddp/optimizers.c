/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * SGD, Adam and AdamW.
 *
 *     m = beta1 m + (1 - beta1) g         m / (1 - beta1^t): mean of all gradients so far
 *     v = beta2 v + (1 - beta2) g^2       v / (1 - beta2^t): mean of their squares
 *     x = x - rate m / (sqrt(v) + epsilon)
 */
#include "base/kernels/kernels.h"

#include <dist/zero.h>
#include <math.h>

/* Factors that are equal for all elements in a step. */
struct adam_rates {
    float step; /* rate / (1 - beta1^t) */
    float root; /* 1 / sqrt(1 - beta2^t) */
    float beta1, beta2, one_minus_beta1, one_minus_beta2;
    float epsilon;
    float keep;  /* decoupled weight decay: factor of the old value */
    float decay; /* otherwise: multiple of the value that is added to the gradient */
};

DISTI_CLONES static void adam_step(float *restrict x, const float *restrict g, float *restrict m,
                                   float *restrict v, size_t count, struct adam_rates rates)
{
    for (size_t i = 0; i < count; i++) {
        const float value = x[i] * rates.keep;
        const float gradient = g[i] + rates.decay * x[i];
        const float mean = rates.beta1 * m[i] + rates.one_minus_beta1 * gradient;
        const float square = rates.beta2 * v[i] + rates.one_minus_beta2 * gradient * gradient;

        m[i] = mean;
        v[i] = square;
        x[i] = value - rates.step * mean / (sqrtf(square) * rates.root + rates.epsilon);
    }
}

__attribute__((noinline)) static void adam_update(const struct dist_zero_adam *adam,
                                                  const struct dist_zero_slice *slice)
{
    const double step = (double)slice->step;
    const struct adam_rates rates = {
        .step = (float)(adam->rate / (1.0 - pow(adam->beta1, step))),
        .root = (float)(1.0 / sqrt(1.0 - pow(adam->beta2, step))),
        .beta1 = (float)adam->beta1,
        .beta2 = (float)adam->beta2,
        .one_minus_beta1 = (float)(1.0 - adam->beta1),
        .one_minus_beta2 = (float)(1.0 - adam->beta2),
        .epsilon = (float)adam->epsilon,
        .keep = adam->decoupled ? (float)(1.0 - adam->rate * adam->weight_decay) : 1.0f,
        .decay = adam->decoupled ? 0.0f : (float)adam->weight_decay};

    adam_step(slice->values, slice->gradients, slice->state[0], slice->state[1], slice->count,
              rates);
}

int dist_zero_adam_step(void *arg, const struct dist_zero_slice *slice)
{
    disti_environment saved;

    if (slice->state_floats < DIST_ZERO_ADAM_STATE)
        return 1;
    saved = disti_environment_enter();
    adam_update(arg, slice);
    disti_environment_leave(saved);
    return 0;
}

/* Stochastic gradient descent, with momentum. */

/* Equal to torch.optim.SGD, in the same order of operations. */
struct sgd_rates {
    float rate, momentum, decay;
    bool nesterov;
};

DISTI_CLONES static void sgd_without_momentum(float *restrict x, const float *restrict g,
                                              size_t count, struct sgd_rates rates)
{
    for (size_t i = 0; i < count; i++)
        x[i] -= rates.rate * (g[i] + rates.decay * x[i]);
}

DISTI_CLONES static void sgd_momentum(float *restrict x, const float *restrict g, float *restrict m,
                                      size_t count, struct sgd_rates rates)
{
    for (size_t i = 0; i < count; i++) {
        const float gradient = g[i] + rates.decay * x[i];
        const float mean = rates.momentum * m[i] + gradient;

        m[i] = mean;
        x[i] -= rates.rate * (rates.nesterov ? gradient + rates.momentum * mean : mean);
    }
}

__attribute__((noinline)) static void sgd_update(const struct dist_zero_sgd *sgd,
                                                 const struct dist_zero_slice *slice)
{
    const struct sgd_rates rates = {.rate = (float)sgd->rate,
                                    .momentum = (float)sgd->momentum,
                                    .decay = (float)sgd->weight_decay,
                                    .nesterov = sgd->nesterov};

    if (sgd->momentum == 0.0)
        sgd_without_momentum(slice->values, slice->gradients, slice->count, rates);
    else
        sgd_momentum(slice->values, slice->gradients, slice->state[0], slice->count, rates);
}

int dist_zero_sgd_step(void *arg, const struct dist_zero_slice *slice)
{
    const struct dist_zero_sgd *sgd = arg;
    disti_environment saved;

    if (sgd->momentum != 0.0 && slice->state_floats < DIST_ZERO_SGD_STATE)
        return 1;
    saved = disti_environment_enter();
    sgd_update(sgd, slice);
    disti_environment_leave(saved);
    return 0;
}
