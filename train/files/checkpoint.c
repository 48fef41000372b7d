/* SPDX-License-Identifier: BSD-3-Clause */
/* A model's parameters in a safetensors file. */
#include "checkpoint.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/failure.h"

#define CHECKPOINT_MOST INT64_C(9007199254740992) /* what a double can count to */

static void checkpoint_add(struct image *image, const struct layer *layer, const char *part)
{
    uint64_t shape[TENSORS_DIMENSIONS];
    char name[TENSORS_NAME];
    int dimensions = 0;

    snprintf(name, sizeof(name), "%s.%s", layer->name, part);
    shape[dimensions++] = (uint64_t)layer->out.channels;
    if (strcmp(part, "weight") == 0 && layer->kernel > 0) {
        shape[dimensions++] = (uint64_t)layer->inputs;
        shape[dimensions++] = (uint64_t)layer->kernel;
        shape[dimensions++] = (uint64_t)layer->kernel;
    } else if (strcmp(part, "weight") == 0 && layer_buffer_size(layer) == 0) {
        shape[dimensions++] = (uint64_t)layer->spatial * layer->inputs;
    }
    image_add(image, name, dimensions, shape);
}

#define CHECKPOINT_REST "optimizer."

/* The tensors of the model, in the order of the layers. */
static void checkpoint_list(const struct model *model, struct image *image)
{
    *image = (struct image){.data = NULL};
    for (int i = 0; i < model->count; i++) {
        if (!model->layers[i].name)
            continue;
        checkpoint_add(image, &model->layers[i], "weight");
        if (layer_bias_size(&model->layers[i]) > 0)
            checkpoint_add(image, &model->layers[i], "bias");
        if (layer_buffer_size(&model->layers[i]) == 0)
            continue;
        checkpoint_add(image, &model->layers[i], "running_mean");
        checkpoint_add(image, &model->layers[i], "running_var");
    }
}

/* And what follows them in the file of a training. */
static const char *checkpoint_list_rest(const struct checkpoint_rest *rest, struct image *image)
{
    const uint64_t shape[] = {rest->count};
    char name[TENSORS_NAME];

    snprintf(name, sizeof(name), CHECKPOINT_REST "%s", rest->optimizer);
    return image_add(image, name, 1, shape)->name;
}

/*
 * Ours is [spatial][input][output], the file's is [output][input][spatial]. spatial are
 * a convolution's window or the pixels that a dense layer sees.
 */
static void checkpoint_copy_weight(const struct layer *layer, bool save, float *file)
{
    const int spatial = layer->spatial, inputs = layer->inputs, outputs = layer->out.channels;

    for (int s = 0; s < spatial; s++) {
        for (int i = 0; i < inputs; i++) {
            for (int o = 0; o < outputs; o++) {
                float *ours = &layer->weight[((size_t)s * inputs + i) * outputs + o];
                float *theirs = &file[((size_t)o * inputs + i) * spatial + s];

                if (save)
                    *theirs = *ours;
                else
                    *ours = *theirs;
            }
        }
    }
}

/* A row of numbers, which both have in the same order. */
static void checkpoint_copy_row(const struct image *image, const struct layer *layer,
                                const char *part, bool save, float *ours, size_t count)
{
    char name[TENSORS_NAME];
    float *theirs;

    if (count == 0)
        return;
    snprintf(name, sizeof(name), "%s.%s", layer->name, part);
    theirs = image_data(image, name);
    memcpy(save ? theirs : ours, save ? ours : theirs, count * sizeof(float));
}

/* Between the model and the data of a file. */
static void checkpoint_copy(const struct model *model, bool save, const struct image *image)
{
    char name[TENSORS_NAME];

    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t buffer = layer_buffer_size(layer);

        if (!layer->name)
            continue;
        snprintf(name, sizeof(name), "%s.weight", layer->name);
        checkpoint_copy_weight(layer, save, image_data(image, name));
        checkpoint_copy_row(image, layer, "bias", save, layer->bias, layer_bias_size(layer));
        checkpoint_copy_row(image, layer, "running_mean", save, layer->mean, buffer);
        checkpoint_copy_row(image, layer, "running_var", save, layer->variance, buffer);
    }
}

/* The numbers of a training, as notes: what is not there is -1. */
#define AT(member) offsetof(struct checkpoint_rest, member)
static const struct {
    const char *key;
    size_t at;
    int64_t most;
} checkpoint_numbers[] = {
    {"epoch", AT(epoch), 1000000},       {"samples", AT(samples), CHECKPOINT_MOST},
    {"step", AT(step), CHECKPOINT_MOST}, {"seed", AT(seed), CHECKPOINT_MOST},
    {"data", AT(data), UINT32_MAX},      {"tests", AT(tests), CHECKPOINT_MOST},
    {"idle", AT(idle), CHECKPOINT_MOST},
};
#define CHECKPOINT_NUMBERS (sizeof(checkpoint_numbers) / sizeof(checkpoint_numbers[0]))

static int64_t *checkpoint_number(struct checkpoint_rest *rest, size_t i)
{
    return (int64_t *)(void *)((char *)rest + checkpoint_numbers[i].at);
}

/* What is not known, as the file that was loaded did not say it, is not said here either. */
static void checkpoint_note(struct checkpoint_rest rest, struct tensors *tensors)
{
    for (size_t i = 0; i < CHECKPOINT_NUMBERS; i++) {
        const int64_t number = *checkpoint_number(&rest, i);

        if (number >= 0)
            tensors_add_note(tensors, checkpoint_numbers[i].key, "%" PRId64, number);
    }
    tensors_add_note(tensors, "best", "%.17g", rest.best);
}

