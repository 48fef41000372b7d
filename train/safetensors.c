/* SPDX-License-Identifier: BSD-3-Clause */
/* A safetensors file. */
#include <config.h>

#include "safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_JANSSON
#include <jansson.h>
#endif
#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

#include "failure.h"
#include "file.h"

/* ---- the JSON of the header ---- */

#ifdef HAVE_JANSSON

/* Says what is wrong with the value of that name. */
static int value_wrong(const char *path, const char *name, const char *what)
{
    return failure("%s: %s in the header: %s", path, name, what);
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
    static const char wrong_shape[] = "expected a shape of few whole numbers";
    struct tensor *tensor = &tensors->tensors[tensors->count];
    json_int_t begin, end;
    json_error_t error;
    const char *dtype;
    json_t *shape, *number;
    size_t i;

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
    if (!json_is_array(shape) || json_array_size(shape) > TENSORS_DIMENSIONS)
        return value_wrong(path, name, wrong_shape);
    json_array_foreach(shape, i, number)
    {
        if (!json_is_integer(number) || json_integer_value(number) < 0)
            return value_wrong(path, name, wrong_shape);
        tensor->shape[tensor->dimensions++] = (uint64_t)json_integer_value(number);
    }
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

/*
 * Reads the syntax only: names, dtypes (float32 is demanded), shapes, places, checksums and notes.
 * -1: the text names the file, and the byte where it is no JSON, or the tensor that is wrong.
 */
static int header_parse(const char *path, const char *text, size_t length, struct tensors *tensors)
{
    static const char metadata[] = "__metadata__";
    json_error_t error;
    json_t *header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error), *value = NULL;
    json_t *text_value;
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
    if (result == 0 && value && !json_is_object(value))
        result = value_wrong(path, metadata, "expected an object");
    json_object_foreach(value, name, text_value)
    {
        if (result == 0 && json_is_string(text_value))
            result = note_read(path, name, json_string_value(text_value), tensors);
    }
    json_decref(header);
    return result;
}

#else

static int header_parse(const char *path, const char *text, size_t length, struct tensors *tensors)
{
    (void)text, (void)length, (void)tensors;
    return failure("%s: cannot be read: this program was built without jansson", path);
}

#endif

/* ---- the header: finding, writing and checking ---- */

const struct tensor *tensors_find(const struct tensors *tensors, const char *name)
{
    for (int i = 0; i < tensors->count; i++) {
        if (strcmp(tensors->tensors[i].name, name) == 0)
            return &tensors->tensors[i];
    }
    return NULL;
}

const char *tensors_note(const struct tensors *tensors, const char *key)
{
    for (int i = 0; i < tensors->note_count; i++) {
        if (strcmp(tensors->notes[i].key, key) == 0)
            return tensors->notes[i].text;
    }
    return NULL;
}

void tensors_add_note(struct tensors *tensors, const char *key, const char *format, ...)
{
    struct tensors_note *note = &tensors->notes[tensors->note_count++];
    va_list args;

    snprintf(note->key, sizeof(note->key), "%s", key);
    va_start(args, format);
    vsnprintf(note->text, sizeof(note->text), format, args);
    va_end(args);
}

#ifndef HAVE_ZLIB
/* zlib's function of this name, for its polynomial; slower. */
static unsigned long crc32_z(unsigned long crc, const unsigned char *bytes, size_t size)
{
    uint32_t table[256], sum = ~(uint32_t)crc;

    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? UINT32_C(0xEDB88320) : 0);
    }
    for (size_t i = 0; i < size; i++)
        sum = sum >> 8 ^ table[(sum ^ bytes[i]) & 0xFF];
    return ~sum;
}
#endif

void tensors_sum(const void *bytes, size_t size, char sum[TENSORS_SUM + 1])
{
    snprintf(sum, TENSORS_SUM + 1, "%08" PRIx32, (uint32_t)crc32_z(0, bytes, size));
}

/* The header's own checksum, with zeros in the place where it stands. */
#define HEADER_SUM "\"crc32\":\""
#define HEADER_ZEROS "00000000"

