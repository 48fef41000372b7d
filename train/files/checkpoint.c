/* SPDX-License-Identifier: BSD-3-Clause */
/* A model's parameters in a safetensors file. */
#include "checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "tensors.h"
#include "train/failure.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the data of a safetensors file is little-endian, and is copied as it lies in memory"
#endif

static void checkpoint_add(struct tensors *tensors, const struct layer *layer, const char *part)
{
    struct tensor *tensor = &tensors->tensors[tensors->count];
    const uint64_t begin = tensors->count > 0 ? tensor[-1].end : 0;
    uint64_t elements = 1;

    snprintf(tensor->name, sizeof(tensor->name), "%s.%s", layer->name, part);
    tensor->dimensions = 0;
    tensor->shape[tensor->dimensions++] = (uint64_t)layer->out.channels;
    if (strcmp(part, "weight") == 0 && layer->kernel > 0) {
        tensor->shape[tensor->dimensions++] = (uint64_t)layer->inputs;
        tensor->shape[tensor->dimensions++] = (uint64_t)layer->kernel;
        tensor->shape[tensor->dimensions++] = (uint64_t)layer->kernel;
    } else if (strcmp(part, "weight") == 0) {
        tensor->shape[tensor->dimensions++] = (uint64_t)layer->spatial * layer->inputs;
    }
    for (int i = 0; i < tensor->dimensions; i++)
        elements *= tensor->shape[i];
    tensor->begin = begin;
    tensor->end = begin + elements * sizeof(float);
    tensors->count++;
}

#define CHECKPOINT_REST "optimizer."

/* The tensors of the model, in the order of the layers. */
static void checkpoint_list(const struct model *model, int64_t epoch, struct tensors *tensors)
{
    *tensors = (struct tensors){.epoch = epoch, .samples = -1, .step = -1};
    for (int i = 0; i < model->count; i++) {
        if (!model->layers[i].name)
            continue;
        checkpoint_add(tensors, &model->layers[i], "weight");
        checkpoint_add(tensors, &model->layers[i], "bias");
    }
}

/* And what follows them in the file of a training. */
static void checkpoint_list_rest(const struct checkpoint_rest *rest, struct tensors *tensors)
{
    struct tensor *tensor = &tensors->tensors[tensors->count++];

    tensors->samples = rest->samples;
    tensors->step = rest->step;
    snprintf(tensor->name, sizeof(tensor->name), CHECKPOINT_REST "%s", rest->optimizer);
    tensor->dimensions = 1;
    tensor->shape[0] = rest->count;
    tensor->begin = tensor[-1].end;
    tensor->end = tensor->begin + rest->count * sizeof(float);
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

/* Between the model and the data part of a file, whose tensors lie where the table says. */
static void checkpoint_copy(const struct model *model, const struct tensors *tensors, bool save,
                            float *data)
{
    char name[TENSORS_NAME];

    for (int i = 0; i < model->count; i++) {
        const struct layer *layer = &model->layers[i];
        const size_t bias_size = (size_t)layer->out.channels * sizeof(float);
        float *bias;

        if (!layer->name)
            continue;
        snprintf(name, sizeof(name), "%s.weight", layer->name);
        checkpoint_copy_weight(layer, save, data + tensors_find(tensors, name)->begin / 4);
        snprintf(name, sizeof(name), "%s.bias", layer->name);
        bias = data + tensors_find(tensors, name)->begin / 4;
        memcpy(save ? bias : layer->bias, save ? layer->bias : bias, bias_size);
    }
}

static void checkpoint_put_length(uint64_t length, uint8_t *to)
{
    for (int i = 0; i < TENSORS_PREFIX; i++)
        to[i] = (uint8_t)(length >> (8 * i));
}

static uint64_t checkpoint_get_length(const uint8_t *from)
{
    uint64_t length = 0;

    for (int i = 0; i < TENSORS_PREFIX; i++)
        length |= (uint64_t)from[i] << (8 * i);
    return length;
}

/* rest: NULL for the parameters alone. */
static int checkpoint_write(const char *path, const struct model *model, int64_t epoch,
                            const struct checkpoint_rest *rest)
{
    const size_t own = model->parameters, more = rest ? rest->count : 0;
    uint8_t head[TENSORS_PREFIX + TENSORS_HEADER_MOST];
    float *data = malloc((own + more) * sizeof(float));
    struct tensors tensors;
    int length, result;

    if (!data)
        return failure("%s: out of memory", path);
    checkpoint_list(model, epoch, &tensors);
    checkpoint_copy(model, &tensors, true, data);
    if (rest) {
        checkpoint_list_rest(rest, &tensors);
        memcpy(data + own, rest->state, more * sizeof(float));
    }
    length = tensors_write(&tensors, (char *)head + TENSORS_PREFIX, TENSORS_HEADER_MOST);
    if (length < 0) {
        free(data);
        return failure("%s: the header does not fit", path);
    }
    checkpoint_put_length((uint64_t)length, head);
    result = file_replace(path, head, TENSORS_PREFIX + (size_t)length, data,
                          (own + more) * sizeof(float));
    free(data);
    return result;
}

int checkpoint_save(const char *path, const struct model *model, int64_t epoch)
{
    return checkpoint_write(path, model, epoch, NULL);
}

int checkpoint_save_all(const char *path, const struct model *model,
                        const struct checkpoint_rest *rest)
{
    return checkpoint_write(path, model, rest->epoch, rest);
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
        if (have->dimensions != want->dimensions ||
            memcmp(have->shape, want->shape, (size_t)want->dimensions * sizeof(want->shape[0])))
            return failure(
                "%s: tensor %s has another shape than the model: is it of another --arch?", path,
                want->name);
    }
    for (int i = 0; i < file->count; i++) {
        const char *name = file->tensors[i].name;

        if (!tensors_find(model, name) && strncmp(name, CHECKPOINT_REST, strlen(CHECKPOINT_REST)))
            return failure("%s: there is a tensor %s in it: is it of another --arch?", path, name);
    }
    return 0;
}

