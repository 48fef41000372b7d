/* SPDX-License-Identifier: BSD-3-Clause */
/* A model: a sequence of layers, with all parameters and all gradients contiguous in memory. */
#ifndef TRAIN_MODEL_H
#define TRAIN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dist/dist.h>

#include "layer.h"

/* ---- floats that the other ranks of this node can read in place ---- */

struct buffer {
    float *floats; /* NULL: none */
    bool shared;   /* allocated by dist_alloc */
};

/*
 * Allocates zeroed floats, aligned to a cache line. Uses ordinary memory if group is NULL, if
 * dist_alloc returns GPU memory, or, with a warning on stderr, if dist_alloc fails: this only makes
 * training slower. -1: out of memory; sets no message.
 */
int buffer_create(dist_group *group, size_t count, struct buffer *buffer);

/* Frees the buffer; the group need not exist any more. Accepts a zeroed buffer. */
void buffer_destroy(struct buffer *buffer);

/* ---- architectures: one table of layers each ---- */

enum { MODEL_CLASSES = 10 };

struct arch {
    const struct layer
        *layers; /* only kind, name and options are set; model_create computes the other fields */
    int count;
};

/*
 * One row per architecture; arch_NAME is defined in arch_NAME.c. Options and errors list these
 * names.
 */
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
 * Computes the loss of outputs (batch x classes) for labels (each below classes). Unless gradient
 * is NULL (batch x classes), writes to it the gradient of weight * total with respect to the
 * outputs.
 */
struct loss loss_nll(int batch, int classes, const float *outputs, const uint8_t *labels,
                     float weight, float *gradient);

/* ---- the model ---- */

enum {
    MODEL_MAX_LAYERS = 64,
    MODEL_MAX_TENSORS = 2 * MODEL_MAX_LAYERS,
    MODEL_TAIL = MODEL_MAX_TENSORS + 8
};

/* A weight or a bias, at the same offset in the weights and in the gradients. */
struct model_tensor {
    char name[32]; /* "conv1.weight" */
    size_t offset, count;
};

/*
 * Callbacks; each may be NULL. `ready` is called in a backward pass for each tensor whose gradient
 * is complete, in reverse order. `begins` is called when a forward or backward pass begins on the
 * CPU.
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
    struct shape input; /* shape of an image */
    int count;          /* layers */
    int capacity;       /* maximum samples per pass */
    struct layer layers[MODEL_MAX_LAYERS];
    int tensor_count;
    struct model_tensor tensors[MODEL_MAX_TENSORS];
    size_t parameters; /* elements of weights */
    float *weights;    /* all parameters, layer by layer, weight before bias; see model_move */
    float *gradients;  /* in the same order, then MODEL_TAIL floats for the caller */
    float *activations[MODEL_MAX_LAYERS]; /* output of each layer */
    float *deltas[2]; /* gradients with respect to the activations of the current layer and the one
                         before it */
    float *side;      /* the gradient of the skip connection of a block; blocks are not nested */
    float *scratch;
    size_t buffer_count; /* size of buffers; 0: samples do not influence each other in training */
    float *buffers;      /* running means and variances, layer by layer */
    float *stats;        /* batchnorm's statistics from forward to backward, in the same order */
    /* Memory of `weights`, until model_move, and of `gradients`. */
    struct buffer weights_buffer, gradients_buffer;
};

/*
 * Creates a model whose parameters are not set. arch: see arch_find; input: the shape of an image.
 * group: its ranks can read parameters and gradients in place; NULL: not shared. On success the
 * caller owns *model_p and releases it with model_destroy. -1: unknown architecture, images too
 * small for it, or out of memory.
 */
int model_create(const char *arch, struct shape input, int capacity, dist_group *group,
                 struct model **model_p);
void model_destroy(struct model *model); /* NULL is accepted */

/*
 * Makes the model use the parameters at `weights`, which the caller has initialized, and frees the
 * model's own memory for parameters. The caller still owns `weights`, which must stay valid as long
 * as the model is used.
 */
void model_move(struct model *model, float *weights);

/*
 * Initialises the parameters as PyTorch does by default: weights and biases uniform in
 * +-1/sqrt(inputs of one output), which equals kaiming_uniform(a = sqrt(5)); 1 and 0 for batchnorm.
 * A pure function of seed.
 *
 * Exception: convolutions without biases use the weights of He et al., uniform in +-sqrt(6/inputs).
 * batchnorm follows them, so the size of these weights changes no output, but a step changes the
 * direction of larger weights less. With PyTorch's default a learning rate of 0.1 is too high for
 * ResNet-20.
 */
void model_init(struct model *model, uint64_t seed);

/*
 * Runs a forward pass. images: pass->batch images of the shape `input`. Returns the outputs (batch
 * x 10), which the model owns.
 */
const float *model_forward(struct model *model, const struct pass *pass, const float *images);

/*
 * Computes all gradients. Before, the caller runs a forward pass with the same pass and images, and
 * writes the gradient with respect to the outputs to model_output_gradient(). listener may be NULL.
 */
void model_backward(struct model *model, const struct pass *pass, const float *images,
                    const struct model_listener *listener);
static inline float *model_output_gradient(struct model *model) /* capacity x 10 */
{
    return model->deltas[(model->count - 1) % 2];
}

#endif
