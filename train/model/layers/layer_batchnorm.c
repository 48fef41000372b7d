/* SPDX-License-Identifier: BSD-3-Clause */
/* Batch normalisation: Ioffe and Szegedy, ICML 2015. */
#include <math.h>
#include <string.h>

#include "train/model/kernel.h"
#include "train/model/layer.h"

/*
 * A channel's values over all samples and pixels are brought to mean 0 and deviation 1, then
 * multiplied by a weight and moved by a bias. In a test, the running mean and variance of the
 * training passes take the place of the batch's.
 *
 * Sums over the batch are taken in blocks that stay in the first cache level, in float32 within a
 * block and in double over the blocks.
 */
#define BATCHNORM_EPSILON 1e-5F
#define BATCHNORM_MOMENTUM 0.1

enum { BATCHNORM_ROWS = 64 }; /* of a block */

/* Scratch memory, `channels` numbers each. */
struct batchnorm_scratch {
    double *mean,
        *squares;         /* of the batch; backward: sums of the gradients, and with what is left */
    float *sums, *parts;  /* of a block */
    float *scale, *shift; /* out = in * scale + shift */
};

static struct batchnorm_scratch batchnorm_scratch(const struct layer *layer)
{
    const size_t channels = (size_t)layer->in.channels;
    double *doubles = (double *)(void *)layer->scratch;
    float *floats = (float *)(void *)(doubles + 2 * channels);

    memset(doubles, 0, 2 * channels * sizeof(*doubles));
    return (struct batchnorm_scratch){
        doubles,           doubles + channels,    floats,
        floats + channels, floats + 2 * channels, floats + 3 * channels};
}

static size_t batchnorm_scratch_size(const struct layer *layer)
{
    return (size_t)layer->in.channels * (2 * sizeof(double) / sizeof(float) + 4);
}

static int batchnorm_rows(const struct layer *layer, const struct pass *pass)
{
    return pass->batch * layer->in.height * layer->in.width;
}

/* ---- forward ---- */

/* sums[c] of the block, and squares[c] of what is left when its mean is taken away. */
KERNEL static void batchnorm_block(int rows, int channels, const float *in, float *restrict sums,
                                   float *restrict squares)
{
    const float part = 1.0F / (float)rows;
    const float *from = in;

    memset(sums, 0, (size_t)channels * sizeof(*sums));
    memset(squares, 0, (size_t)channels * sizeof(*squares));
    for (int r = 0; r < rows; r++, from += channels) {
#pragma omp simd
        for (int c = 0; c < channels; c++)
            sums[c] += from[c];
    }
    for (int r = 0; r < rows; r++, in += channels) {
#pragma omp simd
        for (int c = 0; c < channels; c++) {
            const float x = in[c] - sums[c] * part;

            squares[c] += x * x;
        }
    }
}

/* Takes a block into mean and squares of those before it (Chan, Golub and LeVeque 1983). */
static void batchnorm_merge(int before, int rows, int channels, const struct batchnorm_scratch *to)
{
    const double part = (double)rows / (double)(before + rows);

    for (int c = 0; c < channels; c++) {
        const double off = (double)to->sums[c] / rows - to->mean[c];

        to->mean[c] += off * part;
        to->squares[c] += (double)to->parts[c] + off * off * before * part;
    }
}

/* Mean and 1 / deviation of the batch; the running ones follow them. */
static void batchnorm_measure(const struct layer *layer, int rows, const float *in,
                              const struct batchnorm_scratch *scratch)
{
    const int channels = layer->in.channels;

    for (int r = 0; r < rows; r += BATCHNORM_ROWS) {
        const int some = rows - r < BATCHNORM_ROWS ? rows - r : BATCHNORM_ROWS;

        batchnorm_block(some, channels, in + (size_t)r * channels, scratch->sums, scratch->parts);
        batchnorm_merge(r, some, channels, scratch);
    }
    for (int c = 0; c < channels; c++) {
        const double unbiased = scratch->squares[c] / (rows > 1 ? rows - 1 : 1);

        layer->stats[c] = (float)scratch->mean[c];
        layer->stats[channels + c] =
            (float)(1.0 / sqrt(scratch->squares[c] / rows + BATCHNORM_EPSILON));
        layer->mean[c] += (float)(BATCHNORM_MOMENTUM * (scratch->mean[c] - layer->mean[c]));
        layer->variance[c] += (float)(BATCHNORM_MOMENTUM * (unbiased - layer->variance[c]));
    }
}