/* Where the digits are; NULL: nowhere. */
static const char *header_digits(const char *text, size_t length)
{
    const char *at = memmem(text, length, HEADER_SUM, strlen(HEADER_SUM));

    return at && (size_t)(text + length - at) >= strlen(HEADER_SUM HEADER_ZEROS)
               ? at + strlen(HEADER_SUM)
               : NULL;
}

/* Whether the header is what was written. One that says no checksum at all is taken as it is. */
static int header_check(const char *path, const char *text, size_t length,
                        const struct tensors *tensors)
{
    const char *digits = header_digits(text, length);
    char sum[TENSORS_SUM + 1];
    bool has = tensors->sum[0];
    char *copy;

    for (int i = 0; i < tensors->count; i++)
        has = has || tensors->tensors[i].sum[0];
    if (!has)
        return 0;
    copy = digits ? malloc(length) : NULL;
    if (!copy)
        return failure("%s: the header is damaged: its checksum is not where it should be", path);
    memcpy(copy, text, length);
    memcpy(copy + (digits - text), HEADER_ZEROS, TENSORS_SUM);
    tensors_sum(copy, length, sum);
    free(copy);
    if (strcmp(sum, tensors->sum) == 0)
        return 0;
    return failure("%s: the header is damaged: its checksum is %s, expected %s", path, sum,
                   tensors->sum);
}

/* The length, and the padded header; the caller frees *text_p. */
static int header_print(const struct tensors *tensors, char **text_p, size_t *size_p)
{
    FILE *to = open_memstream(text_p, size_p);
    char sum[TENSORS_SUM + 1];
    uint64_t length = 0;

    if (!to)
        return -1;
    fwrite(&length, TENSORS_PREFIX, 1, to);
    fputs("{\"__metadata__\":{\"format\":\"pt\"," HEADER_SUM HEADER_ZEROS "\"", to);
    for (int i = 0; i < tensors->note_count; i++)
        fprintf(to, ",\"%s\":\"%s\"", tensors->notes[i].key, tensors->notes[i].text);
    for (int i = 0; i < tensors->count; i++)
        fprintf(to, ",\"crc32.%s\":\"%s\"", tensors->tensors[i].name, tensors->tensors[i].sum);
    fputs("}", to);
    for (int i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = &tensors->tensors[i];

        fprintf(to, ",\"%s\":{\"dtype\":\"F32\",\"shape\":[", tensor->name);
        for (int j = 0; j < tensor->dimensions; j++)
            fprintf(to, "%s%" PRIu64, j ? "," : "", tensor->shape[j]);
        fprintf(to, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor->begin, tensor->end);
    }
    fputs("}", to);
    while (ftell(to) % 8 != 0)
        fputc(' ', to);
    if (fclose(to) != 0)
        return -1;
    length = *size_p - TENSORS_PREFIX;
    memcpy(*text_p, &length, TENSORS_PREFIX);
    tensors_sum(*text_p + TENSORS_PREFIX, length, sum);
    memcpy(memmem(*text_p, *size_p, HEADER_SUM, strlen(HEADER_SUM)) + strlen(HEADER_SUM), sum,
           TENSORS_SUM);
    return 0;
}

