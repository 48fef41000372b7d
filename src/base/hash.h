/* SPDX-License-Identifier: BSD-3-Clause */
/* Hashes, of bytes by FNV-1a: they tell apart what is not compared in full, and keep no secret. */
#ifndef DISTI_BASE_HASH_H
#define DISTI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Where a hash begins that goes on from no other. */
#define DISTI_HASH_START UINT64_C(0xcbf29ce484222325)
#define DISTI_HASH_PRIME UINT64_C(0x100000001b3)

/* Of bytes, behind what `hash` is of. Numbers in memory give other hashes on other kinds of CPU. */
static inline uint64_t disti_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (const unsigned char *byte = data; bytes > 0; bytes--, byte++)
        hash = (hash ^ *byte) * DISTI_HASH_PRIME;
    return hash;
}

/* The same of a text, without its end. */
static inline uint64_t disti_hash_text(uint64_t hash, const char *text)
{
    return disti_hash_bytes(hash, text, strlen(text));
}

/* Of calls: of those that `history` is of, and one more. */
static inline uint64_t disti_hash_call(uint64_t history, uint64_t fingerprint)
{
    uint64_t hash = (history ^ fingerprint) * UINT64_C(0x9e3779b97f4a7c15);

    return hash ^ hash >> 29;
}

/* Of so many counts, the same on every rank: a count at a time. */
static inline uint32_t disti_hash_counts(const size_t *counts, int n)
{
    uint64_t hash = DISTI_HASH_START;

    for (int i = 0; i < n; i++) {
        hash = (hash ^ counts[i]) * DISTI_HASH_PRIME;
        hash ^= hash >> 32; /* else the high bits of a count would stay where they are */
    }
    return (uint32_t)hash;
}

#endif
