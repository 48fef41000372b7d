/* SPDX-License-Identifier: BSD-3-Clause */
/* A model: layers in a row. */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "rng.h"
#include "train/failure.h"

/* Only what is chosen; model_plan works out the rest. */
static const struct layer model_cnn[] = {
    {.kind = &layer_conv, .name = "conv1", .kernel = 3, .out.channels = 32, .relu = true},
    {.kind = &layer_conv, .name = "conv2", .kernel = 3, .out.channels = 64, .relu = true},
    {.kind = &layer_pool, .kernel = 2},
    {.kind = &layer_dropout, .rate = 0.25F},
    {.kind = &layer_dense, .name = "fc1", .out.channels = 128, .relu = true},
    {.kind = &layer_dropout, .rate = 0.5F},
    {.kind = &layer_dense, .name = "fc2", .out.channels = MODEL_CLASSES},
};

static const struct layer model_mlp[] = {
    {.kind = &layer_dense, .name = "fc1", .out.channels = 256, .relu = true},
    {.kind = &layer_dropout, .rate = 0.25F},
    {.kind = &layer_dense, .name = "fc2", .out.channels = MODEL_CLASSES},
};

#define MODEL_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static const struct {
    const char *name;
    const struct layer *layers;
    int count;
} model_archs[] = {
    {"cnn", model_cnn, MODEL_COUNT(model_cnn)},
    {"mlp", model_mlp, MODEL_COUNT(model_mlp)},
};

/* The shapes of one layer, from the one before it. */
static void model_plan_layer(struct layer *layer, struct shape in)
{
    layer->in = in;
    if (layer->kind == &layer_conv) {
        layer->out.height = in.height - layer->kernel + 1;
        layer->out.width = in.width - layer->kernel + 1;
        layer->spatial = layer->kernel * layer->kernel;
        layer->inputs = in.channels;
    } else if (layer->kind == &layer_dense) {
        layer->out.height = layer->out.width = 1;
        layer->spatial = in.height * in.width;
        layer->inputs = in.channels;
    } else if (layer->kind == &layer_pool) {
        layer->out = (struct shape){in.height / 2, in.width / 2, in.channels};
    } else {
        layer->out = in;
    }
}

static int model_plan(struct model *model, const char *arch)
{
    struct shape shape = {MODEL_SIDE, MODEL_SIDE, 1};

    for (int i = 0; i < MODEL_COUNT(model_archs); i++) {
        if (strcmp(arch, model_archs[i].name) != 0)
            continue;
        model->arch = model_archs[i].name;
        model->count = model_archs[i].count;
        memcpy(model->layers, model_archs[i].layers,
               (size_t)model->count * sizeof(model->layers[0]));
        for (int j = 0; j < model->count; j++) {
            model->layers[j].index = j;
            model_plan_layer(&model->layers[j], shape);
            shape = model->layers[j].out;
        }
        return 0;
    }
    return failure("unknown architecture '%s': there are cnn and mlp", arch);
}

static size_t model_weight_size(const struct layer *layer)
{
    return (size_t)layer->spatial * layer->inputs * layer->out.channels;
}

/* Points every layer at its part of weights and gradients; counts the parameters. */
static void model_lay_out(struct model *model)
{
    size_t offset = 0;

    for (int i = 0; i < model->count; i++) {
        struct layer *layer = &model->layers[i];

        layer->scratch = model->scratch;
        if (!layer->name)
            continue;
        if (model->weights) {
            layer->weight = model->weights + offset;
            layer->dweight = model->gradients + offset;
            layer->bias = layer->weight + model_weight_size(layer);
            layer->dbias = layer->dweight + model_weight_size(layer);
        }
        offset += model_weight_size(layer) + layer->out.channels;
    }
    model->parameters = offset;
}

/* Zeroed, aligned to a cache line. */
static float *model_floats(size_t count)
{
    const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
    float *floats = aligned_alloc(64, bytes);

    if (floats)
        memset(floats, 0, bytes);
    return floats;
}

/* What goes to the other ranks. */
static bool model_share(struct model *model, dist_group *group)
{
    if (buffer_create(group, model->parameters, &model->weights_buffer) < 0 ||
        buffer_create(group, model->parameters + MODEL_TAIL, &model->gradients_buffer) < 0)
        return false;
    model->weights = model->weights_buffer.floats;
    model->gradients = model->gradients_buffer.floats;
    return true;
}

static int model_allocate(struct model *model, dist_group *group)
{
    size_t scratch = 1, widest = 1;
    bool complete;

    for (int i = 0; i < model->count; i++) {
        const size_t size = shape_size(model->layers[i].out);
        const size_t wanted = layer_scratch_size(&model->layers[i]);

        model->activations[i] = model_floats(size * model->capacity);
        widest = size > widest ? size : widest;
        scratch = wanted > scratch ? wanted : scratch;
    }
    model_lay_out(model);
    model->deltas[0] = model_floats(widest * model->capacity);
    model->deltas[1] = model_floats(widest * model->capacity);
    model->scratch = model_floats(scratch);
    complete = model_share(model, group) && model->deltas[0] && model->deltas[1] && model->scratch;
    for (int i = 0; i < model->count; i++)
        complete = complete && model->activations[i];
    if (!complete)
        return failure("out of memory for a model of %d samples a pass: lower --batch-size",
                       model->capacity);
    model_lay_out(model);
    return 0;
}

int model_create(const char *arch, int capacity, dist_group *group, struct model **model_p)
{
    struct model *model = calloc(1, sizeof(*model));

    if (!model)
        return failure("out of memory for the model");
    model->capacity = capacity;
    if (model_plan(model, arch) < 0 || model_allocate(model, group) < 0) {
        model_destroy(model);
        return -1;
    }
    *model_p = model;
    return 0;
}

void model_destroy(struct model *model)
{
    if (!model)
        return;
    for (int i = 0; i < model->count; i++)
        free(model->activations[i]);
    buffer_destroy(&model->weights_buffer);
    buffer_destroy(&model->gradients_buffer);
    free(model->deltas[0]);
    free(model->deltas[1]);
    free(model->scratch);
    free(model);
}

void model_init(struct model *model, uint64_t seed)
{
    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const float bound = layer->name ? 1.0F / sqrtf((float)(layer->spatial * layer->inputs)) : 0;
        struct rng rng = {rng_key(seed, RNG_INIT, (uint64_t)i, 0), 0};

        if (!layer->name)
            continue;
        for (float *p = layer->weight; p < layer->bias + layer->out.channels; p++)
            *p = rng_between(&rng, -bound, bound);
    }
}

const float *model_forward(struct model *model, const struct pass *pass, const float *images)
{
    const float *in = images;

    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];

        layer->kind->forward(layer, pass, in, model->activations[i]);
        in = model->activations[i];
    }
    return in;
}

float *model_output_gradient(struct model *model)
{
    return model->deltas[(model->count - 1) % 2];
}

void model_backward(struct model *model, const struct pass *pass, const float *images)
{
    for (int i = model->count - 1; i >= 0; i--) {
        const struct layer *layer = &model->layers[i];

        layer->kind->backward(layer, pass, i > 0 ? model->activations[i - 1] : images,
                              model->activations[i], model->deltas[i % 2],
                              i > 0 ? model->deltas[(i + 1) % 2] : NULL);
    }
}
