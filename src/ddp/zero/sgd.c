/* SPDX-License-Identifier: BSD-3-Clause */
/* Stochastic gradient descent, with momentum. */
#include <dist/zero.h>

#include "base/kernels/kernels.h"

/* As torch.optim.SGD, in its order of operations. */
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
