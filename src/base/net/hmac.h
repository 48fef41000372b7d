/* SPDX-License-Identifier: BSD-3-Clause */
/* HMAC-SHA-256 (FIPS 180-4, RFC 2104): the proof that a peer has the job's secret. */
#ifndef DISTI_BASE_NET_HMAC_H
#define DISTI_BASE_NET_HMAC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DISTI_HMAC_BYTES 32

struct disti_sha256 {
    uint32_t state[8];
    uint64_t bytes;
    unsigned char block[64]; /* what does not fill a block yet */
};

void disti_sha256_begin(struct disti_sha256 *hash);
void disti_sha256_add(struct disti_sha256 *hash, const void *data, size_t bytes);
void disti_sha256_end(struct disti_sha256 *hash, unsigned char digest[DISTI_HMAC_BYTES]);

/* The pieces are added one after the other, without a border between them. */
struct disti_hmac {
    struct disti_sha256 inner;
    unsigned char outer_key[64];
};

void disti_hmac_begin(struct disti_hmac *hmac, const void *key, size_t key_bytes);
void disti_hmac_add(struct disti_hmac *hmac, const void *data, size_t bytes);
void disti_hmac_end(struct disti_hmac *hmac, unsigned char mac[DISTI_HMAC_BYTES]);

/* In a time that does not depend on where they differ. */
bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES]);

#endif
