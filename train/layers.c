/* SPDX-License-Identifier: BSD-3-Clause */
/* All kinds of layers. */
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "gemm.h"
#include "kernel.h"
#include "layer.h"
#include "rng.h"

/* ---- bias and relu after each matrix product, in one pass over memory ---- */

KERNEL static void bias_add(int rows, int columns, const float *bias, bool relu, float *out)
{
    for (int row = 0; row < rows; row++, out += columns) {
#pragma omp simd
        for (int i = 0; i < columns; i++) {
            const float x = out[i] + bias[i];

            out[i] = !relu || x > 0.0F ? x : 0.0F;
        }
    }
}

/* Sets dout to 0 where out is not positive; out may equal dout. */
KERNEL static void bias_cut(int rows, int columns, const float *out, float *dout)
{
    const size_t count = (size_t)rows * columns;

#pragma omp simd
    for (size_t i = 0; i < count; i++)
        dout[i] = out[i] > 0.0F ? dout[i] : 0.0F;
}

/* Computes out[row][column] += bias[column] unless bias is NULL, then max(0, .) if relu. */
static void bias_forward(int rows, int columns, const float *bias, bool relu, float *out)
{
    if (bias)
        bias_add(rows, columns, bias, relu, out);
    else if (relu)
        bias_cut(rows, columns, out, out);
}

/* Adds the column sums of dout to dbias. */
KERNEL static void bias_sum(int rows, size_t columns, const float *dout, float *restrict dbias)
{
    for (int row = 0; row < rows; row++, dout += columns) {
#pragma omp simd
        for (size_t i = 0; i < columns; i++)
            dbias[i] += dout[i];
    }
}

KERNEL static void bias_sum_relu(int rows, int columns, const float *out, float *dout, float *dbias)
{
    for (int row = 0; row < rows; row++, out += columns, dout += columns) {
#pragma omp simd
        for (int i = 0; i < columns; i++) {
            const float x = out[i] > 0.0F ? dout[i] : 0.0F;

            dout[i] = x;
            dbias[i] += x;
        }
    }
}

/*
 * Sets dout to 0 where relu set out to 0. Writes the column sums of dout to dbias, or adds them if
 * `add`, unless dbias is NULL.
 */
static void bias_backward(int rows, int columns, const float *out, bool relu, bool add, float *dout,
                          float *dbias)
{
    if (!dbias) {
        if (relu)
            bias_cut(rows, columns, out, dout);
        return;
    }
    if (!add)
        memset(dbias, 0, (size_t)columns * sizeof(*dbias));
    if (relu)
        bias_sum_relu(rows, columns, out, dout, dbias);
    else
        bias_sum(rows, (size_t)columns, dout, dbias);
}

/* ---- conv: convolution by tiles that need no copies of windows ---- */

enum { TILE_LANES = 16 };

/* The sizes of a convolution of one sample. The channels of a pixel are adjacent. */
struct tile_job {
    int height, width, channels; /* size of out */
    int kernel, stride;
    int frame_width, inputs; /* width and channels of the padded input */
};

/*
 * Here the compiler may fuse a product and a sum (FMA), as a CBLAS does. So different processors
 * may compute gradients that differ in the last bit. This is harmless, because all ranks use the
 * same mean of the gradients.
 *
 * A tile must fit the CPU's registers, so the loops are compiled separately for each instruction
 * set. With shorter vectors, the matrix products of a CBLAS are as fast.
 */
#if defined(__x86_64__) && defined(HAVE_CONFIG_H) && HAVE_TARGET_CLONES && !defined(__clang__)
#define TILE_VECTORS
typedef float tile_vector __attribute__((vector_size(4 * TILE_LANES), aligned(4), may_alias));

#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#pragma GCC target("avx512f")
#define TILE(name) tile_avx512_##name
#define TILE_ROWS 8
#include "tile_body.h"
#undef TILE
#undef TILE_ROWS
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC optimize("fp-contract=fast")
#pragma GCC target("avx2,fma")
#define TILE(name) tile_avx2_##name
#define TILE_ROWS 4
#include "tile_body.h"
#undef TILE
#undef TILE_ROWS
#pragma GCC pop_options
#endif

