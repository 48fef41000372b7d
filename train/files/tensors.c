/* SPDX-License-Identifier: BSD-3-Clause */
/* The header of a safetensors file: finding, writing and checking. */
#include "tensors.h"

#include <config.h>

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

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

static void header_seal(char *text, size_t length)
{
    char sum[TENSORS_SUM + 1];

    tensors_sum(text, length, sum);
    memcpy(text + (header_digits(text, length) - text), sum, TENSORS_SUM);
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

static void tensors_put_metadata(struct tensors_out *out, const struct tensors *tensors)
{
    tensors_put(out, "{\"__metadata__\":{\"format\":\"pt\"," HEADER_SUM HEADER_ZEROS "\"");
    for (int i = 0; i < tensors->note_count; i++)
        tensors_put(out, ",\"%s\":\"%s\"", tensors->notes[i].key, tensors->notes[i].text);
    for (int i = 0; i < tensors->count; i++)
        tensors_put(out, ",\"crc32.%s\":\"%s\"", tensors->tensors[i].name, tensors->tensors[i].sum);
    tensors_put(out, "}");
}

int tensors_write(const struct tensors *tensors, char *text, size_t size)
{
    struct tensors_out out = {text, size, 0};

    tensors_put_metadata(&out, tensors);
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
    if (out.length >= size)
        return -1;
    header_seal(text, out.length);
    return (int)out.length;
}

static int tensors_check_size(const char *path, const struct tensor *tensor)
{
    uint64_t bytes = (uint64_t)tensor->width;

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
    *tensors = (struct tensors){.count = 0};
    if (tensors_parse(path, text, length, tensors) < 0 ||
        header_check(path, text, length, tensors) < 0)
        return -1;
    return tensors_check(path, tensors, data_size);
}
