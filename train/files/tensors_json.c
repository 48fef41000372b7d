/* SPDX-License-Identifier: BSD-3-Clause */
/* The JSON of a safetensors header. */
#include "tensors_json.h"

#include <config.h>

#include "train/failure.h"

#ifdef HAVE_JANSSON

#include <jansson.h>
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

/* Bytes of an element, 0 for what nobody here can use. */
static int width_read(const char *name, const char *dtype)
{
    static const char counter[] = ".num_batches_tracked";
    const size_t length = strlen(name), ending = strlen(counter);

    if (strcmp(dtype, "F32") == 0)
        return sizeof(float);
    if (strcmp(dtype, "I64") == 0 && length > ending &&
        strcmp(name + length - ending, counter) == 0)
        return sizeof(int64_t);
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
    tensor->width = width_read(name, dtype);
    if (tensor->width == 0)
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

/* Digits only, so that a capital letter for a small one is a difference. */
static int sum_read(const char *path, const char *key, const char *text, char *sum)
{
    if (strlen(text) != TENSORS_SUM || text[strspn(text, "0123456789abcdef")])
        return value_wrong(path, key, "expected eight hexadecimal digits");
    strcpy(sum, text);
    return 0;
}

/* A text of the metadata. Notes of other programs that are too long or too many are passed over. */
static int note_read(const char *path, const char *key, const char *text, struct tensors *tensors)
{
    static const char prefix[] = "crc32.";
    const size_t length = strlen(prefix);
    const struct tensor *tensor = NULL;

    if (strcmp(key, "crc32") == 0)
        return sum_read(path, key, text, tensors->sum);
    if (strncmp(key, prefix, length) == 0) {
        tensor = tensors_find(tensors, key + length);
        if (!tensor)
            return value_wrong(path, key, "there is no such tensor");
        return sum_read(path, key, text, tensors->tensors[tensor - tensors->tensors].sum);
    }
    if (tensors->note_count < TENSORS_NOTES && strlen(key) < sizeof(tensors->notes[0].key) &&
        strlen(text) < sizeof(tensors->notes[0].text))
        tensors_add_note(tensors, key, "%s", text);
    return 0;
}

static int metadata_read(const char *path, const char *name, const json_t *value,
                         struct tensors *tensors)
{
    const json_t *text;
    const char *key;

    if (!json_is_object(value))
        return value_wrong(path, name, "expected an object");
    json_object_foreach((json_t *)value, key, text)
    {
        if (json_is_string(text) && note_read(path, key, json_string_value(text), tensors) < 0)
            return -1;
    }
    return 0;
}

int tensors_parse(const char *path, const char *text, size_t length, struct tensors *tensors)
{
    static const char metadata[] = "__metadata__";
    json_error_t error;
    json_t *header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error), *value = NULL;
    const char *name;
    int result = 0;

    if (!header)
        return failure("%s: byte %d: no JSON in the header: %s", path,
                       TENSORS_PREFIX + error.position - 1, error.text);
    if (!json_is_object(header))
        result = failure("%s: byte %d: expected an object", path, TENSORS_PREFIX);
    json_object_foreach(header, name, value)
    {
        if (result == 0 && strcmp(name, metadata) != 0)
            result = tensor_read(path, name, value, tensors);
    }
    value = json_object_get(header, metadata); /* after the tensors, which it speaks of */
    if (result == 0 && value)
        result = metadata_read(path, metadata, value, tensors);
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