/* Whether it holds the training's rest. */
static int checkpoint_match_rest(const char *path, const struct tensors *file,
                                 const struct tensors *expected)
{
    const struct tensor *want = &expected->tensors[expected->count - 1];
    const struct tensor *have = tensors_find(file, want->name);

    if (!have)
        return failure("%s: there is no tensor %s in it: is it of another --optimizer, or without "
                       "one?",
                       path, want->name);
    if (have->dimensions != 1 || have->shape[0] != want->shape[0])
        return failure("%s: tensor %s has another size than here: is it of another --arch?", path,
                       want->name);
    if (file->epoch < 0 || file->samples < 0 || file->step < 0)
        return failure("%s: it does not say how far the training was", path);
    return 0;
}

/* Takes the file apart; the data part begins at *data_p. */
static int checkpoint_parse(const char *path, const uint8_t *bytes, size_t size,
                            struct tensors *tensors, size_t *data_p)
{
    uint64_t length;

    if (size < TENSORS_PREFIX)
        return failure(
            "%s: byte %zu: the file ends here, expected %d bytes with the header's length", path,
            size, TENSORS_PREFIX);
    length = checkpoint_get_length(bytes);
    if (length > TENSORS_HEADER_MOST)
        return failure("%s: byte 0: a header of %" PRIu64 " bytes, expected at most %d: not a "
                       "safetensors file of this program",
                       path, length, TENSORS_HEADER_MOST);
    if (length > size - TENSORS_PREFIX)
        return failure("%s: byte %zu: the file ends here, expected a header of %" PRIu64 " bytes",
                       path, size, length);
    *data_p = TENSORS_PREFIX + (size_t)length;
    return tensors_read(path, (const char *)bytes + TENSORS_PREFIX, (size_t)length, size - *data_p,
                        tensors);
}

/* The file's floats, a copy because the header's length may misalign it. NULL: out of memory. */
static float *checkpoint_floats(const char *path, const uint8_t *data, size_t bytes)
{
    float *floats = malloc(bytes);

    if (floats)
        memcpy(floats, data, bytes);
    else
        failure("%s: out of memory", path);
    return floats;
}

static void checkpoint_take_rest(const struct tensors *file, const struct tensors *expected,
                                 const float *data, struct checkpoint_rest *rest)
{
    const char *name = expected->tensors[expected->count - 1].name;

    rest->epoch = file->epoch;
    rest->samples = file->samples;
    rest->step = file->step;
    memcpy(rest->state, data + tensors_find(file, name)->begin / 4, rest->count * sizeof(float));
}

/* rest: NULL for the parameters alone. */
static int checkpoint_read(const char *path, struct model *model, int64_t *epoch_p,
                           struct checkpoint_rest *rest)
{
    struct tensors file, expected;
    uint8_t *bytes = NULL;
    float *data = NULL;
    size_t size = 0, begin = 0;
    int result = -1;

    checkpoint_list(model, 0, &expected);
    if (file_read(path, &bytes, &size) < 0 ||
        checkpoint_parse(path, bytes, size, &file, &begin) < 0 ||
        checkpoint_match(path, &file, &expected) < 0)
        goto out;
    if (rest) {
        checkpoint_list_rest(rest, &expected);
        if (checkpoint_match_rest(path, &file, &expected) < 0)
            goto out;
    }
    data = checkpoint_floats(path, bytes + begin, size - begin);
    if (!data)
        goto out;
    checkpoint_copy(model, &file, false, data);
    if (rest)
        checkpoint_take_rest(&file, &expected, data, rest);
    *epoch_p = file.epoch > 0 ? file.epoch : 0;
    result = 0;
out:
    free(data);
    free(bytes);
    return result;
}

int checkpoint_load(const char *path, struct model *model, int64_t *epoch_p)
{
    return checkpoint_read(path, model, epoch_p, NULL);
}

int checkpoint_load_all(const char *path, struct model *model, struct checkpoint_rest *rest)
{
    int64_t epoch;

    return checkpoint_read(path, model, &epoch, rest);
}