KERNEL static void batchnorm_apply(int rows, int channels, bool relu, const float *scale,
                                   const float *shift, const float *in, float *restrict out)
{
    const float least = relu ? 0.0F : -INFINITY;

    for (int r = 0; r < rows; r++, in += channels, out += channels) {
#pragma omp simd
        for (int c = 0; c < channels; c++) {
            const float x = in[c] * scale[c] + shift[c];

            out[c] = x > least ? x : least;
        }
    }
}

static void batchnorm_forward(const struct layer *layer, const struct pass *pass, const float *in,
                              float *out)
{
    const int rows = batchnorm_rows(layer, pass), channels = layer->in.channels;
    const struct batchnorm_scratch scratch = batchnorm_scratch(layer);

    if (pass->training)
        batchnorm_measure(layer, rows, in, &scratch);
    for (int c = 0; c < channels; c++) {
        const float mean = pass->training ? layer->stats[c] : layer->mean[c];
        const float inverse = pass->training ? layer->stats[channels + c]
                                             : 1.0F / sqrtf(layer->variance[c] + BATCHNORM_EPSILON);

        scratch.scale[c] = layer->weight[c] * inverse;
        scratch.shift[c] = layer->bias[c] - mean * scratch.scale[c];
    }
    batchnorm_apply(rows, channels, layer->relu, scratch.scale, scratch.shift, in, out);
}

/* ---- backward ---- */

/* dout becomes 0 where relu cut. sums[c] of dout, products[c] of it and in less its mean. */
KERNEL static void batchnorm_block_backward(int rows, int channels, bool relu, const float *mean,
                                            const float *in, const float *out, float *restrict dout,
                                            float *restrict sums, float *restrict products)
{
    memset(sums, 0, (size_t)channels * sizeof(*sums));
    memset(products, 0, (size_t)channels * sizeof(*products));
    for (int r = 0; r < rows; r++, in += channels, out += channels, dout += channels) {
#pragma omp simd
        for (int c = 0; c < channels; c++) {
            const float x = !relu || out[c] > 0.0F ? dout[c] : 0.0F;

            dout[c] = x;
            sums[c] += x;
            products[c] += x * (in[c] - mean[c]);
        }
    }
}

/* din = dout * scale[c] + in * slope[c] + shift[c]. */
KERNEL static void batchnorm_apply_backward(int rows, int channels, const float *scale,
                                            const float *slope, const float *shift, const float *in,
                                            const float *dout, float *restrict din)
{
    for (int r = 0; r < rows; r++, in += channels, dout += channels, din += channels) {
#pragma omp simd
        for (int c = 0; c < channels; c++)
            din[c] = dout[c] * scale[c] + (in[c] * slope[c] + shift[c]);
    }
}

/* The gradients of weight and bias, and what din is made with. */
static void batchnorm_finish(const struct layer *layer, int rows, bool add,
                             const struct batchnorm_scratch *scratch)
{
    const int channels = layer->in.channels;

    for (int c = 0; c < channels; c++) {
        const double mean = layer->stats[c], inverse = layer->stats[channels + c];
        const double sum = scratch->mean[c], product = scratch->squares[c];
        const double scale = layer->weight[c] * inverse;
        const double slope = -scale * inverse * inverse * product / rows;

        layer->dbias[c] = (float)sum + (add ? layer->dbias[c] : 0.0F);
        layer->dweight[c] = (float)(product * inverse) + (add ? layer->dweight[c] : 0.0F);
        scratch->scale[c] = (float)scale;
        scratch->parts[c] = (float)slope;
        scratch->shift[c] = (float)(-scale * sum / rows - slope * mean);
    }
}

static void batchnorm_backward(const struct layer *layer, const struct pass *pass, const float *in,
                               const float *out, float *dout, float *din)
{
    const int rows = batchnorm_rows(layer, pass), channels = layer->in.channels;
    const struct batchnorm_scratch scratch = batchnorm_scratch(layer);

    for (int r = 0; r < rows; r += BATCHNORM_ROWS) {
        const int some = rows - r < BATCHNORM_ROWS ? rows - r : BATCHNORM_ROWS;
        const size_t at = (size_t)r * channels;

        batchnorm_block_backward(some, channels, layer->relu, layer->stats, in + at, out + at,
                                 dout + at, scratch.sums, scratch.parts);
        for (int c = 0; c < channels; c++) {
            scratch.mean[c] += (double)scratch.sums[c];
            scratch.squares[c] += (double)scratch.parts[c];
        }
    }
    batchnorm_finish(layer, rows, pass->add, &scratch);
    if (din)
        batchnorm_apply_backward(rows, channels, scratch.scale, scratch.parts, scratch.shift, in,
                                 dout, din);
}

const struct layer_kind layer_batchnorm = {
    .name = "batchnorm",
    .forward = batchnorm_forward,
    .backward = batchnorm_backward,
    .scratch_size = batchnorm_scratch_size,
};
