/* SPDX-License-Identifier: BSD-3-Clause */
/* The proof that both ends of a connection have one secret. */
#ifndef DISTI_BASE_PROOF_HANDSHAKE_H
#define DISTI_BASE_PROOF_HANDSHAKE_H

#include "base/proof/hmac.h"
#include "base/proof/secret.h"

#define DISTI_NONCE_BYTES 32

/*
 * The same four messages everywhere, in frames of the protocol's own:
 *
 *      caller                                    called
 *        hello: who, nonce a        -------->
 *                                   <--------    challenge: nonce b
 *        proof by the caller's role -------->    is checked, and only then believed
 *                                   <--------    answer, proof by the called one's role
 *
 * A proof is an HMAC over the role, both nonces, and all that its sender has said. So an old one
 * does not fit a new nonce, one sent back has the wrong role, and one for another rank has said
 * something else. Jobs with one secret are not told apart. Who can change packets on the way can
 * still change what follows.
 */

/* Fresh random bytes; false: errno says why. */
bool disti_nonce(unsigned char nonce[DISTI_NONCE_BYTES]);

#define DISTI_PROOF_PIECES 6

/*
 * The proof by `role` (a text of its own for each side of each protocol) over some pieces, at most
 * DISTI_PROOF_PIECES, each of a fixed size. An empty secret is a secret that everybody knows: such
 * a proof shows only that the sender has read the nonces.
 */
void disti_prove(const struct disti_secret *secret, const char *role,
                 const struct disti_hmac_piece *pieces, int count,
                 unsigned char proof[DISTI_HMAC_BYTES]);

/* Is that the proof? In a time that says nothing of where it differs. */
bool disti_proves(const struct disti_secret *secret, const char *role,
                  const struct disti_hmac_piece *pieces, int count, const unsigned char *proof);

#endif
