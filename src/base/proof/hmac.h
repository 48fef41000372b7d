/* SPDX-License-Identifier: BSD-3-Clause */
/* HMAC-SHA-256 (FIPS 180-4, RFC 2104): the proof that a peer has the job's secret. */
#ifndef DISTI_BASE_PROOF_HMAC_H
#define DISTI_BASE_PROOF_HMAC_H

#include <stdbool.h>
#include <stddef.h>

#define DISTI_HMAC_BYTES 32

/* Some of what it is made over: the pieces follow each other without a border. */
struct disti_hmac_piece {
    const void *data;
    size_t bytes;
};

/* Can it be made? In a build without OpenSSL another hash is, which tells keys apart and proves
 * nothing: so such a build takes no secret from a user. */
bool disti_hmac_exists(void);

void disti_hmac(const void *key, size_t key_bytes, const struct disti_hmac_piece *pieces, int count,
                unsigned char mac[DISTI_HMAC_BYTES]);

/* In a time that does not depend on where they differ. */
bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES]);

#endif
