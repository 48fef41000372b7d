/* SPDX-License-Identifier: BSD-3-Clause */
/* Hashes by which ranks compare what they cannot send each other in full. */
#ifndef DISTI_BASE_HASH_H
#define DISTI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Of so many counts, the same on every rank: FNV-1a, a count at a time. */
static inline uint32_t disti_hash_counts(const size_t *counts, int n)
{
    uint64_t hash = 0xcbf29ce484222325;

    for (int i = 0; i < n; i++) {
        hash = (hash ^ counts[i]) * 0x100000001b3;
        hash ^= hash >> 32; /* else the high bits of a count would stay where they are */
    }
    return (uint32_t)hash;
}

#endif
