/* SPDX-License-Identifier: BSD-3-Clause */
/* The header of a safetensors file: names, shapes and places of tensors, as JSON. */
#ifndef TRAIN_TENSORS_H
#define TRAIN_TENSORS_H

#include <stddef.h>
#include <stdint.h>

/*
 *   byte 0..7   length of the header, 64 bits, little-endian
 *   then        the header, padded with spaces so that the data is aligned to 8
 *   then        the data: float32, little-endian, one tensor after the other
 */
enum {
    TENSORS_MOST = 32,
    TENSORS_NAME = 48,
    TENSORS_DIMENSIONS = 4,
    TENSORS_HEADER_MOST = 1 << 16, /* bytes of JSON; ours have some hundred */
    TENSORS_PREFIX = 8
};

struct tensor {
    char name[TENSORS_NAME];
    int dimensions;
    uint64_t shape[TENSORS_DIMENSIONS];
    uint64_t begin, end; /* bytes in the data */
};

struct tensors {
    int count;
    struct tensor tensors[TENSORS_MOST];
    /* From the metadata; -1: not said. Epochs done, samples seen in the next one, steps in all. */
    int64_t epoch, samples, step;
};

/* The tensor of that name, or NULL. */
const struct tensor *tensors_find(const struct tensors *tensors, const char *name);

/* Writes the padded JSON (not the length) to text; returns its length, -1 if size is too small. */
int tensors_write(const struct tensors *tensors, char *text, size_t size);

/*
 * Reads the JSON. Checks that every tensor is float32 and that its place is as long as its
 * shape says, and that the places follow each other without gap or overlap and fill
 * data_size bytes exactly. path is for the text of an error, which also names byte or tensor.
 */
int tensors_read(const char *path, const char *text, size_t length, uint64_t data_size,
                 struct tensors *tensors);

#endif
