/* SPDX-License-Identifier: BSD-3-Clause */
/* Sets of labelled images, read from files or synthetic; batches that threads load in advance. */
#ifndef TRAIN_DATASET_H
#define TRAIN_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "layer.h"

enum {
    DIGITS_SIDE = 28,   /* height and width of MNIST images */
    PICTURES_SIDE = 32, /* height and width of CIFAR-10 images */
    DATASET_CLASSES = 10,
    DATASET_PIXELS_MOST = PICTURES_SIDE * PICTURES_SIDE * 3 /* values per image */
};

struct dataset;

/* A kind of image: its shape, and functions for its file format, synthesis and augmentation. */
struct dataset_kind {
    struct shape shape;          /* shape of an image; the channels of a pixel are adjacent */
    float mean[3], deviation[3]; /* per channel, for pixels scaled to 0...1 */
    /* Sets count, images and labels of a zeroed set. -1: see dataset_read. */
    int (*read)(const char *folder, bool train, struct dataset *dataset);
    /* Writes image `index` of the synthetic set and returns its label. A pure function. */
    uint8_t (*draw)(uint64_t seed, bool train, size_t index, uint8_t *image);
    /* Distorts an image slightly and randomly; key is the random seed. */
    void (*augment)(uint64_t key, uint8_t *image);
};

extern const struct dataset_kind dataset_mnist;   /* 28 x 28, one channel: handwritten digits */
extern const struct dataset_kind dataset_cifar10; /* 32 x 32, three channels: coloured pictures */

struct dataset {
    const struct dataset_kind *kind;
    size_t count;    /* number of samples, at least 1 */
    uint8_t *images; /* `count` images; NULL: synthetic */
    uint8_t *labels; /* `count` labels, each below DATASET_CLASSES; NULL: synthetic */
    uint64_t seed;   /* seed of a synthetic set */
    bool train;      /* the training set, not the test set */
};

/*
 * Reads the set's files in folder; see the kind's reader for their names and format. -1: a file is
 * missing, unreadable, truncated, too long or invalid; the message names the file, the offset (in
 * uncompressed bytes) and what was expected.
 */
int dataset_read(const struct dataset_kind *kind, const char *folder, bool train,
                 struct dataset *dataset);

/* Initialises a synthetic set of count images. Each image is drawn when it is requested. */
static inline void dataset_draw(const struct dataset_kind *kind, size_t count, bool train,
                                uint64_t seed, struct dataset *dataset)
{
    *dataset = (struct dataset){kind, count, NULL, NULL, seed, train};
}

static inline void dataset_destroy(struct dataset *dataset) /* accepts a zeroed set */
{
    free(dataset->images);
    free(dataset->labels);
    dataset->images = dataset->labels = NULL;
}

/* Writes the image of sample index < count and returns its label. */
uint8_t dataset_get(const struct dataset *dataset, size_t index, uint8_t *image);

/* ---- IDX: big-endian sizes, then unsigned bytes; plain or gzip ---- */

/*
 *   byte 0, 1   0
 *   byte 2      8: the elements are unsigned bytes
 *   byte 3      number of dimensions
 *   byte 4...   each dimension's size, 32 bits, big-endian
 *   then        the elements, last dimension innermost, and nothing after them
 */
enum { IDX_MAX_DIMENSIONS = 3 };

struct idx {
    uint32_t sizes[IDX_MAX_DIMENSIONS]; /* each at least 1 */
    size_t count;                       /* their product */
    uint8_t *bytes;                     /* `count` bytes; the caller frees them */
};

/*
 * Reads the whole file, which must have exactly `dimensions` dimensions and as many bytes as they
 * require. Allocates memory only after checking that the file can contain that many bytes. -1: the
 * message names the file, the byte offset and what was expected.
 */
int idx_read(const char *path, int dimensions, struct idx *idx);

/* ---- the samples of one pass, in the model's format ---- */

struct batch {
    int capacity, count;
    float *images;       /* `count` images, normalised by the mean and deviation of their kind */
    uint8_t *labels;     /* `count` labels */
    uint32_t *positions; /* the position of each sample in the global batch */
};

/* Allocates the arrays of a batch. Returns 0, or -1 if out of memory. */
int batch_create(const struct dataset_kind *kind, int capacity, struct batch *batch);
static inline void batch_destroy(struct batch *batch) /* accepts a zeroed batch */
{
    free(batch->images);
    free(batch->labels);
    free(batch->positions);
    batch->images = NULL;
    batch->labels = NULL;
    batch->positions = NULL;
}

/*
 * Appends sample `index` of the set; requires count < capacity. If augment_key is not 0, the image
 * is augmented with that key.
 */
void batch_add(struct batch *batch, const struct dataset *dataset, size_t index, uint32_t position,
               uint64_t augment_key);

/* ---- consecutive batches, loaded in advance by threads ---- */

struct loader;

/* A sample of a batch: the arguments of batch_add. */
struct loader_item {
    size_t index;
    uint32_t position;
    uint64_t augment_key;
};

/*
 * Chooses the samples of batch `number`: writes their items, at most the loader's capacity, and
 * returns the number of items. Called in ascending order of `number` by the thread that calls
 * loader_next, several batches in advance.
 */
typedef int (*loader_plan_fn)(void *arg, int64_t number, struct loader_item *items);

/*
 * Creates a loader. workers: number of loading threads; 0: loader_next loads in the caller's
 * thread. The result does not depend on `workers`: batches are returned in order, and a sample is a
 * function of its item. capacity: maximum samples per batch. The set must outlive the loader. On
 * success the caller owns *loader_p and releases it with loader_destroy. -1: out of memory, or
 * cannot create a thread. Not thread-safe.
 */
int loader_create(const struct dataset *dataset, int workers, int capacity,
                  struct loader **loader_p);
void loader_destroy(struct loader *loader); /* waits for the threads; NULL is accepted */

/* Restarts the loader for `count` batches, numbered from 0. Discards all batches loaded before. */
void loader_begin(struct loader *loader, int64_t count, loader_plan_fn plan, void *arg);

/* Returns the next batch, valid until the next call; NULL: no more batches. */
const struct batch *loader_next(struct loader *loader);

#endif
