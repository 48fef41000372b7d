/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface between a model and its layers. */
#ifndef TRAIN_LAYER_H
#define TRAIN_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Activations of one sample are stored height x width x channels (the channels of a pixel are
 * adjacent), so the output of a convolution has the same form as that of a dense layer: a matrix
 * whose rows are pixels (or samples) and whose columns are channels. Consecutive samples are
 * contiguous.
 */
struct shape {
    int height, width, channels;
};

/* Returns the number of elements of one sample. */
static inline int shape_size(struct shape shape)
{
    return shape.height * shape.width * shape.channels;
}

/* One pass of a batch through the model. */
struct pass {
    int batch;                 /* samples of this rank */
    bool training;             /* dropout is on */
    bool add;                  /* add to the existing gradients */
    float weight;              /* weight of a sample's loss: 1 / (samples of a step) */
    uint64_t seed;             /* random seed of dropout, together with step and position */
    uint64_t step;             /* steps since training began */
    const uint32_t *positions; /* the position of each sample in the global batch */
};

struct layer;

struct layer_kind {
    const char *name;
    /* Computes out (batch x out shape) from in (batch x in shape). */
    void (*forward)(const struct layer *layer, const struct pass *pass, const float *in,
                    float *out);
    /*
     * Given dout, the gradient of the loss with respect to out: writes the gradients of the layer's
     * parameters, or adds them if pass->add, and writes din, the gradient with respect to in,
     * unless din is NULL. in and out are those of the forward pass. May overwrite dout.
     */
    void (*backward)(const struct layer *layer, const struct pass *pass, const float *in,
                     const float *out, float *dout, float *din);
    size_t (*scratch_size)(const struct layer *layer); /* NULL: no scratch memory needed */
};

struct layer {
    const struct layer_kind *kind;
    const char *name; /* prefix of its parameters in a checkpoint; NULL if it has no parameters */
    int index;        /* index in the model; gives each dropout layer its own random numbers */
    struct shape in, out;
    int kernel;   /* side of the window: conv, pool */
    int stride;   /* conv: pixels between windows; 0 in a table of layers means 1 */
    int padding;  /* conv: zero pixels on each side */
    int skip;     /* add: distance, in layers, to the layer whose output is the second summand */
    bool relu;    /* conv, dense, batchnorm, add: max(0, .) at the end */
    bool no_bias; /* conv */
    float rate;   /* dropout: fraction that is dropped */
    int spatial, inputs; /* rows of the weight matrix: spatial * inputs, inputs innermost */
    float *weight;       /* (spatial * inputs) x out.channels */
    float *bias;         /* out.channels, none with no_bias */
    float *dweight, *dbias;
    int tensor; /* index of the weight in the model's tensors; the bias is the next one */
    float *mean, *variance; /* batchnorm: running statistics, out.channels each; no gradients */
    float *stats;           /* batchnorm: mean and 1 / deviation of the last training pass */
    struct shape side_shape;
    const float *side; /* add: the second summand, batch x side_shape */
    float *dside;      /* add: gradient with respect to the sum, kept until add_join; batch x out */
    int joined; /* index of the add layer that uses this layer's output as second summand; 0: none
                 */
    float *scratch; /* layer_scratch_size floats, shared by all layers of a model */
};

extern const struct layer_kind layer_conv;    /* kernel x kernel */
extern const struct layer_kind layer_pool;    /* maximum over kernel x kernel; kernel is 2 */
extern const struct layer_kind layer_dropout; /* scales the remaining values by 1 / (1 - rate) */
extern const struct layer_kind layer_dense;   /* fully connected */
extern const struct layer_kind
    layer_batchnorm; /* normalises each channel to mean `bias` and deviation `weight` */
extern const struct layer_kind
    layer_add; /* adds the outputs of the previous layer and of an earlier one */
extern const struct layer_kind layer_mean; /* mean of all pixels, per channel */

/* Returns the size of the layer's scratch memory, in floats. */
static inline size_t layer_scratch_size(const struct layer *layer)
{
    return layer->kind->scratch_size ? layer->kind->scratch_size(layer) : 0;
}

/*
 * Return the number of elements of the weight and of the bias (0 if the layer has no name), and of
 * mean or variance.
 */
static inline size_t layer_weight_size(const struct layer *layer)
{
    return layer->name ? (size_t)layer->spatial * layer->inputs * layer->out.channels : 0;
}

static inline size_t layer_bias_size(const struct layer *layer)
{
    return layer->name && !layer->no_bias ? (size_t)layer->out.channels : 0;
}

static inline size_t layer_buffer_size(const struct layer *layer)
{
    return layer->kind == &layer_batchnorm ? (size_t)layer->out.channels : 0;
}

/*
 * Adds the gradient of the add layer's second summand to dsource (batch x side_shape), the gradient
 * of the layer that produced it. Must be called after the backward function of `add`.
 */
void add_join(const struct layer *add, const struct pass *pass, float *dsource);

/*
 * For tests: selects the tile kernels of convolutions. number: index among the kernels that this
 * CPU supports; 0, the default, is the fastest; the last one uses no tiles. Returns its name, or
 * NULL if there is no such kernel; then 0 is selected.
 */
const char *tile_use(int number);

#endif
