/* SPDX-License-Identifier: BSD-3-Clause */
/* Optimizers over flat parameter memory. */
#include "optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel.h"
#include "train/failure.h"

struct optimizer {
    void (*step)(struct optimizer *optimizer, float lr, float *weights, const float *gradients);
    size_t count;
    float momentum, weight_decay;
    float *first;  /* sgd: velocity; adadelta: running mean of squared gradients */
    float *second; /* adadelta: running mean of squared moves; sgd: NULL */
};

/* Velocity starts at 0, and momentum * 0 + g is g: the first step needs no case of its own. */
KERNEL static void optimizer_sgd(struct optimizer *optimizer, float lr, float *weights,
                                 const float *gradients)
{
    const float momentum = optimizer->momentum, decay = optimizer->weight_decay;
    float *velocity = optimizer->first;
    const size_t count = optimizer->count;

#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        velocity[i] = momentum * velocity[i] + (gradients[i] + decay * weights[i]);
        weights[i] -= lr * velocity[i];
    }
}

KERNEL static void optimizer_adadelta(struct optimizer *optimizer, float lr, float *weights,
                                      const float *gradients)
{
    const float rho = OPTIMIZER_RHO, epsilon = OPTIMIZER_EPSILON;
    const float decay = optimizer->weight_decay;
    float *squares = optimizer->first, *moves = optimizer->second;
    const size_t count = optimizer->count;

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
    optimizer->first = calloc(count, sizeof(float));
    optimizer->second = adadelta ? calloc(count, sizeof(float)) : NULL;
    if (!optimizer->first || (adadelta && !optimizer->second)) {
        optimizer_destroy(optimizer);
        return failure("out of memory for the optimizer's state of %zu parameters", count);
    }
    *optimizer_p = optimizer;
    return 0;
}

void optimizer_destroy(struct optimizer *optimizer)
{
    if (!optimizer)
        return;
    free(optimizer->first);
    free(optimizer->second);
    free(optimizer);
}

size_t optimizer_state_count(const struct optimizer *optimizer)
{
    return optimizer->count * (optimizer->second ? 2 : 1);
}

void optimizer_state(struct optimizer *optimizer, bool save, float *state)
{
    float *parts[2] = {optimizer->first, optimizer->second};

    for (int i = 0; i < 2 && parts[i]; i++, state += optimizer->count)
        memcpy(save ? state : parts[i], save ? parts[i] : state, optimizer->count * sizeof(float));
}

void optimizer_step(struct optimizer *optimizer, float lr, float *weights, const float *gradients)
{
    optimizer->step(optimizer, lr, weights, gradients);
}
