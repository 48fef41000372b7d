/* SPDX-License-Identifier: BSD-3-Clause */
/* Labelled images: read from IDX files, or drawn when they are asked for. */
#ifndef TRAIN_DATASET_H
#define TRAIN_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "train/model/model.h"

struct dataset {
    size_t count;    /* samples, at least 1 */
    uint8_t *images; /* count x 28 x 28, 0 is paper; NULL: drawn */
    uint8_t *labels; /* count, each 0 to 9; NULL: drawn */
    uint64_t seed;   /* of the drawn */
    bool train;      /* which of the two sets */
};

/*
 * The set's two files in folder: {train,t10k}-{images,labels} + -idx{3,1}-ubyte or
 * .idx{3,1}-ubyte, plain or with .gz. -1: missing, unreadable, truncated, too long, not
 * what the header says, images not 28 x 28, labels over 9, numbers of images and labels
 * that differ; the text names file and byte offset (in the uncompressed bytes) and what
 * was expected.
 */
int dataset_read(const char *folder, bool train, struct dataset *dataset);

/* A set of count drawn digits. Nothing is drawn yet. */
void dataset_draw(size_t count, bool train, uint64_t seed, struct dataset *dataset);

void dataset_destroy(struct dataset *dataset); /* a zeroed one is accepted */

/* Writes the image of sample index < count (28 x 28) and returns its label. */
uint8_t dataset_get(const struct dataset *dataset, size_t index, uint8_t *image);

#endif