/* The kernels, fastest first. rows: rows per tile; 0: no tiles. */
static const struct tile_kernels {
    const char *name;
    int rows;
    /* Computes out = windows of frame x weight (kernel x kernel x inputs x channels). */
    void (*forward)(const struct tile_job *job, const float *frame, const float *weight,
                    float *out);
    /* Computes dweight += transposed windows of frame x dout. */
    void (*weight)(const struct tile_job *job, const float *frame, const float *dout,
                   float *dweight);
} tile_table[] = {
#ifdef TILE_VECTORS
    {"avx512f", 8, tile_avx512_forward, tile_avx512_weight},
    {"avx2", 4, tile_avx2_forward, tile_avx2_weight},
#endif
    {"none", 0, NULL, NULL},
};

static int tile_selected; /* index selected by tile_use, among the kernels that this CPU supports */

/* Returns the kernel with index `number` among those that this CPU supports, or NULL. */
static const struct tile_kernels *tile_find(int number)
{
    for (size_t i = 0; i < sizeof(tile_table) / sizeof(tile_table[0]); i++) {
        const int rows = tile_table[i].rows;
        bool runs = rows == 0;

#ifdef TILE_VECTORS
        runs = runs || (rows == 8 && __builtin_cpu_supports("avx512f")) ||
               (rows == 4 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#endif
        if (runs && number-- == 0)
            return &tile_table[i];
    }
    return NULL;
}

const char *tile_use(int number)
{
    const struct tile_kernels *kernels = tile_find(number);

    tile_selected = kernels ? number : 0;
    return kernels ? kernels->name : NULL;
}

/* Returns the selected kernel; NULL if it uses no tiles or the sizes are not multiples of a tile.
 */
static const struct tile_kernels *tile_for(const struct tile_job *job)
{
    const struct tile_kernels *kernels = tile_find(tile_selected);
    const int rows = kernels->rows;

    return rows > 0 && job->channels % TILE_LANES == 0 && job->width >= rows &&
                   job->kernel * job->inputs % rows == 0
               ? kernels
               : NULL;
}

/* ---- the layer ---- */

/*
 * Samples are processed one at a time, so that all data of one stay in the L2 cache. With padding,
 * the sample is first copied into a frame of zeros. The convolution then uses
 *
 * - tiles, if the sizes allow it; or
 * - a matrix product, for which the windows are copied to rows (im2col):
 *
 *       windows (pixels x kernel*kernel*inputs)  *  weight (kernel*kernel*inputs x channels)
 *
 *   A window consists of `kernel` runs of kernel*inputs floats. Because channels are innermost,
 *   each run is contiguous in the frame too, so the copy is a few long moves.
 */

/* ---- frames of zeros ---- */

static struct shape conv_frame_shape(struct shape inside, int edge)
{
    return (struct shape){inside.height + 2 * edge, inside.width + 2 * edge, inside.channels};
}

static size_t conv_frame_size(struct shape inside, int edge)
{
    return edge > 0 ? (size_t)shape_size(conv_frame_shape(inside, edge)) : 0;
}

/* Returns the address, in the frame, of row y of the inner image. */
static float *conv_frame_row(struct shape inside, int edge, float *frame, int y)
{
    const struct shape shape = conv_frame_shape(inside, edge);

    return frame + ((size_t)(y + edge) * shape.width + edge) * shape.channels;
}

/*
 * Copies `from` into the frame, whose edges are already zero. Without edges, returns `from` itself.
 */
static const float *conv_frame_fill(struct shape inside, int edge, const float *from, float *frame)
{
    const size_t row = (size_t)inside.width * inside.channels;

    for (int y = 0; edge > 0 && y < inside.height; y++)
        memcpy(conv_frame_row(inside, edge, frame, y), from + (size_t)y * row, row * sizeof(*from));
    return edge > 0 ? frame : from;
}

/* ---- scratch memory ---- */

struct conv_scratch {
    float *frame;   /* the padded input */
    float *around;  /* padded dout, or the padded din before its edges are removed */
    float *rotated; /* the rotated weight, for the gradient with respect to in */
    float *windows;
};

/*
 * Returns the padding of dout for the backward pass: with stride 1, din is the convolution of the
 * padded dout with the rotated weight.
 */
static int conv_edge(const struct layer *layer)
{
    return layer->kernel - 1 - layer->padding;
}

static size_t conv_around_size(const struct layer *layer)
{
    const size_t out = conv_frame_size(layer->out, conv_edge(layer));
    const size_t in = conv_frame_size(layer->in, layer->padding);

    return out > in ? out : in;
}

static size_t conv_scratch_size(const struct layer *layer)
{
    const size_t weights = layer_weight_size(layer);

    return conv_frame_size(layer->in, layer->padding) + conv_around_size(layer) + weights +
           (size_t)layer->out.height * layer->out.width * layer->spatial * layer->inputs;
}

/* Divides the layer's scratch memory and zeroes the input frame. */
static struct conv_scratch conv_scratch(const struct layer *layer)
{
    const size_t frame = conv_frame_size(layer->in, layer->padding);
    struct conv_scratch scratch = {.frame = layer->scratch, .around = layer->scratch + frame};

    scratch.rotated = scratch.around + conv_around_size(layer);
    scratch.windows = scratch.rotated + layer_weight_size(layer);
    memset(scratch.frame, 0, frame * sizeof(float));
    return scratch;
}

/* ---- windows ---- */

static inline void conv_copy_windows(const struct layer *layer, int run, const float *in,
                                     float *windows)
{
    const int row = (layer->in.width + 2 * layer->padding) * layer->in.channels;
    const int stride = layer->stride, step = stride * layer->in.channels;

    for (int y = 0; y < layer->out.height; y++) {
        for (int x = 0; x < layer->out.width; x++) {
            const float *from = in + (size_t)y * stride * row + (size_t)x * step;

            for (int k = 0; k < layer->kernel; k++, from += row, windows += run)
                memcpy(windows, from, (size_t)run * sizeof(*windows));
        }
    }
}

/* Passes the usual run lengths as constants, so that the compiler inlines the copies. */
KERNEL static void conv_gather(const struct layer *layer, const float *in, float *windows)
{
    const int run = layer->kernel * layer->in.channels;

    if (run == 3)
        conv_copy_windows(layer, 3, in, windows);
    else if (run == 9)
        conv_copy_windows(layer, 9, in, windows);
    else if (run == 48)
        conv_copy_windows(layer, 48, in, windows);
    else if (run == 96)
        conv_copy_windows(layer, 96, in, windows);
    else
        conv_copy_windows(layer, run, in, windows);
}

/* The transpose of conv_gather: adds every window's gradient to the place it was copied from. */
KERNEL static void conv_scatter_add(const struct layer *layer, const float *dwindows, float *din)
{
    const struct shape frame = conv_frame_shape(layer->in, layer->padding);
    const int row = frame.width * frame.channels, run = layer->kernel * frame.channels;
    const int stride = layer->stride, step = stride * frame.channels;

    memset(din, 0, (size_t)shape_size(frame) * sizeof(*din));
    for (int y = 0; y < layer->out.height; y++) {
        for (int x = 0; x < layer->out.width; x++) {
            float *to = din + (size_t)y * stride * row + (size_t)x * step;

            for (int k = 0; k < layer->kernel; k++, to += row, dwindows += run) {
#pragma omp simd
                for (int i = 0; i < run; i++)
                    to[i] += dwindows[i];
            }
        }
    }
}

/* ---- the layer ---- */

static struct tile_job conv_job(const struct layer *layer)
{
    return (struct tile_job){
        .height = layer->out.height,
        .width = layer->out.width,
        .channels = layer->out.channels,
        .kernel = layer->kernel,
        .stride = layer->stride,
        .frame_width = layer->in.width + 2 * layer->padding,
        .inputs = layer->inputs,
    };
}

static void conv_forward(const struct layer *layer, const struct pass *pass, const float *in,
                         float *out)
{
    const int pixels = layer->out.height * layer->out.width;
    const int depth = layer->spatial * layer->inputs, channels = layer->out.channels;
    const struct conv_scratch scratch = conv_scratch(layer);
    const struct tile_job job = conv_job(layer);
    const struct tile_kernels *tiles = tile_for(&job);

    for (int i = 0; i < pass->batch; i++) {
        const float *frame = conv_frame_fill(layer->in, layer->padding, in, scratch.frame);

        if (tiles) {
            tiles->forward(&job, frame, layer->weight, out);
        } else {
            conv_gather(layer, frame, scratch.windows);
            gemm(false, false, pixels, channels, depth, scratch.windows, layer->weight, false, out);
        }
        bias_forward(pixels, channels, layer->bias, layer->relu, out);
        in += shape_size(layer->in);
        out += shape_size(layer->out);
    }
}

/* Computes the gradient with respect to the weight, or adds it if pass->add. */
static void conv_backward_weight(const struct layer *layer, const struct pass *pass,
                                 const float *in, const float *dout)
{
    const struct conv_scratch scratch = conv_scratch(layer);
    const struct tile_job job = conv_job(layer);
    const struct tile_kernels *tiles = tile_for(&job);

    if (!pass->add)
        memset(layer->dweight, 0, layer_weight_size(layer) * sizeof(float));
    for (int i = 0; i < pass->batch; i++) {
        const float *frame = conv_frame_fill(layer->in, layer->padding, in, scratch.frame);

        if (tiles) {
            tiles->weight(&job, frame, dout, layer->dweight);
        } else {
            conv_gather(layer, frame, scratch.windows);
            gemm(true, false, layer->spatial * layer->inputs, layer->out.channels,
                 layer->out.height * layer->out.width, scratch.windows, dout, true, layer->dweight);
        }
        in += shape_size(layer->in);
        dout += shape_size(layer->out);
    }
}

static void conv_backward_tiles(const struct layer *layer, const struct pass *pass,
                                const struct tile_job *job, const struct tile_kernels *tiles,
                                const float *dout, float *din)
{
    const struct conv_scratch scratch = conv_scratch(layer);
    const int edge = conv_edge(layer), inputs = layer->inputs, channels = layer->out.channels;
    const float *weight = layer->weight;

    /* rotated[last - k][out][in] = weight[k][in][out] */
    for (int k = layer->spatial - 1; k >= 0; k--) {
        for (int i = 0; i < inputs; i++) {
            for (int c = 0; c < channels; c++)
                scratch.rotated[((size_t)k * channels + c) * inputs + i] = *weight++;
        }
    }
    memset(scratch.around, 0, conv_frame_size(layer->out, edge) * sizeof(float));
    for (int i = 0; i < pass->batch; i++) {
        tiles->forward(job, conv_frame_fill(layer->out, edge, dout, scratch.around),
                       scratch.rotated, din);
        dout += shape_size(layer->out);
        din += shape_size(layer->in);
    }
}

/* Computes dout x weight, the gradients of the windows, and adds them up in din. */
static void conv_backward_windows(const struct layer *layer, const struct pass *pass,
                                  const float *dout, float *din)
{
    const struct conv_scratch scratch = conv_scratch(layer);
    const size_t row = (size_t)layer->in.width * layer->in.channels;

    for (int i = 0; i < pass->batch; i++) {
        gemm(false, true, layer->out.height * layer->out.width, layer->spatial * layer->inputs,
             layer->out.channels, dout, layer->weight, false, scratch.windows);
        conv_scatter_add(layer, scratch.windows, layer->padding > 0 ? scratch.around : din);
        for (int y = 0; layer->padding > 0 && y < layer->in.height; y++)
            memcpy(din + (size_t)y * row,
                   conv_frame_row(layer->in, layer->padding, scratch.around, y),
                   row * sizeof(*din));
        dout += shape_size(layer->out);
        din += shape_size(layer->in);
    }
}

static void conv_backward(const struct layer *layer, const struct pass *pass, const float *in,
                          const float *out, float *dout, float *din)
{
    const int pixels = layer->out.height * layer->out.width, edge = conv_edge(layer);
    /* The gradient with respect to in is a convolution of dout. */
    const struct tile_job job = {
        .height = layer->in.height,
        .width = layer->in.width,
        .channels = layer->inputs,
        .kernel = layer->kernel,
        .stride = 1,
        .frame_width = layer->out.width + 2 * edge,
        .inputs = layer->out.channels,
    };
    const struct tile_kernels *tiles =
        din && layer->stride == 1 && edge >= 0 ? tile_for(&job) : NULL;

    bias_backward(pass->batch * pixels, layer->out.channels, out, layer->relu, pass->add, dout,
                  layer->dbias);
    conv_backward_weight(layer, pass, in, dout);
    if (tiles)
        conv_backward_tiles(layer, pass, &job, tiles, dout, din);
    else if (din)
        conv_backward_windows(layer, pass, dout, din);
}

const struct layer_kind layer_conv = {
    .name = "conv",
    .forward = conv_forward,
    .backward = conv_backward,
    .scratch_size = conv_scratch_size,
};

/* ---- dense: one matrix product for the whole batch ---- */

static void dense_forward(const struct layer *layer, const struct pass *pass, const float *in,
                          float *out)
{
    const int channels = layer->out.channels;

    gemm(false, false, pass->batch, channels, shape_size(layer->in), in, layer->weight, false, out);
    bias_forward(pass->batch, channels, layer->bias, layer->relu, out);
}

static void dense_backward(const struct layer *layer, const struct pass *pass, const float *in,
                           const float *out, float *dout, float *din)
{
    const int inputs = shape_size(layer->in), channels = layer->out.channels;

    bias_backward(pass->batch, channels, out, layer->relu, pass->add, dout, layer->dbias);
    gemm(true, false, inputs, channels, pass->batch, in, dout, pass->add, layer->dweight);
    if (din)
        gemm(false, true, pass->batch, inputs, channels, dout, layer->weight, false, din);
}

const struct layer_kind layer_dense = {
    .name = "dense",
    .forward = dense_forward,
    .backward = dense_backward,
};

/* ---- dropout: random numbers by sample and step, independent of the number of ranks ---- */

/*
 * Computes to[i] = from[i] / (1 - rate) or 0. The backward pass draws the same numbers again, which
 * is cheaper than storing a mask.
 */
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

/* ---- pool: maximum over windows of 2 x 2 pixels ---- */

static inline float pool_max(float a, float b)
{
    return a > b ? a : b;
}

KERNEL static void pool_forward(const struct layer *layer, const struct pass *pass, const float *in,
                                float *out)
{
    const int channels = layer->in.channels, width = layer->out.width;
    const size_t row = (size_t)layer->in.width * channels;

    for (int i = 0; i < pass->batch; i++, in += shape_size(layer->in)) {
        for (int y = 0; y < layer->out.height; y++) {
            const float *upper = in + 2 * (size_t)y * row, *lower = upper + row;

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
    }
}

/*
 * The gradient goes to the first of the four pixels that equals the maximum. Needs neither branches
 * nor stored indices.
 */
KERNEL static void pool_backward(const struct layer *layer, const struct pass *pass,
                                 const float *in, const float *out, float *dout, float *din)
{
    const int channels = layer->in.channels, width = layer->out.width;
    const size_t row = (size_t)layer->in.width * channels;

    if (!din)
        return;
    for (int i = 0; i < pass->batch * layer->out.height; i++) {
        const size_t at = i / layer->out.height * (size_t)shape_size(layer->in) +
                          2 * (size_t)(i % layer->out.height) * row;
        const float *upper = in + at, *lower = upper + row;
        float *restrict dupper = din + at, *restrict dlower = din + at + row;

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
}

const struct layer_kind layer_pool = {
    .name = "pool",
    .forward = pool_forward,
    .backward = pool_backward,
};

/* ---- mean: average over all pixels, per channel ---- */

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

/* ---- add: the output of a block of layers plus its input ---- */

/*
 * If the block has reduced the size of the picture and increased its channels, every second pixel
 * of the input is used, and its channels are added to the middle channels of the sum (option A of
 * He et al.):
 *
 *     side  c0 c1         sum  s0    s1    s2    s3
 *                            +       c0    c1
 *
 * For each pixel, adds from[pixel of the side] to to[pixel of the sum], or with to_side the other
 * way round.
 */
KERNEL static void add_pixels(const struct layer *layer, int batch, bool to_side, float *to,
                              const float *from)
{
    const struct shape out = layer->out, side = layer->side_shape;
    const int step = (side.width + out.width - 1) / out.width; /* distance between used pixels */
    const int first =
        (out.channels - side.channels) / 2; /* channel of the sum for channel 0 of the side */

    for (int row = 0; row < batch * out.height; row++) {
        const int image = row / out.height, y = row % out.height * step;

        for (int x = 0; x < out.width; x++) {
            const size_t sum = ((size_t)row * out.width + x) * out.channels + first;
            const size_t pixel = ((size_t)image * side.height + y) * side.width + x * step;
            float *restrict there = to + (to_side ? pixel * side.channels : sum);
            const float *here = from + (to_side ? sum : pixel * side.channels);

#pragma omp simd
            for (int c = 0; c < side.channels; c++)
                there[c] += here[c];
        }
    }
}

KERNEL static void add_equal(size_t count, bool relu, const float *in, const float *side,
                             float *restrict out)
{
    const float least = relu ? 0.0F : -__builtin_inff();

#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float x = in[i] + side[i];

        out[i] = x > least ? x : least;
    }
}

static bool add_is_equal(const struct layer *layer)
{
    return memcmp(&layer->out, &layer->side_shape, sizeof(layer->out)) == 0;
}

static void add_forward(const struct layer *layer, const struct pass *pass, const float *in,
                        float *out)
{
    const size_t count = (size_t)pass->batch * shape_size(layer->out);

    if (add_is_equal(layer)) {
        add_equal(count, layer->relu, in, layer->side, out);
        return;
    }
    memcpy(out, in, count * sizeof(*out));
    add_pixels(layer, pass->batch, false, out, layer->side);
    bias_forward(pass->batch * layer->out.height * layer->out.width, layer->out.channels, NULL,
                 layer->relu, out);
}

KERNEL static void add_split(size_t count, bool relu, const float *out, const float *dout,
                             float *restrict din, float *restrict dside)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float x = !relu || out[i] > 0.0F ? dout[i] : 0.0F;

        din[i] = x;
        dside[i] = x;
    }
}

