/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of gradients that do not depend on the order of the additions. */
#include "grid.h"

#include <stdint.h>
#include <string.h>

#include "kernel.h"

void grid_start(const struct model *model, struct grid *grid)
{
    *grid = (struct grid){.count = 0};
    for (int i = 0; i < model->count; i++) {
        if (!model->layers[i].name)
            continue;
        grid->steps[grid->count++] = ldexpf(1.0F, -GRID_BITS - 3);
        grid->steps[grid->count++] = ldexpf(1.0F, -GRID_BITS - 3);
    }
}

/* A float without its sign; the order of such bits is that of the magnitudes. */
static inline uint32_t grid_magnitude(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffffu;
}

static float grid_from_magnitude(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Rounds count numbers. Returns the largest magnitude. */
KERNEL static float grid_round(float step, size_t count, const float *from, float *to)
{
    const float shift = grid_shift(step);
    uint32_t most = 0;

#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < count; i++) {
        const uint32_t size = grid_magnitude(from[i]);

        most = size > most ? size : most;
        to[i] = (from[i] + shift) - shift;
    }
    return grid_from_magnitude(most);
}

KERNEL static float grid_round_add(float step, size_t count, const float *from, float *to)
{
    const float shift = grid_shift(step);
    uint32_t most = 0;

#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < count; i++) {
        const uint32_t size = grid_magnitude(from[i]);

        most = size > most ? size : most;
        to[i] += (from[i] + shift) - shift;
    }
    return grid_from_magnitude(most);
}

/* One tensor, at `offset` in gradients and sums; its number is `tensor`. */
static void grid_add_tensor(const struct grid *grid, const struct model *model, int tensor,
                            size_t offset, size_t count, int scale, bool add, float *sums)
{
    const float step = grid->steps[tensor] * (float)scale;
    float *largest = &sums[model->parameters + 1 + (size_t)tensor];
    const float *from = model->gradients + offset;
    float most;

    most = add ? grid_round_add(step, count, from, sums + offset)
               : grid_round(step, count, from, sums + offset);
    *largest = (add ? *largest : 0.0F) + grid_power(most);
}

void grid_add(const struct grid *grid, const struct model *model, int scale, float loss, bool add,
              float *sums)
{
    size_t offset = 0;
    int tensor = 0;

    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t weights = (size_t)(layer->bias - layer->weight);
        const size_t biases = (size_t)layer->out.channels;

        if (!layer->name)
            continue;
        grid_add_tensor(grid, model, tensor++, offset, weights, scale, add, sums);
        offset += weights;
        grid_add_tensor(grid, model, tensor++, offset, biases, scale, add, sums);
        offset += biases;
    }
    sums[model->parameters] = (add ? sums[model->parameters] : 0.0F) + loss;
    if (!add)
        memset(&sums[model->parameters + 1 + (size_t)tensor], 0,
               (GRID_TAIL - 1 - (size_t)tensor) * sizeof(*sums));
}

void grid_advance(struct grid *grid, const struct model *model, const float *sums)
{
    for (int i = 0; i < grid->count; i++)
        grid->steps[i] = ldexpf(grid_power(sums[model->parameters + 1 + (size_t)i]), -GRID_BITS);
}
