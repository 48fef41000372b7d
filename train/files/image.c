/* SPDX-License-Identifier: BSD-3-Clause */
/* A safetensors file in memory. */
#include "image.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file.h"
#include "train/failure.h"

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

static void image_put_length(uint64_t length, uint8_t *to)
{
    for (int i = 0; i < TENSORS_PREFIX; i++)
        to[i] = (uint8_t)(length >> (8 * i));
}

static uint64_t image_get_length(const uint8_t *from)
{
    uint64_t length = 0;

    for (int i = 0; i < TENSORS_PREFIX; i++)
        length |= (uint64_t)from[i] << (8 * i);
    return length;
}

int image_write(const char *path, struct image *image)
{
    uint8_t *head = malloc(TENSORS_PREFIX + TENSORS_HEADER_MOST); /* too large for a small stack */
    int length, result;

    if (!head)
        return failure("%s: no memory for the header", path);
    for (int i = 0; i < image->tensors.count; i++) {
        struct tensor *tensor = &image->tensors.tensors[i];

        tensors_sum((char *)image->data + tensor->begin, tensor->end - tensor->begin, tensor->sum);
    }
    length = tensors_write(&image->tensors, (char *)head + TENSORS_PREFIX, TENSORS_HEADER_MOST);
    if (length < 0) {
        result = failure("%s: the header does not fit", path);
    } else {
        image_put_length((uint64_t)length, head);
        result = file_replace(path, head, TENSORS_PREFIX + (size_t)length, image->data,
                              image_bytes(image));
    }
    free(head);
    return result;
}

/* Takes the file apart; the data part begins at *data_p. */
static int image_parse(const char *path, const uint8_t *bytes, size_t size, struct tensors *tensors,
                       size_t *data_p)
{
    uint64_t length;

    if (size < TENSORS_PREFIX)
        return failure(
            "%s: byte %zu: the file ends here, expected %d bytes with the header's length", path,
            size, TENSORS_PREFIX);
    length = image_get_length(bytes);
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

/* Whether the data are what was written, as far as the file says. */
static int image_check(const char *path, const struct tensors *tensors, const uint8_t *data)
{
    char sum[TENSORS_SUM + 1];

    for (int i = 0; i < tensors->count; i++) {
        const struct tensor *tensor = &tensors->tensors[i];

        if (!tensor->sum[0])
            continue;
        tensors_sum(data + tensor->begin, tensor->end - tensor->begin, sum);
        if (strcmp(sum, tensor->sum) != 0)
            return failure("%s: tensor %s is damaged: its checksum is %s, expected %s", path,
                           tensor->name, sum, tensor->sum);
    }
    return 0;
}

/* The header's length may misalign the data: so they are moved to the front. */
static void image_take(uint8_t *bytes, size_t begin, size_t size, struct image *image)
{
    memmove(bytes, bytes + begin, size - begin);
    image->data = (float *)(void *)bytes;
}

int image_read(const char *path, struct image *image)
{
    uint8_t *bytes = NULL;
    size_t size = 0, begin = 0;

    image->data = NULL;
    if (file_read(path, &bytes, &size) < 0)
        return IMAGE_OTHER;
    if (image_parse(path, bytes, size, &image->tensors, &begin) < 0 ||
        image_check(path, &image->tensors, bytes + begin) < 0) {
        free(bytes);
        return IMAGE_DAMAGED;
    }
    image_take(bytes, begin, size, image);
    return 0;
}
