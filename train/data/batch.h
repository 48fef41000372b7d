/* SPDX-License-Identifier: BSD-3-Clause */
/* The samples of one pass, as the model wants them. */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include <stdint.h>

#include "dataset.h"

struct batch {
    int capacity, count;
    float *images;       /* count, normalised by the mean and deviation of their kind */
    uint8_t *labels;     /* count */
    uint32_t *positions; /* count: where each stands in the global batch */
};

/* -1: out of memory. */
int batch_create(const struct dataset_kind *kind, int capacity, struct batch *batch);
void batch_destroy(struct batch *batch); /* a zeroed one is accepted */

/*
 * Appends sample index of the set (count < capacity). augment_key 0: as it is; else it is
 * augmented with that key.
 */
void batch_add(struct batch *batch, const struct dataset *dataset, size_t index, uint32_t position,
               uint64_t augment_key);

#endif
