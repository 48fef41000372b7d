/* SPDX-License-Identifier: BSD-3-Clause */
/* A safetensors file: its header (names, shapes and places of tensors, as JSON) and its data. */
#ifndef TRAIN_SAFETENSORS_H
#define TRAIN_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

/*
 *   byte 0..7   length of the header, 64 bits, little-endian
 *   then        the header, padded with spaces so that the data is aligned to 8
 *   then        the data: float32, little-endian, one tensor after the other
 */
enum {
    TENSORS_MOST = 256,
    TENSORS_NAME = 48,
    TENSORS_DIMENSIONS = 4,
    TENSORS_NOTES = 16,
    TENSORS_HEADER_MOST = 1 << 17, /* bytes of JSON; ours have some thousand */
    TENSORS_PREFIX = 8,
    TENSORS_SUM = 8 /* digits of a checksum */
};

struct tensor {
    char name[TENSORS_NAME];
    int dimensions;
    uint64_t shape[TENSORS_DIMENSIONS];
    uint64_t begin, end; /* bytes in the data */
    int width; /* as read: bytes of an element. 4; 8: a NAME.num_batches_tracked of PyTorch's */
    char sum[TENSORS_SUM + 1]; /* checksum of its data: hexadecimal digits; "": not said */
};

/* A text of the metadata besides the checksums. */
struct tensors_note {
    char key[24], text[48];
};

struct tensors {
    int count;
    struct tensor tensors[TENSORS_MOST];
    int note_count;
    struct tensors_note notes[TENSORS_NOTES];
    char sum[TENSORS_SUM + 1]; /* checksum of the header, "" or as read: see tensors_sum */
};

/* The tensor of that name, or NULL. */
const struct tensor *tensors_find(const struct tensors *tensors, const char *name);

/* The text of that note, or NULL. */
const char *tensors_note(const struct tensors *tensors, const char *key);

/* Adds a note: at most TENSORS_NOTES; longer texts are cut off. */
__attribute__((format(printf, 3, 4))) void
tensors_add_note(struct tensors *tensors, const char *key, const char *format, ...);

/*
 * The checksum of size bytes, as digits: CRC-32 as zlib has it, which notices any burst of up to 32
 * bits. In the metadata "crc32.NAME" is a tensor's, and "crc32" that of the header, with eight
 * zeros in its place.
 */
void tensors_sum(const void *bytes, size_t size, char sum[TENSORS_SUM + 1]);

/* ---- a file in memory: tensors, notes and data ---- */

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
