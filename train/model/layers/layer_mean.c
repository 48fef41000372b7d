/* SPDX-License-Identifier: BSD-3-Clause */
/* Global average pooling: of each channel, the mean of all pixels. */
#include <string.h>

#include "train/model/kernel.h"
#include "train/model/layer.h"

KERNEL static void mean_forward(const struct layer *layer, const struct pass *pass, const float *in,
                                float *out)
{
    const int pixels = layer->in.height * layer->in.width, channels = layer->in.channels;
    const float part = 1.0F / (float)pixels;

    memset(out, 0, (size_t)pass->batch * channels * sizeof(*out));
    for (int i = 0; i < pass->batch; i++, out += channels) {
        for (int p = 0; p < pixels; p++, in += channels) {
#pragma omp simd
            for (int c = 0; c < channels; c++)
                out[c] += in[c] * part;
        }
    }
}

KERNEL static void mean_backward(const struct layer *layer, const struct pass *pass,
                                 const float *in, const float *out, float *dout, float *din)
{
    const int pixels = layer->in.height * layer->in.width, channels = layer->in.channels;
    const float part = 1.0F / (float)pixels;

    (void)in;
    (void)out;
    if (!din)
        return;
    for (int i = 0; i < pass->batch; i++, dout += channels) {
        for (int p = 0; p < pixels; p++, din += channels) {
#pragma omp simd
            for (int c = 0; c < channels; c++)
                din[c] = dout[c] * part;
        }
    }
}

const struct layer_kind layer_mean = {
    .name = "mean",
    .forward = mean_forward,
    .backward = mean_backward,
};
