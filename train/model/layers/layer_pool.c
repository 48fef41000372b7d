/* SPDX-License-Identifier: BSD-3-Clause */
/* Maximum over windows of 2 x 2 pixels. */
#include "train/model/kernel.h"
#include "train/model/layer.h"

static inline float pool_max(float a, float b)
{
    return a > b ? a : b;
}

/* One row of out from the two rows of in above it. */
static inline void pool_row(int width, int channels, const float *upper, const float *lower,
                            float *restrict out)
{
    for (int x = 0; x < width; x++) {
#pragma omp simd
        for (int c = 0; c < channels; c++)
            out[c] = pool_max(pool_max(upper[c], upper[channels + c]),
                              pool_max(lower[c], lower[channels + c]));
        upper += 2 * channels;
        lower += 2 * channels;
        out += channels;
    }
}

KERNEL static void pool_forward(const struct layer *layer, const struct pass *pass, const float *in,
                                float *out)
{
    const int channels = layer->in.channels, width = layer->out.width;
    const size_t row = (size_t)layer->in.width * channels;

    for (int i = 0; i < pass->batch; i++) {
        for (int y = 0; y < layer->out.height; y++) {
            const float *upper = in + 2 * (size_t)y * row;

            pool_row(width, channels, upper, upper + row, out);
            out += width * channels;
        }
        in += shape_size(layer->in);
    }
}

/* The gradient goes to the first of the four that equals the maximum; no branch, no memory of it.
 */
static inline void pool_row_backward(int width, int channels, const float *upper,
                                     const float *lower, const float *out, const float *dout,
                                     float *restrict dupper, float *restrict dlower)
{
    for (int x = 0; x < width; x++) {
#pragma omp simd
        for (int c = 0; c < channels; c++) {
            const float most = out[c];
            float rest = dout[c], part;

            part = upper[c] == most ? rest : 0.0F;
            dupper[c] = part;
            rest = upper[c] == most ? 0.0F : rest;
            part = upper[channels + c] == most ? rest : 0.0F;
            dupper[channels + c] = part;
            rest = upper[channels + c] == most ? 0.0F : rest;
            part = lower[c] == most ? rest : 0.0F;
            dlower[c] = part;
            rest = lower[c] == most ? 0.0F : rest;
            dlower[channels + c] = lower[channels + c] == most ? rest : 0.0F;
        }
        upper += 2 * channels;
        lower += 2 * channels;
        dupper += 2 * channels;
        dlower += 2 * channels;
        out += channels;
        dout += channels;
    }
}

KERNEL static void pool_backward(const struct layer *layer, const struct pass *pass,
                                 const float *in, const float *out, float *dout, float *din)
{
    const int channels = layer->in.channels, width = layer->out.width;
    const size_t row = (size_t)layer->in.width * channels;

    if (!din)
        return;
    for (int i = 0; i < pass->batch; i++) {
        for (int y = 0; y < layer->out.height; y++) {
            const float *upper = in + 2 * (size_t)y * row;
            float *dupper = din + 2 * (size_t)y * row;

            pool_row_backward(width, channels, upper, upper + row, out, dout, dupper, dupper + row);
            out += width * channels;
            dout += width * channels;
        }
        in += shape_size(layer->in);
        din += shape_size(layer->in);
    }
}

const struct layer_kind layer_pool = {
    .name = "pool",
    .forward = pool_forward,
    .backward = pool_backward,
};
