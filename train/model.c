/* SPDX-License-Identifier: BSD-3-Clause */
/* A model: a sequence of layers. */
#include "model.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "rng.h"

/* ---- floats shared with other ranks ---- */

/* Allocates zeroed floats, aligned to a cache line. */
static float *model_floats(size_t count)
{
    const size_t bytes = (count * sizeof(float) / 64 + 1) * 64;
    float *floats = aligned_alloc(64, bytes);

    if (floats)
        memset(floats, 0, bytes);
    return floats;
}

int buffer_create(dist_group *group, size_t count, struct buffer *buffer)
{
    const size_t bytes = (count * sizeof(float) + 63) / 64 * 64;
    void *memory = NULL;
    int ends[2];

    buffer->shared = false;
    if (group && dist_alloc(group, bytes, &memory) != DIST_OK) {
        memory = NULL;
        fprintf(stderr, "warning: rank %d: using ordinary memory for %zu KiB: %s\n",
                dist_get_rank(group), bytes >> 10, dist_last_error());
    }
    /*
     * Let the kernel read the memory with write(): if it is GPU memory, the call fails, whereas an
     * access from this process would crash it.
     */
    if (memory && pipe2(ends, O_CLOEXEC) == 0) {
        buffer->shared = write(ends[1], memory, 1) == 1;
        close(ends[0]);
        close(ends[1]);
    }
    if (memory && !buffer->shared)
        dist_free(group, memory);
    buffer->floats = buffer->shared ? memory : model_floats(count);
    return buffer->floats ? 0 : -1;
}

void buffer_destroy(struct buffer *buffer)
{
    if (buffer->shared)
        dist_free(NULL, buffer->floats);
    else
        free(buffer->floats);
    *buffer = (struct buffer){.floats = NULL};
}

/* ---- loss: log-softmax and negative log-likelihood ---- */

struct loss loss_nll(int batch, int classes, const float *outputs, const uint8_t *labels,
                     float weight, float *gradient)
{
    struct loss loss = {0.0, 0};

    for (int row = 0; row < batch; row++, outputs += classes) {
        float sum = 0.0F, log_sum;
        int best = 0;

        for (int i = 1; i < classes; i++)
            best = outputs[i] > outputs[best] ? i : best;
        /* Subtract the maximum so that expf cannot overflow. */
        for (int i = 0; i < classes; i++)
            sum += expf(outputs[i] - outputs[best]);
        log_sum = outputs[best] + logf(sum);
        loss.total += (double)(log_sum - outputs[labels[row]]);
        loss.correct += best == labels[row];
        for (int i = 0; gradient && i < classes; i++)
            gradient[(size_t)row * classes + i] =
                (expf(outputs[i] - log_sum) - (i == labels[row] ? 1.0F : 0.0F)) * weight;
    }
    return loss;
}

/* ---- architectures by name ---- */

#define ARCH_ROW(name) {#name, &arch_##name},
static const struct arch_row {
    const char *name;
    const struct arch *arch;
} arch_rows[] = {ARCHS(ARCH_ROW)};
enum { ARCH_COUNT = sizeof(arch_rows) / sizeof(arch_rows[0]) };

/* Returns NULL if the name is unknown; the message lists the known names. */
static const struct arch_row *arch_find(const char *name)
{
    char names[256] = "";

    for (int i = 0; i < ARCH_COUNT; i++) {
        const size_t length = strlen(names);
        const char *joint = i == 0 ? "" : i < ARCH_COUNT - 1 ? ", " : " or ";

        if (strcmp(name, arch_rows[i].name) == 0)
            return &arch_rows[i];
        snprintf(names + length, sizeof(names) - length, "%s%s", joint, arch_rows[i].name);
    }
    failure("unknown architecture '%s', expected %s", name, names);
    return NULL;
}

/* ---- the model ---- */

/* Sets the layers of the architecture and computes their shapes. */
static int model_plan(struct model *model, const char *name)
{
    const struct arch_row *row = arch_find(name);
    struct shape in = model->input;

    if (!row)
        return -1;
    model->arch = row->name;
    model->count = row->arch->count;
    memcpy(model->layers, row->arch->layers, (size_t)model->count * sizeof(model->layers[0]));
    for (int i = 0; i < model->count; i++) {
        struct layer *layer = &model->layers[i];

        layer->index = i;
        layer->in = in;
        layer->spatial = layer->inputs = 1;
        if (layer->kind == &layer_conv) {
            const int around = 2 * layer->padding - layer->kernel;

            layer->stride = layer->stride > 0 ? layer->stride : 1;
            layer->out.height = (in.height + around) / layer->stride + 1;
            layer->out.width = (in.width + around) / layer->stride + 1;
            layer->spatial = layer->kernel * layer->kernel;
            layer->inputs = in.channels;
        } else if (layer->kind == &layer_dense) {
            layer->out.height = layer->out.width = 1;
            layer->spatial = in.height * in.width;
            layer->inputs = in.channels;
        } else if (layer->kind == &layer_pool) {
            layer->out = (struct shape){in.height / 2, in.width / 2, in.channels};
        } else if (layer->kind == &layer_mean) {
            layer->out = (struct shape){1, 1, in.channels};
        } else {
            layer->out = in;
        }
        if (layer->kind == &layer_add) {
            layer->side_shape = layer[-layer->skip].out;
            layer[-layer->skip].joined = i;
        }
        in = layer->out;
        if (in.height < 1 || in.width < 1)
            return failure("--arch %s: images of %d x %d are too small for it", name,
                           model->input.height, model->input.width);
    }
    return 0;
}

