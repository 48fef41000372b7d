/* SPDX-License-Identifier: BSD-3-Clause */
/* The samples of one pass. */
#include "batch.h"

#include <stdlib.h>

#include "augment.h"
#include "train/failure.h"

static const float batch_mean = 0.1307F, batch_deviation = 0.3081F;

int batch_create(int capacity, struct batch *batch)
{
    const size_t count = (size_t)capacity;

    *batch = (struct batch){.capacity = capacity};
    batch->images = calloc(count, MODEL_PIXELS * sizeof(*batch->images));
    batch->labels = calloc(count, sizeof(*batch->labels));
    batch->positions = calloc(count, sizeof(*batch->positions));
    if (batch->images && batch->labels && batch->positions)
        return 0;
    batch_destroy(batch);
    return failure("out of memory for a batch of %d samples", capacity);
}

void batch_destroy(struct batch *batch)
{
    free(batch->images);
    free(batch->labels);
    free(batch->positions);
    *batch = (struct batch){.capacity = 0};
}

void batch_add(struct batch *batch, const struct dataset *dataset, size_t index, uint32_t position,
               uint64_t augment_key)
{
    float *to = batch->images + (size_t)batch->count * MODEL_PIXELS;
    uint8_t image[MODEL_PIXELS];

    batch->labels[batch->count] = dataset_get(dataset, index, image);
    if (augment_key)
        augment_image(augment_key, image);
    for (int i = 0; i < MODEL_PIXELS; i++)
        to[i] = ((float)image[i] / 255.0F - batch_mean) / batch_deviation;
    batch->positions[batch->count++] = position;
}
