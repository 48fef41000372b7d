/* SPDX-License-Identifier: BSD-3-Clause */
/* Which samples a rank sees in an epoch. */
#ifndef TRAIN_SAMPLER_H
#define TRAIN_SAMPLER_H

#include <stddef.h>
#include <stdint.h>

/*
 * As torch's DistributedSampler: all samples are permuted (the same on every rank), the
 * row is padded to a multiple of world by starting over, and rank takes every world-th,
 * beginning at its own number. So the ranks' batches of n together are the batch of
 * n * world that one rank alone would see.
 */
struct sampler {
    uint32_t *order; /* a permutation of 0 .. count - 1 */
    size_t count;
    size_t start; /* samples of the epoch that were seen before, by any ranks */
    int rank, world;
};

/* count from 1 to UINT32_MAX. -1: out of memory. */
int sampler_create(size_t count, int rank, int world, struct sampler *sampler);
void sampler_destroy(struct sampler *sampler); /* a zeroed one is accepted */

/* A new order: a pure function of seed and epoch. */
void sampler_shuffle(struct sampler *sampler, uint64_t seed, uint64_t epoch);

/* Samples of this rank in the rest of the epoch: the same on every rank. */
static inline size_t sampler_size(const struct sampler *sampler)
{
    return (sampler->count - sampler->start + sampler->world - 1) / sampler->world;
}

/* The index of this rank's i-th sample, i < sampler_size. */
static inline uint32_t sampler_at(const struct sampler *sampler, size_t i)
{
    return sampler->order[(sampler->start + i * sampler->world + sampler->rank) % sampler->count];
}

#endif