/* Appends a tensor. Returns its index. */
static int model_add_tensor(struct model *model, const char *layer, const char *part, size_t count)
{
    struct model_tensor *tensor = &model->tensors[model->tensor_count];

    snprintf(tensor->name, sizeof(tensor->name), "%s.%s", layer, part);
    tensor->offset = model->parameters;
    tensor->count = count;
    model->parameters += count;
    return model->tensor_count++;
}

/* Sets the pointers of every layer into the model's memory. */
static void model_lay_out(struct model *model)
{
    size_t offset = 0;

    for (int i = 0; i < model->count; i++) {
        struct layer *layer = &model->layers[i];
        const struct model_tensor *weight = &model->tensors[layer->tensor], *bias = weight + 1;
        const size_t channels = layer_buffer_size(layer);

        layer->scratch = model->scratch;
        layer->side = layer->kind == &layer_add ? model->activations[i - layer->skip] : NULL;
        layer->dside = model->side;
        layer->mean = model->buffers + offset;
        layer->variance = layer->mean + channels;
        layer->stats = model->stats + offset;
        offset += 2 * channels;
        if (!layer->name)
            continue;
        layer->weight = model->weights + weight->offset;
        layer->dweight = model->gradients + weight->offset;
        layer->bias = layer->no_bias ? NULL : model->weights + bias->offset;
        layer->dbias = layer->no_bias ? NULL : model->gradients + bias->offset;
    }
}

static int model_allocate(struct model *model, dist_group *group)
{
    size_t scratch = 1, widest = 1, side = 1;
    bool complete = true;

    /*
     * Create the tensors, which counts the parameters, and find the memory that one pass with
     * `capacity` samples needs.
     */
    for (int i = 0; i < model->count; i++) {
        struct layer *layer = &model->layers[i];
        const size_t size = shape_size(layer->out), wanted = layer_scratch_size(layer);

        model->activations[i] = model_floats(size * model->capacity);
        complete = complete && model->activations[i];
        widest = size > widest ? size : widest;
        side = layer->kind == &layer_add && size > side ? size : side;
        scratch = wanted > scratch ? wanted : scratch;
        model->buffer_count += 2 * layer_buffer_size(layer);
        if (!layer->name)
            continue;
        layer->tensor = model_add_tensor(model, layer->name, "weight", layer_weight_size(layer));
        if (!layer->no_bias)
            model_add_tensor(model, layer->name, "bias", layer_bias_size(layer));
    }
    model->deltas[0] = model_floats(widest * model->capacity);
    model->deltas[1] = model_floats(widest * model->capacity);
    model->side = model_floats(side * model->capacity);
    model->scratch = model_floats(scratch);
    model->buffers = model_floats(model->buffer_count);
    model->stats = model_floats(model->buffer_count);
    complete = complete && model->deltas[0] && model->deltas[1] && model->side && model->scratch &&
               model->buffers && model->stats &&
               buffer_create(group, model->parameters, &model->weights_buffer) == 0 &&
               buffer_create(group, model->parameters + MODEL_TAIL, &model->gradients_buffer) == 0;
    if (!complete)
        return failure("out of memory for a model of %d samples a pass: lower --batch-size",
                       model->capacity);
    model->weights = model->weights_buffer.floats;
    model->gradients = model->gradients_buffer.floats;
    model_lay_out(model);
    return 0;
}

int model_create(const char *arch, struct shape input, int capacity, dist_group *group,
                 struct model **model_p)
{
    struct model *model = calloc(1, sizeof(*model));

    if (!model)
        return failure("out of memory for the model");
    model->input = input;
    model->capacity = capacity;
    if (model_plan(model, arch) < 0 || model_allocate(model, group) < 0) {
        model_destroy(model);
        return -1;
    }
    *model_p = model;
    return 0;
}

void model_move(struct model *model, float *weights)
{
    buffer_destroy(&model->weights_buffer);
    model->weights = weights;
    model_lay_out(model);
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
    free(model->side);
    free(model->buffers);
    free(model->stats);
    free(model->scratch);
    free(model);
}

void model_init(struct model *model, uint64_t seed)
{
    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t weights = layer_weight_size(layer), biases = layer_bias_size(layer);
        const size_t channels = layer_buffer_size(layer);
        const float bound =
            sqrtf((layer->no_bias ? 6.0F : 1.0F) / (float)(layer->spatial * layer->inputs));
        struct rng rng = {rng_key(seed, RNG_INIT, (uint64_t)layer->index, 0), 0};

        for (size_t j = 0; j < channels; j++) {
            layer->weight[j] = layer->variance[j] = 1.0F;
            layer->bias[j] = layer->mean[j] = 0.0F;
        }
        if (channels > 0)
            continue;
        for (size_t j = 0; j < weights; j++)
            layer->weight[j] = rng_between(&rng, -bound, bound);
        for (size_t j = 0; j < biases; j++)
            layer->bias[j] = rng_between(&rng, -bound, bound);
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

void model_backward(struct model *model, const struct pass *pass, const float *images,
                    const struct model_listener *listener)
{
    for (int i = model->count - 1; i >= 0; i--) {
        const struct layer *layer = &model->layers[i];

        if (layer->joined)
            add_join(&model->layers[layer->joined], pass, model->deltas[i % 2]);
        layer->kind->backward(layer, pass, i > 0 ? model->activations[i - 1] : images,
                              model->activations[i], model->deltas[i % 2],
                              i > 0 ? model->deltas[(i + 1) % 2] : NULL);
        model_listen(listener, layer);
    }
}
