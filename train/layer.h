/* SPDX-License-Identifier: BSD-3-Clause */
/* A layer: what one does, and the contract between the layers and the model. */
#ifndef TRAIN_LAYER_H
#define TRAIN_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Activations of one sample are stored height x width x channels (channels next to
 * each other), so that a convolution's output and a dense layer's output are the same
 * thing: a matrix whose rows are pixels (or samples) and whose columns are channels.
 * Samples follow each other.
 */
struct shape {
    int height, width, channels;
};

/* Elements of one sample. */
static inline int shape_size(struct shape shape)
{
    return shape.height * shape.width * shape.channels;
}

/* One pass of a batch through the model. */
struct pass {
    int batch;                 /* samples of this rank */
    bool training;             /* dropout is on */
    bool add;                  /* gradients are added to those that are there */
    float weight;              /* of a sample's loss: one over the samples of a step */
    uint64_t seed;             /* with step and position: what dropout draws from */
    uint64_t step;             /* steps since training began */
    const uint32_t *positions; /* where each sample stands in the global batch */
};

struct layer;

struct layer_kind {
    const char *name;
    /* out (batch x out shape) from in (batch x in shape). */
    void (*forward)(const struct layer *layer, const struct pass *pass, const float *in,
                    float *out);
    /*
     * From dout, the loss's gradient by out: writes the gradients of the layer's parameters, or
     * adds to them if pass->add; and writes din, the gradient by in, unless din is NULL. Sees the
     * in and out of the same pass's forward. May destroy dout.
     */
    void (*backward)(const struct layer *layer, const struct pass *pass, const float *in,
                     const float *out, float *dout, float *din);
    size_t (*scratch_size)(const struct layer *layer); /* NULL: it needs none */
};

struct layer {
    const struct layer_kind *kind;
    const char *name; /* of its parameters in a checkpoint; NULL if it has none */
    int index;        /* among the model's layers: keeps their dropouts apart */
    struct shape in, out;
    int kernel;          /* side of the window: conv, pool */
    int stride;          /* conv: pixels from window to window; 0 in a table: 1 */
    int padding;         /* conv: pixels of zeros on each side */
    int skip;            /* add: how many layers before this one the other summand comes out */
    bool relu;           /* conv, dense, batchnorm, add: max(0, .) at the end */
    bool no_bias;        /* conv */
    float rate;          /* dropout: the part that is dropped */
    int spatial, inputs; /* rows of the weight matrix: spatial * inputs, inputs innermost */
    float *weight;       /* (spatial * inputs) x out.channels */
    float *bias;         /* out.channels, none with no_bias */
    float *dweight, *dbias;
    int tensor;             /* the weight's number in the model; a bias is the next */
    float *mean, *variance; /* batchnorm: running, out.channels each; no gradients */
    float *stats;           /* batchnorm: mean and 1 / deviation of the last training pass */
    struct shape side_shape;
    const float *side; /* add: the other summand, batch x side_shape */
    float *dside;      /* add: the gradient by the sum, kept until it is joined; batch x out */
    int joined;        /* the number of the add that this layer's out goes into as well; 0: none */
    float *scratch;    /* layer_scratch_size floats, shared by all layers of a model */
};

extern const struct layer_kind layer_conv;      /* kernel x kernel */
extern const struct layer_kind layer_pool;      /* maximum over kernel x kernel, kernel is 2 */
extern const struct layer_kind layer_dropout;   /* scales what it keeps by 1 / (1 - rate) */
extern const struct layer_kind layer_dense;     /* every input to every output */
extern const struct layer_kind layer_batchnorm; /* each channel to mean bias, deviation weight */
extern const struct layer_kind layer_add;       /* the layer before it plus an earlier one */
extern const struct layer_kind layer_mean;      /* of all pixels, channel by channel */

/* Floats of scratch memory that the layer needs. */
static inline size_t layer_scratch_size(const struct layer *layer)
{
    return layer->kind->scratch_size ? layer->kind->scratch_size(layer) : 0;
}

/* Elements of weight and bias; 0 without a name. Of mean, and of variance. */
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
 * dsource (batch x side_shape), the gradient by the layer that `add` took as its other summand,
 * is increased by what came through the sum. Follows the backward of `add`.
 */
void add_join(const struct layer *add, const struct pass *pass, float *dsource);

/*
 * For tests: convolutions use, from here on, the numberth kind of tile that this CPU can run, 0 for
 * the best, which is used by itself; the last makes no tiles. Returns its name; NULL: there are not
 * so many, and the best is used again.
 */
const char *tile_use(int number);

#endif
