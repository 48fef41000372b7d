/* SPDX-License-Identifier: BSD-3-Clause */
/* A model: layers in a row, with all parameters and all gradients in one piece each. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dist/dist.h>

#include "layer.h"

/* ---- floats that the other ranks of this machine read in place ---- */

struct buffer {
    float *floats; /* NULL: none */
    bool shared;   /* by dist_alloc */
};

/*
 * Zeroed, aligned to a cache line. Ordinary memory if group is NULL, or dist_alloc gives memory of
 * a GPU; with a warning on stderr if dist_alloc fails: training goes on, only slower. -1: out of
 * memory, without a text.
 */
int buffer_create(dist_group *group, size_t count, struct buffer *buffer);

/* Whether the group is still there or not. A zeroed buffer is accepted. */
void buffer_destroy(struct buffer *buffer);

/* ---- architectures: which layers a model has, a table for each ---- */

enum { MODEL_CLASSES = 10 };

struct arch {
    const struct layer *layers; /* only what is chosen; the model works out the rest */
    int count;
};

/* A row for each: arch_NAME is defined in arch_NAME.c. Options and errors list these names. */
#define ARCHS(ARCH)                                                                                \
    ARCH(cnn)      /* conv 32, conv 64, pool, dropout, dense 128, dropout, dense */                \
    ARCH(mlp)      /* dense 256, dropout, dense */                                                 \
    ARCH(resnet20) /* residual network of 20 layers for small pictures */

#define ARCH_DECLARE(name) extern const struct arch arch_##name;
ARCHS(ARCH_DECLARE)

/* "cnn|mlp|resnet20" */
#define ARCH_OR_NAME(name) "|" #name
#define ARCH_NAMES (&(ARCHS(ARCH_OR_NAME))[1])

/* ---- loss: log-softmax and negative log-likelihood over the classes ---- */

/* Sums over a batch. */
struct loss {
    double total;    /* negative log-likelihood in nats */
    int64_t correct; /* samples whose largest output is their label */
};

/*
 * outputs: batch x classes; labels: batch, each below classes. gradient (batch x
 * classes, may be NULL) becomes that of weight times the total, by outputs.
 */
struct loss loss_nll(int batch, int classes, const float *outputs, const uint8_t *labels,
                     float weight, float *gradient);

/* ---- the model ---- */

enum {
    MODEL_MAX_LAYERS = 64,
    MODEL_MAX_TENSORS = 2 * MODEL_MAX_LAYERS,
    MODEL_TAIL = MODEL_MAX_TENSORS + 8
};

/* A weight or a bias: where it is in the weights, and its gradient in the gradients. */
struct model_tensor {
    char name[32]; /* "conv1.weight" */
    size_t offset, count;
};

/*
 * Who is told in a backward pass of each tensor whose gradient is complete, the last one first; and
 * when a forward or a backward pass begins on the CPU. Either may be NULL.
 */
struct model_listener {
    void (*ready)(void *arg, int tensor);
    void *arg;
    void (*begins)(void *arg, bool backward);
};

static inline void model_begins(const struct model_listener *listener, bool backward)
{
    if (listener && listener->begins)
        listener->begins(listener->arg, backward);
}

static inline void model_listen(const struct model_listener *listener, const struct layer *layer)
{
    if (!listener || !listener->ready || !layer->name)
        return;
    if (!layer->no_bias)
        listener->ready(listener->arg, layer->tensor + 1);
    listener->ready(listener->arg, layer->tensor);
}

struct model {
    const char *arch;
    struct shape input; /* of an image */
    int count;          /* layers */
    int capacity;       /* samples in one pass at most */
    struct layer layers[MODEL_MAX_LAYERS];
    int tensor_count;
    struct model_tensor tensors[MODEL_MAX_TENSORS];
    size_t parameters; /* elements of weights */
    float *weights;    /* every parameter, layer after layer, weight before bias */
    float *gradients;  /* in the same order; MODEL_TAIL more at the end are the caller's */
    float *activations[MODEL_MAX_LAYERS]; /* each layer's out */
    float *deltas[2]; /* gradients by activations, of the layer at hand and the one before */
    float *side;      /* the gradient that goes round a block of layers: blocks are not nested */
    float *scratch;
    size_t buffer_count; /* elements of buffers; without any, samples do not mix in training */
    float *buffers;      /* running means and variances, layer after layer */
    float *stats;        /* what batchnorm keeps from forward to backward, in the same order */
    struct buffer weights_buffer, gradients_buffer; /* where these two are */
};

/*
 * arch: see arch_find; input: the shape of an image. Parameters are not set. group: whose ranks
 * get parameters and gradients; NULL: nobody's. On success *model_p is the caller's, for
 * model_destroy. -1: unknown arch, images too small for it, out of memory.
 */
int model_create(const char *arch, struct shape input, int capacity, dist_group *group,
                 struct model **model_p);
void model_destroy(struct model *model); /* NULL is accepted */

/* The parameters are there from now on, in memory of the caller's; the model frees its own. */
void model_move(struct model *model, float *weights);

/*
 * PyTorch's default: weights and biases uniform in +-1/sqrt(inputs of one output), which
 * is what kaiming_uniform(a = sqrt(5)) comes to; of batchnorm 1 and 0. A convolution without biases
 * has the weights of He et al., uniform in +-sqrt(6/inputs): batchnorm follows it, so that their
 * size changes no output, but the larger they are, the less a step turns them; with PyTorch's
 * default a rate of 0.1 is too much for ResNet-20. A pure function of seed.
 */
void model_init(struct model *model, uint64_t seed);

/* images: pass->batch of the shape input. Returns the outputs (batch x 10), the model's own. */
const float *model_forward(struct model *model, const struct pass *pass, const float *images);

/*
 * Sets all gradients from that of the loss by the outputs, which the caller has written to
 * model_output_gradient(). Follows a forward of the same pass and images. listener: NULL: nobody.
 */
void model_backward(struct model *model, const struct pass *pass, const float *images,
                    const struct model_listener *listener);
static inline float *model_output_gradient(struct model *model) /* capacity x 10 */
{
    return model->deltas[(model->count - 1) % 2];
}

#endif
