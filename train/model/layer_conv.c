/* SPDX-License-Identifier: BSD-3-Clause */
/* Convolution as a matrix product: the windows of one sample are copied to rows (im2col). */
#include <string.h>

#include "gemm.h"
#include "kernel.h"
#include "layer.h"

/*
 * One sample at a time, so that its windows stay in the second cache level:
 *
 *   windows (pixels x kernel*kernel*inputs)  *  weight (kernel*kernel*inputs x channels)
 *
 * A window is `kernel` runs of kernel*inputs floats that lie next to each other in the
 * sample as well, because channels are innermost. So the copy is a few long moves.
 */

static inline void conv_copy_windows(const struct layer *layer, int run, const float *in,
                                     float *windows)
{
    const int step = layer->in.channels, row = layer->in.width * step;

    for (int y = 0; y < layer->out.height; y++) {
        for (int x = 0; x < layer->out.width; x++) {
            const float *from = in + (size_t)y * row + (size_t)x * step;

            for (int k = 0; k < layer->kernel; k++, from += row, windows += run)
                memcpy(windows, from, (size_t)run * sizeof(*windows));
        }
    }
}

/* The usual run lengths are constants, so that the moves are compiled without a call. */
KERNEL static void conv_gather(const struct layer *layer, const float *in, float *windows)
{
    const int run = layer->kernel * layer->in.channels;

    if (run == 3)
        conv_copy_windows(layer, 3, in, windows);
    else if (run == 96)
        conv_copy_windows(layer, 96, in, windows);
    else
        conv_copy_windows(layer, run, in, windows);
}

/* The transpose of the gather: every window's gradient is added where it was copied from. */
KERNEL static void conv_scatter_add(const struct layer *layer, const float *dwindows, float *din)
{
    const int step = layer->in.channels, row = layer->in.width * step;
    const int run = layer->kernel * step;

    memset(din, 0, (size_t)shape_size(layer->in) * sizeof(*din));
    for (int y = 0; y < layer->out.height; y++) {
        for (int x = 0; x < layer->out.width; x++) {
            float *to = din + (size_t)y * row + (size_t)x * step;

            for (int k = 0; k < layer->kernel; k++, to += row, dwindows += run) {
#pragma omp simd
                for (int i = 0; i < run; i++)
                    to[i] += dwindows[i];
            }
        }
    }
}

static void conv_forward(const struct layer *layer, const struct pass *pass, const float *in,
                         float *out)
{
    const int pixels = layer->out.height * layer->out.width;
    const int depth = layer->spatial * layer->inputs, channels = layer->out.channels;

    for (int i = 0; i < pass->batch; i++) {
        conv_gather(layer, in, layer->scratch);
        gemm(false, false, pixels, channels, depth, layer->scratch, layer->weight, false, out);
        bias_forward(pixels, channels, layer->bias, layer->relu, out);
        in += shape_size(layer->in);
        out += shape_size(layer->out);
    }
}

static void conv_backward(const struct layer *layer, const struct pass *pass, const float *in,
                          const float *out, float *dout, float *din)
{
    const int pixels = layer->out.height * layer->out.width;
    const int depth = layer->spatial * layer->inputs, channels = layer->out.channels;

    bias_backward(pass->batch * pixels, channels, out, layer->relu, dout, layer->dbias);
    for (int i = 0; i < pass->batch; i++) {
        conv_gather(layer, in, layer->scratch);
        gemm(true, false, depth, channels, pixels, layer->scratch, dout, i > 0, layer->dweight);
        if (din) {
            gemm(false, true, pixels, depth, channels, dout, layer->weight, false, layer->scratch);
            conv_scatter_add(layer, layer->scratch, din);
            din += shape_size(layer->in);
        }
        in += shape_size(layer->in);
        dout += shape_size(layer->out);
    }
}

const struct layer_kind layer_conv = {
    .name = "conv",
    .forward = conv_forward,
    .backward = conv_backward,
};

size_t layer_scratch_size(const struct layer *layer)
{
    if (layer->kind != &layer_conv)
        return 0;
    return (size_t)layer->out.height * layer->out.width * layer->spatial * layer->inputs;
}
