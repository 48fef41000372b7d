/* SPDX-License-Identifier: BSD-3-Clause */
/* Counter-based random numbers: a value is a pure function of a key and a counter. */
#ifndef TRAIN_RNG_H
#define TRAIN_RNG_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernel.h"

/*
 * There is no state between draws. The stream depends only on (seed, purpose, step, sample), so the
 * result does not depend on how samples are divided among ranks.
 */

/* The purpose of a stream; keeps streams with equal numbers independent. */
enum rng_purpose { RNG_INIT = 1, RNG_DROPOUT = 3, RNG_AUGMENT, RNG_DRAW_TRAIN, RNG_DRAW_TEST };

/* A 64-bit bijection in which every input bit changes half of the output bits (splitmix64). */
ANYWHERE uint64_t rng_mix(uint64_t x)
{
    x += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Returns the key of a stream. */
ANYWHERE uint64_t rng_key(uint64_t seed, enum rng_purpose purpose, uint64_t a, uint64_t b)
{
    return rng_mix(rng_mix(rng_mix(rng_mix(seed) ^ (uint64_t)purpose) ^ a) ^ b);
}

/*
 * Returns the i-th 32 bits of a stream. Uses only 32-bit arithmetic, so that loops over i
 * vectorise.
 */
ANYWHERE uint32_t rng_u32(uint64_t key, uint32_t i)
{
    uint32_t x = i * UINT32_C(0x9E3779B9) + (uint32_t)key;

    x = (x ^ (x >> 16)) * UINT32_C(0x7FEB352D);
    x ^= (uint32_t)(key >> 32);
    x = (x ^ (x >> 15)) * UINT32_C(0x846CA68B);
    return x ^ (x >> 16);
}

/* Returns the i-th number of a stream, uniform in [0, 1). */
ANYWHERE float rng_uniform(uint64_t key, uint32_t i)
{
    return (float)(rng_u32(key, i) >> 8) * 0x1p-24F;
}

/* A stream that is read in order. */
struct rng {
    uint64_t key;
    uint32_t next;
};

/* Returns the next number, uniform in [low, high). */
ANYWHERE float rng_between(struct rng *rng, float low, float high)
{
    return low + (high - low) * rng_uniform(rng->key, rng->next++);
}

/* Returns the next integer, uniform in [0, bound) up to an error of bound / 2^32. */
ANYWHERE uint32_t rng_below(struct rng *rng, uint32_t bound)
{
    return (uint32_t)(((uint64_t)rng_u32(rng->key, rng->next++) * bound) >> 32);
}

/* ---- a hash of floats, to check that the ranks have equal parameters ---- */

/*
 * FNV-1a on one float at a time, with a final mix. Depends on every bit and on the order. Detects
 * accidental differences; not secure against attackers.
 */
static inline uint64_t hash_floats(const float *floats, size_t count)
{
    uint64_t hash = UINT64_C(0xCBF29CE484222325) ^ count;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &floats[i], sizeof(bits));
        hash = (hash ^ bits) * UINT64_C(0x9E3779B97F4A7C15);
        hash ^= hash >> 32;
    }
    return rng_mix(hash);
}

#endif
