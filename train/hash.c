/* SPDX-License-Identifier: BSD-3-Clause */
/* A 64-bit hash of memory. */
#include "hash.h"

#include <string.h>

#include "rng.h"

/* As FNV-1a, but a float at a time, and with a final mix. */
uint64_t hash_floats(const float *floats, size_t count)
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
