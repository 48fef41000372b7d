/* SPDX-License-Identifier: BSD-3-Clause */
/* Labelled images, read from files or drawn; batches of them, loaded ahead by threads. */
#ifndef TRAIN_DATASET_H
#define TRAIN_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "layer.h"

enum {
    DIGITS_SIDE = 28, /* pixels of an image of MNIST, and of CIFAR-10 */
    PICTURES_SIDE = 32,
    DATASET_CLASSES = 10,
    DATASET_PIXELS_MOST = PICTURES_SIDE * PICTURES_SIDE * 3 /* numbers of one image */
};

struct dataset;

/* What images a program trains on. */
struct dataset_kind {
    struct shape shape;          /* of an image; channels next to each other */
    float mean[3], deviation[3]; /* of each channel, pixels being from 0 to 1 */
    /* Fills count, images and labels of a zeroed set. -1: see dataset_read. */
    int (*read)(const char *folder, bool train, struct dataset *dataset);
    /* Writes image `index` of the drawn set and returns its label: a pure function. */
    uint8_t (*draw)(uint64_t seed, bool train, size_t index, uint8_t *image);
    /* Changes an image a little, as drawn from key. */
    void (*augment)(uint64_t key, uint8_t *image);
};

extern const struct dataset_kind dataset_mnist;   /* 28 x 28, one channel: handwritten digits */
extern const struct dataset_kind dataset_cifar10; /* 32 x 32, three channels: coloured pictures */

struct dataset {
    const struct dataset_kind *kind;
    size_t count;    /* samples, at least 1 */
    uint8_t *images; /* count images; NULL: drawn */
    uint8_t *labels; /* count, each below DATASET_CLASSES; NULL: drawn */
    uint64_t seed;   /* of the drawn */
    bool train;      /* which of the two sets */
};

/*
 * The set's files in folder, as the kind's header describes them. -1: missing, unreadable,
 * truncated, too long, not what they should be; the text names file and byte offset (in the
 * uncompressed bytes) and what was expected.
 */
int dataset_read(const struct dataset_kind *kind, const char *folder, bool train,
                 struct dataset *dataset);

/* A set of count drawn images. Nothing is drawn yet. */
static inline void dataset_draw(const struct dataset_kind *kind, size_t count, bool train,
                                uint64_t seed, struct dataset *dataset)
{
    *dataset = (struct dataset){kind, count, NULL, NULL, seed, train};
}

static inline void dataset_destroy(struct dataset *dataset) /* a zeroed one is accepted */
{
    free(dataset->images);
    free(dataset->labels);
    dataset->images = dataset->labels = NULL;
}

/* Writes the image of sample index < count and returns its label. */
uint8_t dataset_get(const struct dataset *dataset, size_t index, uint8_t *image);

/* ---- IDX: big-endian sizes, then unsigned bytes; plain or compressed with gzip ---- */

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
    uint8_t *bytes;                     /* count; the caller frees it */
};

/*
 * Reads the whole file, which must have exactly `dimensions` dimensions and exactly the
 * bytes that they call for. Memory is asked for only once the file is known to be able
 * to hold that many. -1: the text names file, byte offset and what was expected.
 */
int idx_read(const char *path, int dimensions, struct idx *idx);

/* ---- the samples of one pass, as the model wants them ---- */

struct batch {
    int capacity, count;
    float *images;       /* count, normalised by the mean and deviation of their kind */
    uint8_t *labels;     /* count */
    uint32_t *positions; /* count: where each stands in the global batch */
};

/* -1: out of memory. */
int batch_create(const struct dataset_kind *kind, int capacity, struct batch *batch);
static inline void batch_destroy(struct batch *batch) /* a zeroed one is accepted */
{
    free(batch->images);
    free(batch->labels);
    free(batch->positions);
    batch->images = NULL;
    batch->labels = NULL;
    batch->positions = NULL;
}

/*
 * Appends sample index of the set (count < capacity). augment_key 0: as it is; else it is
 * augmented with that key.
 */
void batch_add(struct batch *batch, const struct dataset *dataset, size_t index, uint32_t position,
               uint64_t augment_key);

/* ---- batches one after the other, loaded ahead by threads ---- */

struct loader;

/* A sample of a batch: what batch_add wants to know. */
struct loader_item {
    size_t index;
    uint32_t position;
    uint64_t augment_key;
};

/*
 * Says which samples batch `number` has: writes their items, at most the loader's capacity, and
 * returns how many they are. Called in the order of the numbers, by the thread that calls
 * loader_next, some batches before they are wanted.
 */
typedef int (*loader_plan_fn)(void *arg, int64_t number, struct loader_item *items);

/*
 * workers: threads that load, 0: loader_next loads itself. What is loaded does not depend on
 * their number: batches come in order, and a sample is a function of its item. capacity: samples of
 * a batch at most. The set outlives the loader. On success *loader_p is the caller's, for
 * loader_destroy. -1: out of memory, or of threads. One thread at a time uses a loader.
 */
int loader_create(const struct dataset *dataset, int workers, int capacity,
                  struct loader **loader_p);
void loader_destroy(struct loader *loader); /* waits for its threads; NULL is accepted */

/* Begins anew: `count` batches, numbered from 0. What was loaded before is forgotten. */
void loader_begin(struct loader *loader, int64_t count, loader_plan_fn plan, void *arg);

/* The next batch, for the caller until it calls again; NULL: there are no more. */
const struct batch *loader_next(struct loader *loader);

#endif
