/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON of a safetensors header. */
#include "tensors_json.h"

#include <config.h>

#include "train/failure.h"

#ifdef HAVE_JANSSON

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Says what is wrong with the value of that name. */
static int value_wrong(const char *path, const char *name, const char *what)
{
    return failure("%s: %s in the header: %s", path, name, what);
}

static int shape_read(const json_t *shape, struct tensor *tensor)
{
    const size_t count = json_array_size(shape); /* 0 if it is no array */

    if (!json_is_array(shape) || count > TENSORS_DIMENSIONS)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const json_t *number = json_array_get(shape, i);

        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return -1;
        tensor->shape[i] = (uint64_t)json_integer_value(number);
    }
    tensor->dimensions = (int)count;
    return 0;
}

static int tensor_read(const char *path, const char *name, json_t *value, struct tensors *tensors)
{
    struct tensor *tensor = &tensors->tensors[tensors->count];
    json_int_t begin, end;
    json_error_t error;
    const char *dtype;
    json_t *shape;

    if (tensors->count == TENSORS_MOST)
        return value_wrong(path, name, "expected fewer tensors");
    if (strlen(name) >= sizeof(tensor->name))
        return value_wrong(path, name, "expected a shorter name");
    if (json_unpack_ex(value, &error, JSON_STRICT, "{s:s, s:o, s:[I, I]}", "dtype", &dtype, "shape",
                       &shape, "data_offsets", &begin, &end) < 0)
        return value_wrong(path, name, error.text);
    if (strcmp(dtype, "F32") != 0)
        return value_wrong(path, name, "expected dtype F32");
    if (shape_read(shape, tensor) < 0)
        return value_wrong(path, name, "expected a shape of few whole numbers");
    if (begin < 0 || end < 0)
        return value_wrong(path, name, "expected data_offsets of 0 and more");
    strcpy(tensor->name, name);
    tensor->begin = (uint64_t)begin;
    tensor->end = (uint64_t)end;
    tensors->count++;
    return 0;
}

/* A number written as a text, up to `most`. What is not there leaves *number_p as it is. */
static bool number_read(const json_t *object, const char *key, int64_t most, int64_t *number_p)
{
    const char *text = json_string_value(json_object_get(object, key));

    if (!text)
        return true;
    if (!*text || strlen(text) > 15 || text[strspn(text, "0123456789")] || atoll(text) > most)
        return false;
    *number_p = atoll(text);
    return true;
}

static int metadata_read(const char *path, const char *name, const json_t *value,
                         struct tensors *tensors)
{
    const int64_t most = 1000000000000;

    if (!json_is_object(value))
        return value_wrong(path, name, "expected an object");
    if (!number_read(value, "epoch", 1000000, &tensors->epoch))
        return value_wrong(path, name, "expected an epoch from 0 to 1000000");
    if (!number_read(value, "samples", most, &tensors->samples) ||
        !number_read(value, "step", most, &tensors->step))
        return value_wrong(path, name, "expected numbers of samples and steps up to 10^12");
    return 0;
}

int tensors_parse(const char *path, const char *text, size_t length, struct tensors *tensors)
{
    json_error_t error;
    json_t *header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error), *value;
    const char *name;
    int result = 0;

    if (!header)
        return failure("%s: byte %d: no JSON in the header: %s", path,
                       TENSORS_PREFIX + error.position - 1, error.text);
    if (!json_is_object(header))
        result = failure("%s: byte %d: expected an object", path, TENSORS_PREFIX);
    json_object_foreach(header, name, value)
    {
        if (result == 0)
            result = strcmp(name, "__metadata__") == 0 ? metadata_read(path, name, value, tensors)
                                                       : tensor_read(path, name, value, tensors);
    }
    json_decref(header);
    return result;
}

#else

int tensors_parse(const char *path, const char *text, size_t length, struct tensors *tensors)
{
    (void)text, (void)length, (void)tensors;
    return failure("%s: cannot be read: this program was built without jansson", path);
}

#endif
