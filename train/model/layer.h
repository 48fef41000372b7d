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
     * From dout, the loss's gradient by out: writes (never adds to) the gradients of the
     * layer's parameters, and din, the gradient by in, unless din is NULL. Sees the in
     * and out of the same pass's forward. May destroy dout.
     */
    void (*backward)(const struct layer *layer, const struct pass *pass, const float *in,
                     const float *out, float *dout, float *din);
};

struct layer {
    const struct layer_kind *kind;
    const char *name; /* of its parameters in a checkpoint; NULL if it has none */
    int index;        /* among the model's layers: keeps their dropouts apart */
    struct shape in, out;
    int kernel;          /* side of the window: conv, pool */
    bool relu;           /* conv, dense: max(0, .) after the bias */
    float rate;          /* dropout: the part that is dropped */
    int spatial, inputs; /* rows of the weight matrix: spatial * inputs, inputs innermost */
    float *weight;       /* (spatial * inputs) x out.channels */
    float *bias;         /* out.channels */
    float *dweight, *dbias;
    float *scratch; /* layer_scratch_size floats, shared by all layers of a model */
};

extern const struct layer_kind layer_conv;    /* kernel x kernel, stride 1, no padding */
extern const struct layer_kind layer_pool;    /* maximum over kernel x kernel, kernel is 2 */
extern const struct layer_kind layer_dropout; /* scales what it keeps by 1 / (1 - rate) */
extern const struct layer_kind layer_dense;   /* every input to every output */

/* Floats of scratch memory that the layer needs. */
size_t layer_scratch_size(const struct layer *layer);

/* out[row][column] += bias[column], then max(0, .) if relu. */
void bias_forward(int rows, int columns, const float *bias, bool relu, float *out);

/* dout becomes 0 where relu cut (out is 0); dbias = the column sums of dout. */
void bias_backward(int rows, int columns, const float *out, bool relu, float *dout, float *dbias);

#endif
