/* SPDX-License-Identifier: BSD-3-Clause */
/* The header of a safetensors file: finding, writing and checking. */
#include "tensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tensors_json.h"
#include "train/failure.h"

const struct tensor *tensors_find(const struct tensors *tensors, const char *name)
{
    for (int i = 0; i < tensors->count; i++) {
        if (strcmp(tensors->tensors[i].name, name) == 0)
            return &tensors->tensors[i];
    }
    return NULL;
}

struct tensors_out {
    char *text;
    size_t size, length; /* length goes on counting when size is too small */
};

__attribute__((format(printf, 2, 3))) static void tensors_put(struct tensors_out *out,
                                                              const char *format, ...)
{
    const size_t left = out->length < out->size ? out->size - out->length : 0;
    va_list args;
    int length;

    va_start(args, format);
    length = vsnprintf(left > 0 ? out->text + out->length : NULL, left, format, args);
    va_end(args);
    out->length += length > 0 ? (size_t)length : 0;
}

int tensors_write(const struct tensors *tensors, char *text, size_t size)
{
    struct tensors_out out = {text, size, 0};

    tensors_put(&out, "{\"__metadata__\":{\"format\":\"pt\",\"epoch\":\"%" PRId64 "\"",
                tensors->epoch);
    if (tensors->step >= 0)
        tensors_put(&out, ",\"samples\":\"%" PRId64 "\",\"step\":\"%" PRId64 "\"", tensors->samples,
                    tensors->step);
    tensors_put(&out, "}");
    for (int i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = &tensors->tensors[i];

        tensors_put(&out, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[", tensor->name);
        for (int j = 0; j < tensor->dimensions; j++)
            tensors_put(&out, "%s%" PRIu64, j ? "," : "", tensor->shape[j]);
        tensors_put(&out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor->begin,
                    tensor->end);
    }
    tensors_put(&out, "}");
    while (out.length % 8 != 0)
        tensors_put(&out, " ");
    return out.length < size ? (int)out.length : -1;
}

static int tensors_check_size(const char *path, const struct tensor *tensor)
{
    uint64_t bytes = sizeof(float);

    for (int i = 0; i < tensor->dimensions; i++) {
        if (__builtin_mul_overflow(bytes, tensor->shape[i], &bytes))
            return failure("%s: tensor %s: its shape is too large", path, tensor->name);
    }
    if (tensor->end < tensor->begin || tensor->end - tensor->begin != bytes)
        return failure("%s: tensor %s: data from %" PRIu64 " to %" PRIu64 ", expected %" PRIu64
                       " bytes, which its shape calls for",
                       path, tensor->name, tensor->begin, tensor->end, bytes);
    return 0;
}

/* The tensor that begins at byte `at`; the header need not list them in order. */
static const struct tensor *tensors_at(const struct tensors *tensors, uint64_t at)
{
    for (int i = 0; i < tensors->count; i++) {
        if (tensors->tensors[i].begin == at && tensors->tensors[i].end > at)
            return &tensors->tensors[i];
    }
    return NULL;
}

static int tensors_check(const char *path, const struct tensors *tensors, uint64_t data_size)
{
    uint64_t at = 0;

    for (int i = 0; i < tensors->count; i++) {
        if (tensors_check_size(path, &tensors->tensors[i]) < 0)
            return -1;
    }
    for (int i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = tensors_at(tensors, at);

        if (!tensor)
            return failure("%s: no tensor begins at byte %" PRIu64 " of the data, expected them to "
                           "follow each other without gap or overlap",
                           path, at);
        at = tensor->end;
    }
    if (at != data_size)
        return failure("%s: %" PRIu64 " bytes of data, expected %" PRIu64
                       ", which the header announces: the file is truncated or has bytes too many",
                       path, data_size, at);
    return 0;
}

int tensors_read(const char *path, const char *text, size_t length, uint64_t data_size,
                 struct tensors *tensors)
{
    struct tensors read = {.count = 0, .epoch = -1, .samples = -1, .step = -1};

    if (tensors_parse(path, text, length, &read) < 0 || tensors_check(path, &read, data_size) < 0)
        return -1;
    *tensors = read;
    return 0;
}