static int tensors_check(const char *path, const struct tensors *tensors, uint64_t data_size)
{
    uint64_t at = 0;

    for (int i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = &tensors->tensors[i];
        uint64_t bytes = (uint64_t)tensor->width;

        for (int j = 0; j < tensor->dimensions; j++) {
            if (__builtin_mul_overflow(bytes, tensor->shape[j], &bytes))
                return failure("%s: tensor %s: its shape is too large", path, tensor->name);
        }
        if (tensor->end < tensor->begin || tensor->end - tensor->begin != bytes)
            return failure("%s: tensor %s: data from %" PRIu64 " to %" PRIu64 ", expected %" PRIu64
                           " bytes, which its shape calls for",
                           path, tensor->name, tensor->begin, tensor->end, bytes);
    }
    for (int i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = tensors->tensors, *end = tensor + tensors->count;

        /* The tensor that begins at byte `at`; the header need not list them in order. */
        while (tensor < end && (tensor->begin != at || tensor->end <= at))
            tensor++;
        if (tensor == end)
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

/* ---- a file in memory ---- */

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the data of a safetensors file is little-endian, and is copied as it lies in memory"
#endif

struct tensor *image_add(struct image *image, const char *name, int dimensions,
                         const uint64_t *shape)
{
    struct tensors *tensors = &image->tensors;
    struct tensor *tensor = &tensors->tensors[tensors->count];
    uint64_t elements = 1;

    *tensor = (struct tensor){.dimensions = dimensions};
    snprintf(tensor->name, sizeof(tensor->name), "%s", name);
    for (int i = 0; i < dimensions; i++)
        elements *= tensor->shape[i] = shape[i];
    tensor->begin = tensors->count > 0 ? tensor[-1].end : 0;
    tensor->end = tensor->begin + elements * sizeof(float);
    tensors->count++;
    return tensor;
}

static size_t image_bytes(const struct image *image)
{
    const int count = image->tensors.count;

    return count > 0 ? image->tensors.tensors[count - 1].end : 0;
}

int image_allocate(const char *path, struct image *image)
{
    image->data = malloc(image_bytes(image));
    return image->data ? 0 : failure("%s: out of memory", path);
}

float *image_data(const struct image *image, const char *name)
{
    const struct tensor *tensor = tensors_find(&image->tensors, name);

    return tensor ? image->data + tensor->begin / sizeof(float) : NULL;
}

void image_free(struct image *image)
{
    free(image->data);
    image->data = NULL;
}

int image_write(const char *path, struct image *image)
{
    size_t size = 0;
    char *head = NULL;
    int result;

    for (int i = 0; i < image->tensors.count; i++) {
        struct tensor *tensor = &image->tensors.tensors[i];

        tensors_sum((char *)image->data + tensor->begin, tensor->end - tensor->begin, tensor->sum);
    }
    result = header_print(&image->tensors, &head, &size) < 0
                 ? failure("%s: no memory for the header", path)
                 : file_replace(path, head, size, image->data, image_bytes(image));
    free(head);
    return result;
}

/* Takes the file apart; the data part begins at *data_p. */
static int image_parse(const char *path, const uint8_t *bytes, size_t size, struct tensors *tensors,
                       size_t *data_p)
{
    const char *text = (const char *)bytes + TENSORS_PREFIX;
    uint64_t length;

    if (size < TENSORS_PREFIX)
        return failure(
            "%s: byte %zu: the file ends here, expected %d bytes with the header's length", path,
            size, TENSORS_PREFIX);
    memcpy(&length, bytes, TENSORS_PREFIX);
    if (length > TENSORS_HEADER_MOST)
        return failure("%s: byte 0: a header of %" PRIu64 " bytes, expected at most %d: not a "
                       "safetensors file of this program",
                       path, length, TENSORS_HEADER_MOST);
    if (length > size - TENSORS_PREFIX)
        return failure("%s: byte %zu: the file ends here, expected a header of %" PRIu64 " bytes",
                       path, size, length);
    *data_p = TENSORS_PREFIX + (size_t)length;
    *tensors = (struct tensors){.count = 0};
    if (header_parse(path, text, length, tensors) < 0 ||
        header_check(path, text, length, tensors) < 0)
        return -1;
    return tensors_check(path, tensors, size - *data_p);
}

int image_read(const char *path, struct image *image)
{
    char sum[TENSORS_SUM + 1];
    uint8_t *bytes = NULL;
    size_t size = 0, begin = 0;
    int result;

    image->data = NULL;
    if (file_read(path, &bytes, &size) < 0)
        return IMAGE_OTHER;
    result = image_parse(path, bytes, size, &image->tensors, &begin);
    /* Whether the data are what was written, as far as the file says. */
    for (int i = 0; result == 0 && i < image->tensors.count; i++) {
        const struct tensor *tensor = &image->tensors.tensors[i];

        tensors_sum(bytes + begin + tensor->begin, tensor->end - tensor->begin, sum);
        if (tensor->sum[0] && strcmp(sum, tensor->sum) != 0)
            result = failure("%s: tensor %s is damaged: its checksum is %s, expected %s", path,
                             tensor->name, sum, tensor->sum);
    }
    if (result < 0) {
        free(bytes);
        return IMAGE_DAMAGED;
    }
    /* The header's length may misalign the data: so they are moved to the front. */
    memmove(bytes, bytes + begin, size - begin);
    image->data = (float *)(void *)bytes;
    return 0;
}
