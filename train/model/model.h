/* SPDX-License-Identifier: BSD-3-Clause */
/* A model: layers in a row, with all parameters and all gradients in one piece each. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stddef.h>
#include <stdint.h>

#include "layer.h"
#include "train/buffer.h"

enum {
    MODEL_SIDE = 28, /* images are 28 x 28, one channel */
    MODEL_PIXELS = MODEL_SIDE * MODEL_SIDE,
    MODEL_CLASSES = 10,
    MODEL_MAX_LAYERS = 8,
    MODEL_TAIL = 32
};

struct model {
    const char *arch;
    int count;    /* layers */
    int capacity; /* samples in one pass at most */
    struct layer layers[MODEL_MAX_LAYERS];
    size_t parameters; /* elements of weights */
    float *weights;    /* every parameter, layer after layer, weight before bias */
    float *gradients;  /* in the same order; MODEL_TAIL more at the end are the caller's */
    float *activations[MODEL_MAX_LAYERS]; /* each layer's out */
    float *deltas[2]; /* gradients by activations, of the layer at hand and the one before */
    float *scratch;
    struct buffer weights_buffer, gradients_buffer; /* where these two are */
};

/*
 * arch is "cnn" (conv 32, conv 64, pool, dropout, dense 128, dropout, dense 10) or
 * "mlp" (dense 256, dropout, dense 10). Parameters are not set. group: whose ranks get
 * parameters and gradients; NULL: nobody's. On success *model_p is the caller's, for
 * model_destroy. -1: unknown arch, out of memory.
 */
int model_create(const char *arch, int capacity, dist_group *group, struct model **model_p);
void model_destroy(struct model *model); /* NULL is accepted */

/*
 * PyTorch's default: weights and biases uniform in +-1/sqrt(inputs of one output), which
 * is what kaiming_uniform(a = sqrt(5)) comes to. A pure function of seed.
 */
void model_init(struct model *model, uint64_t seed);

/* images: pass->batch x 28 x 28. Returns the outputs (batch x 10), the model's own. */
const float *model_forward(struct model *model, const struct pass *pass, const float *images);

/*
 * Sets all gradients from that of the loss by the outputs, which the caller has written to
 * model_output_gradient(). Follows a forward of the same pass and images.
 */
void model_backward(struct model *model, const struct pass *pass, const float *images);
float *model_output_gradient(struct model *model); /* capacity x 10 */

#endif