/* Takes the notes over; `optimizer`, `state` and `count` are left as they are. */
static int checkpoint_read_notes(const char *path, const struct tensors *tensors,
                                 struct checkpoint_rest *rest)
{
    const char *best = tensors_note(tensors, "best");

    for (size_t i = 0; i < CHECKPOINT_NUMBERS; i++) {
        const char *text = tensors_note(tensors, checkpoint_numbers[i].key);
        int64_t *number = checkpoint_number(rest, i);

        *number = text && *text ? atoll(text) : -1;
        if (text && (!*text || strlen(text) > 16 || text[strspn(text, "0123456789")] ||
                     *number > checkpoint_numbers[i].most))
            return failure(
                "%s: the header says \"%s\":\"%s\", expected a number from 0 to %" PRId64, path,
                checkpoint_numbers[i].key, text, checkpoint_numbers[i].most);
    }
    rest->best = best ? strtod(best, NULL) : 0.0;
    return 0;
}

int checkpoint_image(const char *path, const struct model *model,
                     const struct checkpoint_rest *rest, struct image *image)
{
    const char *name;

    checkpoint_list(model, image);
    name = checkpoint_list_rest(rest, image);
    checkpoint_note(*rest, &image->tensors);
    if (image_allocate(path, image) < 0)
        return -1;
    checkpoint_copy(model, true, image);
    memcpy(image_data(image, name), rest->state, rest->count * sizeof(float));
    return 0;
}

int checkpoint_save(const char *path, const struct model *model, int64_t epoch)
{
    static struct image image; /* too large for a small stack; one thread saves and loads */
    int result;

    checkpoint_list(model, &image);
    tensors_add_note(&image.tensors, "epoch", "%" PRId64, epoch);
    if (image_allocate(path, &image) < 0)
        return -1;
    checkpoint_copy(model, true, &image);
    result = image_write(path, &image);
    image_free(&image);
    return result;
}

/* Whether the file's tensors are the model's. */
static int checkpoint_match(const char *path, const struct tensors *file,
                            const struct tensors *model)
{
    for (int i = 0; i < model->count; i++) {
        const struct tensor *want = &model->tensors[i];
        const struct tensor *have = tensors_find(file, want->name);

        if (!have)
            return failure("%s: there is no tensor %s in it: is it of another --arch?", path,
                           want->name);
        if (have->width != sizeof(float) || have->dimensions != want->dimensions ||
            memcmp(have->shape, want->shape, (size_t)want->dimensions * sizeof(want->shape[0])))
            return failure(
                "%s: tensor %s has another shape than the model: is it of another --arch?", path,
                want->name);
    }
    for (int i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;

        if (!tensors_find(model, name) && file->tensors[i].width == sizeof(float) &&
            strncmp(name, CHECKPOINT_REST, strlen(CHECKPOINT_REST)))
            return failure("%s: there is a tensor %s in it: is it of another --arch?", path, name);
    }
    return 0;
}

/* Whether the file is of the training that `want` describes. */
static int checkpoint_match_rest(const char *path, const struct tensors *file,
                                 const struct tensor *expected, const struct checkpoint_rest *want,
                                 const struct checkpoint_rest *have)
{
    const struct tensor *tensor = tensors_find(file, expected->name);

    if (!tensor)
        return failure("%s: there is no tensor %s in it: is it of another --optimizer, or without "
                       "one?",
                       path, expected->name);
    if (tensor->width != sizeof(float) || tensor->dimensions != 1 ||
        tensor->shape[0] != expected->shape[0])
        return failure("%s: tensor %s has another size than here: is it of another --arch?", path,
                       expected->name);
    if (have->epoch < 0 || have->samples < 0 || have->step < 0)
        return failure("%s: it does not say how far the training was", path);
    if (have->seed >= 0 && have->seed != want->seed)
        return failure("%s: it is of --seed %" PRId64 ", not of %" PRId64, path, have->seed,
                       want->seed);
    if (have->data >= 0 && have->data != want->data)
        return failure("%s: the training samples were others: is it of other --data?", path);
    return 0;
}

/* Whether the file has an optimizer's state. */
static bool checkpoint_is_whole(const struct tensors *file)
{
    for (int i = 0; i < file->count; i++) {
        if (strncmp(file->tensors[i].name, CHECKPOINT_REST, strlen(CHECKPOINT_REST)) == 0)
            return true;
    }
    return false;
}

/* What is in the file, all of it checked, is taken over. */
static int checkpoint_take(const char *path, const struct image *file, struct model *model,
                           struct checkpoint_rest *rest)
{
    struct checkpoint_rest read = *rest;
    const bool whole = rest->state && checkpoint_is_whole(&file->tensors);
    const struct tensor *state = NULL;
    static struct image expected; /* as in checkpoint_save */

    checkpoint_list(model, &expected);
    if (checkpoint_match(path, &file->tensors, &expected.tensors) < 0 ||
        checkpoint_read_notes(path, &file->tensors, &read) < 0)
        return -1;
    if (whole) {
        checkpoint_list_rest(rest, &expected);
        state = &expected.tensors.tensors[expected.tensors.count - 1];
        if (checkpoint_match_rest(path, &file->tensors, state, rest, &read) < 0)
            return -1;
        memcpy(rest->state, image_data(file, state->name), rest->count * sizeof(float));
    }
    checkpoint_copy(model, false, file);
    *rest = read;
    return whole;
}

int checkpoint_load(const char *path, struct model *model, struct checkpoint_rest *rest)
{
    static struct image file; /* as in checkpoint_save */
    int result = image_read(path, &file);

    if (result < 0)
        return result;
    result = checkpoint_take(path, &file, model, rest);
    image_free(&file);
    return result;
}
