/* SPDX-License-Identifier: BSD-3-Clause */
/* Optimizers over flat parameter memory. */
#include "optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "kernel.h"

struct optimizer {
    optimizer_fn step;
    size_t count;
    float momentum, weight_decay;
    int states;
    float *state[OPTIMIZER_STATES]; /* NULL: others keep it */
};

/* Velocity starts at 0, and momentum * 0 + g is g: the first step needs no case of its own. */
KERNEL static void optimizer_sgd(const struct optimizer *optimizer, float lr,
                                 const struct optimizer_slice *slice)
{
    const float momentum = optimizer->momentum, decay = optimizer->weight_decay;
    const float *gradients = slice->gradients;
    float *weights = slice->weights, *velocity = slice->state[0];
    const size_t count = slice->count;

#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        velocity[i] = momentum * velocity[i] + (gradients[i] + decay * weights[i]);
        weights[i] -= lr * velocity[i];
    }
}

/* The running means of squared gradients, and of squared moves. */
KERNEL static void optimizer_adadelta(const struct optimizer *optimizer, float lr,
                                      const struct optimizer_slice *slice)
{
    const float rho = OPTIMIZER_RHO, epsilon = OPTIMIZER_EPSILON;
    const float decay = optimizer->weight_decay;
    const float *gradients = slice->gradients;
    float *weights = slice->weights, *squares = slice->state[0], *moves = slice->state[1];
    const size_t count = slice->count;

#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float g = gradients[i] + decay * weights[i];
        const float square = rho * squares[i] + (1.0F - rho) * (g * g);
        const float move = sqrtf((moves[i] + epsilon) / (square + epsilon)) * g;

        squares[i] = square;
        moves[i] = rho * moves[i] + (1.0F - rho) * (move * move);
        weights[i] -= lr * move;
    }
}

int optimizer_create(const char *name, size_t count, float momentum, float weight_decay,
                     struct optimizer **optimizer_p)
{
    const int adadelta = strcmp(name, "adadelta") == 0;
    struct optimizer *optimizer;

    if (!adadelta && strcmp(name, "sgd") != 0)
        return failure("unknown optimizer '%s': there are adadelta and sgd", name);
    optimizer = calloc(1, sizeof(*optimizer));
    if (!optimizer)
        return failure("out of memory for the optimizer");
    optimizer->step = adadelta ? optimizer_adadelta : optimizer_sgd;
    optimizer->count = count;
    optimizer->momentum = momentum;
    optimizer->weight_decay = weight_decay;
    optimizer->states = adadelta ? 2 : 1;
    for (int k = 0; k < optimizer->states; k++) {
        optimizer->state[k] = calloc(count, sizeof(float));
        if (!optimizer->state[k]) {
            optimizer_destroy(optimizer);
            return failure("out of memory for the optimizer's state of %zu parameters", count);
        }
    }
    *optimizer_p = optimizer;
    return 0;
}

void optimizer_destroy(struct optimizer *optimizer)
{
    if (optimizer)
        optimizer_release(optimizer);
    free(optimizer);
}

void optimizer_release(struct optimizer *optimizer)
{
    for (int k = 0; k < optimizer->states; k++) {
        free(optimizer->state[k]);
        optimizer->state[k] = NULL;
    }
}

int optimizer_states(const struct optimizer *optimizer)
{
    return optimizer->states;
}

void optimizer_state(struct optimizer *optimizer, bool save, float *state)
{
    const size_t bytes = optimizer->count * sizeof(float);

    for (int k = 0; k < optimizer->states && optimizer->state[k]; k++, state += optimizer->count)
        memcpy(save ? state : optimizer->state[k], save ? optimizer->state[k] : state, bytes);
}

/* Several sums beside each other, so that they vectorise in one order. */
void optimizer_clip(double max_norm, float *gradients, size_t count)
{
    enum { SUMS = 8 };
    double sums[SUMS] = {0.0}, norm = 0.0;
    float scale;

    for (size_t i = 0; i < count; i++)
        sums[i % SUMS] += (double)gradients[i] * (double)gradients[i];
    for (int i = 0; i < SUMS; i++)
        norm += sums[i];
    norm = sqrt(norm);
    if (!isfinite(norm) || norm <= max_norm)
        return;
    scale = (float)(max_norm / (norm + 1e-6));
    for (size_t i = 0; i < count; i++)
        gradients[i] *= scale;
}

void optimizer_step(struct optimizer *optimizer, float lr, float *weights, const float *gradients)
{
    const struct optimizer_slice slice = {.count = optimizer->count,
                                          .weights = weights,
                                          .gradients = gradients,
                                          .state = optimizer->state};

    optimizer->step(optimizer, lr, &slice);
}

void optimizer_step_slice(const struct optimizer *optimizer, float lr,
                          const struct optimizer_slice *slice)
{
    optimizer->step(optimizer, lr, slice);
}
