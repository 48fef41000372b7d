/* SPDX-License-Identifier: BSD-3-Clause */
/* Convolution. */
#include <stddef.h>
#include <string.h>

#include "gemm.h"
#include "kernel.h"
#include "layer.h"

/* ---- tiles: convolution without copies of windows ---- */

enum { TILE_LANES = 16 };

/* One sample. All pixels have their channels next to each other. */
struct tile_job {
    int height, width, channels; /* of out */
    int kernel, stride;
    int frame_width, inputs; /* of what the windows look at, its padding included */
};

/*
 * Products here are fused with sums, as in a CBLAS: gradients may differ in the last bit between
 * unlike processors, which is no harm because their mean is made once for all ranks.
 *
 * A tile has to fit the registers of the CPU, so the loops are compiled for each kind by hand.
 * Where vectors are shorter, the matrix products of a CBLAS are no slower.
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

/* The best first. rows: of a tile, 0 for none. */
static const struct tile_kernels {
    const char *name;
    int rows;
    /* out = the windows of frame x weight (kernel x kernel x inputs x channels). */
    void (*forward)(const struct tile_job *job, const float *frame, const float *weight,
                    float *out);
    /* dweight += the transposed windows of frame x dout. */
    void (*weight)(const struct tile_job *job, const float *frame, const float *dout,
                   float *dweight);
} tile_table[] = {
#ifdef TILE_VECTORS
    {"avx512f", 8, tile_avx512_forward, tile_avx512_weight},
    {"avx2", 4, tile_avx2_forward, tile_avx2_weight},
#endif
    {"none", 0, NULL, NULL},
};

static int tile_passed; /* over by tile_use, of those that this CPU can run */

static bool tile_runs(const struct tile_kernels *kernels)
{
#ifdef TILE_VECTORS
    if (kernels->rows == 8)
        return __builtin_cpu_supports("avx512f");
    if (kernels->rows == 4)
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return kernels->rows == 0;
}

/* Number `number` of those that this CPU can run; NULL: there are not so many. */
static const struct tile_kernels *tile_find(int number)
{
    for (size_t i = 0; i < sizeof(tile_table) / sizeof(tile_table[0]); i++)
        if (tile_runs(&tile_table[i]) && number-- == 0)
            return &tile_table[i];
    return NULL;
}

const char *tile_use(int number)
{
    const struct tile_kernels *kernels = tile_find(number);

    tile_passed = kernels ? number : 0;
    return kernels ? kernels->name : NULL;
}

/* NULL: this CPU has no vectors for it, or the sizes are no whole numbers of tiles. */
static const struct tile_kernels *tile_for(const struct tile_job *job)
{
    const struct tile_kernels *kernels = tile_find(tile_passed);
    const int rows = kernels->rows;

    return rows > 0 && job->channels % TILE_LANES == 0 && job->width >= rows &&
                   job->kernel * job->inputs % rows == 0
               ? kernels
               : NULL;
}

/* ---- the layer ---- */

/*
 * One sample at a time, so that all it needs stays in the second cache level. With padding the
 * sample is first copied into a frame of zeros. Then either of
 *
 * - tiles, where the sizes allow it;
 * - a matrix product, for which the windows are copied to rows (im2col):
 *
 *       windows (pixels x kernel*kernel*inputs)  *  weight (kernel*kernel*inputs x channels)
 *
 *   A window is `kernel` runs of kernel*inputs floats that lie next to each other in the frame as
 *   well, because channels are innermost. So the copy is a few long moves.
 */

static int conv_stride(const struct layer *layer)
{
    return layer->stride > 0 ? layer->stride : 1;
}

/* ---- frames of zeros ---- */

static struct shape conv_frame_shape(struct shape inside, int edge)
{
    return (struct shape){inside.height + 2 * edge, inside.width + 2 * edge, inside.channels};
}

static size_t conv_frame_size(struct shape inside, int edge)
{
    return edge > 0 ? (size_t)shape_size(conv_frame_shape(inside, edge)) : 0;
}

