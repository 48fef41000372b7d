/* SPDX-License-Identifier: BSD-3-Clause */
/* Dropout: drawn by sample and step, so that it does not depend on the number of ranks. */
#include <string.h>

#include "train/model/kernel.h"
#include "train/model/layer.h"
#include "train/model/rng.h"

/* to[i] = from[i] / (1 - rate) or 0. Drawing again in the backward pass is cheaper than a mask. */
KERNEL static void dropout_sample(uint64_t key, int count, uint32_t threshold, float scale,
                                  const float *from, float *restrict to)
{
#pragma omp simd
    for (int i = 0; i < count; i++)
        to[i] = (rng_u32(key, (uint32_t)i) >> 8) < threshold ? 0.0F : from[i] * scale;
}

static void dropout_apply(const struct layer *layer, const struct pass *pass, const float *from,
                          float *to)
{
    const int count = shape_size(layer->in);
    const uint32_t threshold = (uint32_t)(layer->rate * 0x1p24F);
    const float scale = 1.0F / (1.0F - layer->rate);

    for (int i = 0; i < pass->batch; i++, from += count, to += count) {
        const uint64_t sample = (uint64_t)layer->index << 32 | pass->positions[i];

        dropout_sample(rng_key(pass->seed, RNG_DROPOUT, pass->step, sample), count, threshold,
                       scale, from, to);
    }
}

static void dropout_forward(const struct layer *layer, const struct pass *pass, const float *in,
                            float *out)
{
    if (pass->training)
        dropout_apply(layer, pass, in, out);
    else
        memcpy(out, in, (size_t)pass->batch * shape_size(layer->in) * sizeof(*out));
}

static void dropout_backward(const struct layer *layer, const struct pass *pass, const float *in,
                             const float *out, float *dout, float *din)
{
    (void)in;
    (void)out;
    if (din)
        dropout_apply(layer, pass, dout, din);
}

const struct layer_kind layer_dropout = {
    .name = "dropout",
    .forward = dropout_forward,
    .backward = dropout_backward,
};
