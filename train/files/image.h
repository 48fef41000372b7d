/* SPDX-License-Identifier: BSD-3-Clause */
/* A safetensors file in memory: tensors, notes and data. */
#ifndef TRAIN_IMAGE_H
#define TRAIN_IMAGE_H

#include "tensors.h"

/* How a file can be wrong, besides not being readable at all. */
enum image_status {
    IMAGE_OTHER = -1,  /* it is not there, or whole and not what was expected */
    IMAGE_DAMAGED = -2 /* it is not what was written, or no such file at all */
};

struct image {
    struct tensors tensors; /* their places are in data, in order */
    float *data;            /* NULL: none yet; the image's own */
};

/* Adds a tensor behind the others; dimensions and shape as in struct tensor. */
struct tensor *image_add(struct image *image, const char *name, int dimensions,
                         const uint64_t *shape);

/* Makes room for the data of all tensors that were added. -1: out of memory; path for the text. */
int image_allocate(const char *path, struct image *image);

/* Where the data of the tensor of that name are, or NULL. */
float *image_data(const struct image *image, const char *name);

void image_free(struct image *image); /* a zeroed one is accepted */

/* Sets the checksums, and makes path this file as file_replace does. */
int image_write(const char *path, struct image *image);

/*
 * Reads and checks path: an enum image_status, and the text names the file, and the byte or the
 * tensor where it is damaged. Files without checksums, as PyTorch writes them, are taken too. On
 * success *image is the caller's, for image_free; else it holds nothing.
 */
int image_read(const char *path, struct image *image);

#endif