/* Where a row of what is inside is in the frame. */
static float *conv_frame_row(struct shape inside, int edge, float *frame, int y)
{
    const struct shape shape = conv_frame_shape(inside, edge);

    return frame + ((size_t)(y + edge) * shape.width + edge) * shape.channels;
}

/* from with zeros around it; the frame's edges are zeros already. */
static const float *conv_frame_fill(struct shape inside, int edge, const float *from, float *frame)
{
    const size_t row = (size_t)inside.width * inside.channels;

    for (int y = 0; edge > 0 && y < inside.height; y++)
        memcpy(conv_frame_row(inside, edge, frame, y), from + (size_t)y * row, row * sizeof(*from));
    return edge > 0 ? frame : from;
}

/* ---- scratch memory ---- */

struct conv_scratch {
    float *frame;  /* of in */
    float *around; /* of dout, or of din on the way there */
    float *turned; /* weight, for the gradient by in */
    float *windows;
};

/* With stride 1 din is a convolution of dout with the weight turned round, and zeros around. */
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

/* The frame's edges are made zeros. */
static struct conv_scratch conv_scratch(const struct layer *layer)
{
    const size_t frame = conv_frame_size(layer->in, layer->padding);
    struct conv_scratch scratch = {.frame = layer->scratch, .around = layer->scratch + frame};

    scratch.turned = scratch.around + conv_around_size(layer);
    scratch.windows = scratch.turned + layer_weight_size(layer);
    memset(scratch.frame, 0, frame * sizeof(float));
    return scratch;
}

/* ---- windows ---- */

static inline void conv_copy_windows(const struct layer *layer, int run, const float *in,
                                     float *windows)
{
    const int row = (layer->in.width + 2 * layer->padding) * layer->in.channels;
    const int stride = conv_stride(layer), step = stride * layer->in.channels;

    for (int y = 0; y < layer->out.height; y++) {
        for (int x = 0; x < layer->out.width; x++) {
            const float *from = in + (size_t)y * stride * row + (size_t)x * step;

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
    else if (run == 9)
        conv_copy_windows(layer, 9, in, windows);
    else if (run == 48)
        conv_copy_windows(layer, 48, in, windows);
    else if (run == 96)
        conv_copy_windows(layer, 96, in, windows);
    else
        conv_copy_windows(layer, run, in, windows);
}

/* The transpose of the gather: every window's gradient is added where it was copied from. */
KERNEL static void conv_scatter_add(const struct layer *layer, const float *dwindows, float *din)
{
    const struct shape frame = conv_frame_shape(layer->in, layer->padding);
    const int row = frame.width * frame.channels, run = layer->kernel * frame.channels;
    const int stride = conv_stride(layer), step = stride * frame.channels;

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
        .stride = conv_stride(layer),
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

/* The gradient by the weight, which grows. */
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

/* turned[last - k][out][in] = weight[k][in][out] */
static void conv_turn(const struct layer *layer, float *turned)
{
    const int inputs = layer->inputs, channels = layer->out.channels;
    const float *weight = layer->weight;

    for (int k = layer->spatial - 1; k >= 0; k--) {
        for (int i = 0; i < inputs; i++) {
            for (int c = 0; c < channels; c++)
                turned[((size_t)k * channels + c) * inputs + i] = *weight++;
        }
    }
}

static void conv_backward_tiles(const struct layer *layer, const struct pass *pass,
                                const struct tile_job *job, const struct tile_kernels *tiles,
                                const float *dout, float *din)
{
    const struct conv_scratch scratch = conv_scratch(layer);
    const int edge = conv_edge(layer);

    conv_turn(layer, scratch.turned);
    memset(scratch.around, 0, conv_frame_size(layer->out, edge) * sizeof(float));
    for (int i = 0; i < pass->batch; i++) {
        tiles->forward(job, conv_frame_fill(layer->out, edge, dout, scratch.around), scratch.turned,
                       din);
        dout += shape_size(layer->out);
        din += shape_size(layer->in);
    }
}

/* dout x weight are the gradients of the windows, which are added up. */
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
    /* The gradient by in is a convolution of dout. */
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
        din && conv_stride(layer) == 1 && edge >= 0 ? tile_for(&job) : NULL;

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
