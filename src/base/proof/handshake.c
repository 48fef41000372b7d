/* SPDX-License-Identifier: BSD-3-Clause */
/* Nonces and proofs. */
#include "base/proof/handshake.h"

#include <string.h>
#include <sys/random.h>

bool disti_nonce(unsigned char nonce[DISTI_NONCE_BYTES])
{
    return getrandom(nonce, DISTI_NONCE_BYTES, 0) == DISTI_NONCE_BYTES;
}

void disti_prove(const struct disti_secret *secret, const char *role,
                 const struct disti_hmac_piece *pieces, int count,
                 unsigned char proof[DISTI_HMAC_BYTES])
{
    static const char known[] = "libdist: no secret";
    struct disti_hmac_piece all[1 + DISTI_PROOF_PIECES] = {{role, strlen(role) + 1}};
    const bool has = secret->length > 0;

    for (int i = 0; i < count; i++)
        all[1 + i] = pieces[i];
    disti_hmac(has ? secret->bytes : (const unsigned char *)known,
               has ? secret->length : sizeof(known), all, 1 + count, proof);
}

bool disti_proves(const struct disti_secret *secret, const char *role,
                  const struct disti_hmac_piece *pieces, int count, const unsigned char *proof)
{
    unsigned char right[DISTI_HMAC_BYTES];

    disti_prove(secret, role, pieces, count, right);
    return disti_hmac_same(right, proof);
}
