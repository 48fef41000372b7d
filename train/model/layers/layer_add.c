/* SPDX-License-Identifier: BSD-3-Clause */
/* Addition: what a block of layers makes of its input, plus the input itself. */
#include <string.h>

#include "train/model/kernel.h"
#include "train/model/layer.h"

/*
 * Where the block has made the picture smaller and the channels more, every second pixel of the
 * input is taken, and its channels come in the middle of the sum's (option A of He et al.):
 *
 *     side  c0 c1         sum  s0    s1    s2    s3
 *                            +       c0    c1
 */
struct add_map {
    int step;  /* pixels of the side from one to the next that is taken */
    int first; /* channel of the sum that gets the side's first */
};

static struct add_map add_map_of(const struct layer *layer)
{
    return (struct add_map){
        .step = (layer->side_shape.width + layer->out.width - 1) / layer->out.width,
        .first = (layer->out.channels - layer->side_shape.channels) / 2,
    };
}

/* Calls for each pixel: to[pixel of the side] += from[pixel of the sum], or the other way. */
KERNEL static void add_pixels(const struct layer *layer, int batch, bool to_side, float *to,
                              const float *from)
{
    const struct shape out = layer->out, side = layer->side_shape;
    const struct add_map map = add_map_of(layer);

    for (int row = 0; row < batch * out.height; row++) {
        const int image = row / out.height, y = row % out.height * map.step;

        for (int x = 0; x < out.width; x++) {
            const size_t sum = ((size_t)row * out.width + x) * out.channels + map.first;
            const size_t pixel = ((size_t)image * side.height + y) * side.width + x * map.step;
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

KERNEL static void add_all(size_t count, const float *from, float *restrict to)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

void add_join(const struct layer *add, const struct pass *pass, float *dsource)
{
    if (add_is_equal(add))
        add_all((size_t)pass->batch * shape_size(add->out), add->dside, dsource);
    else
        add_pixels(add, pass->batch, true, dsource, add->dside);
}

const struct layer_kind layer_add = {
    .name = "add",
    .forward = add_forward,
    .backward = add_backward,
};
