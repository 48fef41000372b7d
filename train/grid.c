/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of gradients that do not depend on the order of the additions. */
#include "grid.h"

#include <stdint.h>
#include <string.h>

#include "kernel.h"

void grid_start(const struct model *model, struct grid *grid)
{
    *grid = (struct grid){.count = model->tensor_count};
    for (int i = 0; i < grid->count; i++)
        grid->steps[i] = ldexpf(1.0F, -GRID_BITS - 3);
}

/* A float without its sign; the order of such bits is that of the magnitudes. */
static inline uint32_t grid_magnitude(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffffu;
}

/* to becomes, or grows by (add), the rounded numbers. Returns the largest magnitude. */
KERNEL static float grid_round(float step, size_t count, const float *from, bool add, float *to)
{
    const float shift = grid_shift(step);
    uint32_t most = 0;
    float largest;

#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < count; i++) {
        const uint32_t size = grid_magnitude(from[i]);
        const float rounded = (from[i] + shift) - shift;

        most = size > most ? size : most;
        to[i] = add ? to[i] + rounded : rounded;
    }
    memcpy(&largest, &most, sizeof(largest));
    return largest;
}

void grid_add(const struct grid *grid, const struct model *model, int scale, float loss, bool add,
              float *sums)
{
    const size_t tensors = (size_t)model->tensor_count;
    float *tail = &sums[model->parameters], *largest = tail + 1;

    for (size_t i = 0; i < tensors; i++) {
        const struct model_tensor *place = &model->tensors[i];
        const float step = grid->steps[i] * (float)scale;
        const float most = grid_round(step, place->count, model->gradients + place->offset, add,
                                      sums + place->offset);

        largest[i] = (add ? largest[i] : 0.0F) + grid_power(most);
    }
    *tail = (add ? *tail : 0.0F) + loss;
    if (!add)
        memset(largest + tensors, 0, (GRID_TAIL - 1 - tensors) * sizeof(*largest));
}

void grid_advance(struct grid *grid, const struct model *model, const float *sums)
{
    for (int i = 0; i < grid->count; i++)
        grid->steps[i] = ldexpf(grid_power(sums[model->parameters + 1 + (size_t)i]), -GRID_BITS);
}
