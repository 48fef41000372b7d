/* SPDX-License-Identifier: BSD-3-Clause */
/* Which samples a rank sees in an epoch. */
#include "sampler.h"

#include <stdlib.h>

#include "train/failure.h"
#include "train/model/rng.h"

int sampler_create(size_t count, int rank, int world, struct sampler *sampler)
{
    uint32_t *order = calloc(count, sizeof(*order));

    if (!order)
        return failure("out of memory for the order of %zu samples", count);
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    *sampler = (struct sampler){order, count, 0, rank, world};
    return 0;
}

void sampler_destroy(struct sampler *sampler)
{
    free(sampler->order);
    sampler->order = NULL;
}

/* Fisher and Yates, from the identity each time, so that no epoch depends on the one before. */
void sampler_shuffle(struct sampler *sampler, uint64_t seed, uint64_t epoch)
{
    struct rng rng = {rng_key(seed, RNG_SHUFFLE, epoch, 0), 0};

    for (size_t i = 0; i < sampler->count; i++)
        sampler->order[i] = (uint32_t)i;
    for (size_t i = sampler->count; i > 1; i--) {
        const size_t j = rng_below(&rng, (uint32_t)i);
        const uint32_t swap = sampler->order[i - 1];

        sampler->order[i - 1] = sampler->order[j];
        sampler->order[j] = swap;
    }
}