static void add_backward(const struct layer *layer, const struct pass *pass, const float *in,
                         const float *out, float *dout, float *din)
{
    (void)in;
    add_split((size_t)pass->batch * shape_size(layer->out), layer->relu, out, dout, din,
              layer->dside);
}

void add_join(const struct layer *add, const struct pass *pass, float *dsource)
{
    if (add_is_equal(add))
        bias_sum(1, (size_t)pass->batch * shape_size(add->out), add->dside, dsource);
    else
        add_pixels(add, pass->batch, true, dsource, add->dside);
}

const struct layer_kind layer_add = {
    .name = "add",
    .forward = add_forward,
    .backward = add_backward,
};

/* ---- batch normalisation: Ioffe and Szegedy, ICML 2015 ---- */

/*
 * The values of a channel, over all samples and pixels, are normalised to mean 0 and deviation 1,
 * then multiplied by a weight and increased by a bias. Tests use the running mean and variance of
 * the training passes instead of the batch's.
 *
 * Sums over the batch are computed in blocks that fit the L1 cache: in float32 within a block, in
 * double across blocks.
 */
#define BATCHNORM_EPSILON 1e-5F
#define BATCHNORM_MOMENTUM 0.1

enum { BATCHNORM_ROWS = 64 }; /* rows of pixels per block */

