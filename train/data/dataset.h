/* SPDX-License-Identifier: BSD-3-Clause */
/* Labelled images: read from files, or drawn when they are asked for. */
#ifndef TRAIN_DATASET_H
#define TRAIN_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/layer.h"

enum {
    DATASET_CLASSES = 10,
    DATASET_PIXELS_MOST = 32 * 32 * 3 /* numbers of one image */
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
void dataset_draw(const struct dataset_kind *kind, size_t count, bool train, uint64_t seed,
                  struct dataset *dataset);

void dataset_destroy(struct dataset *dataset); /* a zeroed one is accepted */

/* Writes the image of sample index < count and returns its label. */
uint8_t dataset_get(const struct dataset *dataset, size_t index, uint8_t *image);

#endif
