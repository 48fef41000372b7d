/* SPDX-License-Identifier: BSD-3-Clause */
/* The samples of one pass, as the model wants them. */
#ifndef TRAIN_BATCH_H
#define TRAIN_BATCH_H

#include <stdint.h>

#include "dataset.h"

struct batch {
    int capacity, count;
    float *images;       /* count x 28 x 28, normalised: mean 0.1307, deviation 0.3081 */
    uint8_t *labels;     /* count */
    uint32_t *positions; /* count: where each stands in the global batch */
};

int batch_create(int capacity, struct batch *batch); /* -1: out of memory */
void batch_destroy(struct batch *batch);             /* a zeroed one is accepted */

/*
 * Appends sample index of the set (count < capacity). augment_key 0: as it is; else it is
 * augmented with that key.
 */
void batch_add(struct batch *batch, const struct dataset *dataset, size_t index, uint32_t position,
               uint64_t augment_key);

#endif