/* Scratch memory, `channels` numbers each. */
struct batchnorm_scratch {
    double *mean,
        *squares; /* of the batch; in the backward pass: sums of dout and of dout * (in - mean) */
    float *sums, *parts;  /* sums of one block */
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

/* ---- forward ---- */

/* Computes the sums[c] of the block, and the squares[c] of the deviations from the block's mean. */
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

/* Computes mean and 1 / deviation of the batch, and updates the running statistics. */
static void batchnorm_measure(const struct layer *layer, int rows, const float *in,
                              const struct batchnorm_scratch *scratch)
{
    const int channels = layer->in.channels;

    for (int r = 0; r < rows; r += BATCHNORM_ROWS) {
        const int some = rows - r < BATCHNORM_ROWS ? rows - r : BATCHNORM_ROWS;

        batchnorm_block(some, channels, in + (size_t)r * channels, scratch->sums, scratch->parts);
        /*
         * Merge the block into the mean and squares of the previous blocks (Chan, Golub and LeVeque
         * 1983).
         */
        for (int c = 0; c < channels; c++) {
            const double part = (double)some / (double)(r + some);
            const double off = (double)scratch->sums[c] / some - scratch->mean[c];

            scratch->mean[c] += off * part;
            scratch->squares[c] += (double)scratch->parts[c] + off * off * r * part;
        }
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
    const int rows = pass->batch * layer->in.height * layer->in.width;
    const int channels = layer->in.channels;
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

/*
 * Sets dout to 0 where relu set out to 0. Computes the sums[c] of dout, and the products[c] of dout
 * and (in - mean).
 */
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

/* Computes din = dout * scale[c] + in * slope[c] + shift[c]. */
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

static void batchnorm_backward(const struct layer *layer, const struct pass *pass, const float *in,
                               const float *out, float *dout, float *din)
{
    const int rows = pass->batch * layer->in.height * layer->in.width;
    const int channels = layer->in.channels;
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
    /* Compute the gradients of weight and bias, and the coefficients of din. */
    for (int c = 0; c < channels; c++) {
        const double mean = layer->stats[c], inverse = layer->stats[channels + c];
        const double sum = scratch.mean[c], product = scratch.squares[c];
        const double scale = layer->weight[c] * inverse;
        const double slope = -scale * inverse * inverse * product / rows;

        layer->dbias[c] = (float)sum + (pass->add ? layer->dbias[c] : 0.0F);
        layer->dweight[c] = (float)(product * inverse) + (pass->add ? layer->dweight[c] : 0.0F);
        scratch.scale[c] = (float)scale;
        scratch.parts[c] = (float)slope;
        scratch.shift[c] = (float)(-scale * sum / rows - slope * mean);
    }
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
