/* SPDX-License-Identifier: BSD-3-Clause */
/* Hashes for comparisons, FNV-1a for bytes. Not cryptographic. */
#ifndef DISTI_BASE_HASH_H
#define DISTI_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Initial value of a hash. */
#define DISTI_HASH_START UINT64_C(0xcbf29ce484222325)
#define DISTI_HASH_PRIME UINT64_C(0x100000001b3)

/*
 * Returns `hash` extended by bytes. Numbers in memory give different hashes on CPUs of different
 * byte order.
 */
static inline uint64_t disti_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (const unsigned char *byte = data; bytes > 0; bytes--, byte++)
        hash = (hash ^ *byte) * DISTI_HASH_PRIME;
    return hash;
}

/* Extends the hash by a text, without its terminator. */
static inline uint64_t disti_hash_text(uint64_t hash, const char *text)
{
    return disti_hash_bytes(hash, text, strlen(text));
}

/* Returns the hash of a sequence of calls: `history` extended by one call's fingerprint. */
static inline uint64_t disti_hash_call(uint64_t history, uint64_t fingerprint)
{
    uint64_t hash = (history ^ fingerprint) * UINT64_C(0x9e3779b97f4a7c15);

    return hash ^ hash >> 29;
}

/* Returns the hash of n counts. It does not depend on the byte order. */
static inline uint32_t disti_hash_counts(const size_t *counts, int n)
{
    uint64_t hash = DISTI_HASH_START;

    for (int i = 0; i < n; i++) {
        hash = (hash ^ counts[i]) * DISTI_HASH_PRIME;
        hash ^= hash >> 32; /* otherwise high bits of a count would not affect the low bits */
    }
    return (uint32_t)hash;
}

#endif
