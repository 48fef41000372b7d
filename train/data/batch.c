/* SPDX-License-Identifier: BSD-3-Clause */
/* The samples of one pass. */
#include "batch.h"

#include <stdlib.h>

#include "train/failure.h"

int batch_create(const struct dataset_kind *kind, int capacity, struct batch *batch)
{
    const size_t count = (size_t)capacity;

    *batch = (struct batch){.capacity = capacity};
    batch->images = calloc(count, (size_t)shape_size(kind->shape) * sizeof(*batch->images));
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

/* Pixels from 0 to 255 to numbers around 0. */
static void batch_normalise(const struct dataset_kind *kind, const uint8_t *image, float *to)
{
    const int pixels = kind->shape.height * kind->shape.width, channels = kind->shape.channels;

    for (int i = 0; i < pixels; i++) {
        for (int c = 0; c < channels; c++)
            *to++ = ((float)*image++ / 255.0F - kind->mean[c]) / kind->deviation[c];
    }
}

void batch_add(struct batch *batch, const struct dataset *dataset, size_t index, uint32_t position,
               uint64_t augment_key)
{
    const struct dataset_kind *kind = dataset->kind;
    uint8_t image[DATASET_PIXELS_MOST];

    batch->labels[batch->count] = dataset_get(dataset, index, image);
    if (augment_key)
        kind->augment(augment_key, image);
    batch_normalise(kind, image,
                    batch->images + (size_t)batch->count * (size_t)shape_size(kind->shape));
    batch->positions[batch->count++] = position;
}
