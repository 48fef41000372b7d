/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets of jobs, and proofs that a peer has the same secret. */
#ifndef DISTI_BASE_AUTH_H
#define DISTI_BASE_AUTH_H

#include <stdbool.h>
#include <stddef.h>

/* ---- a job's secret, and where it comes from ---- */

#define DISTI_SECRET_LEAST 16 /* bytes; a shorter secret can be guessed */
#define DISTI_SECRET_MOST 256
#define DISTI_SECRET_PATH 512
#define DISTI_SECRET_WHY (DISTI_SECRET_PATH + 256)

/* A secret. If there is none, all bytes are zero. */
struct disti_secret {
    size_t length;
    /* room for a newline and one byte to detect longer secrets */
    unsigned char bytes[DISTI_SECRET_MOST + 2];
    char path[DISTI_SECRET_PATH]; /* the file that contains it; "": it is not from a file */
};

/*
 * Sets a secret that the launcher or rank 0 has passed on; NULL: none. Longer secrets are
 * truncated.
 */
void disti_secret_set_bytes(struct disti_secret *secret, const void *bytes, size_t length);
/* Sets the secret from a token; "": none. */
void disti_secret_set_token(struct disti_secret *secret, const char *token);

/*
 * Reads a secret from a file that only its owner can open. Returns false with an empty *secret_p;
 * `why` then has the cause and the fix.
 */
bool disti_secret_read(const char *path, struct disti_secret *secret_p, char why[DISTI_SECRET_WHY]);

/*
 * Reads the user's cookie file, $XDG_CONFIG_HOME/libdist/cookie or $HOME/.config/libdist/cookie,
 * and creates it if it does not exist. Concurrent processes all get the same cookie. Returns false
 * if there is none: secret_p->path is "" if the file cannot be created, else the file exists but
 * cannot be used.
 */
bool disti_secret_cookie(struct disti_secret *secret_p, char why[DISTI_SECRET_WHY]);

/* Overwrites the secret with zeros; compilers do not optimize this away. */
void disti_secret_wipe(struct disti_secret *secret);

/* ---- HMAC-SHA-256 (FIPS 180-4, RFC 2104): proves that a peer has the job's secret ---- */

#define DISTI_HMAC_BYTES 32

/* One of the inputs of an HMAC, which are concatenated. */
struct disti_hmac_piece {
    const void *data;
    size_t bytes;
};

/*
 * True if HMACs are available. A build without OpenSSL uses a weak hash that only distinguishes
 * keys and proves nothing, so such a build accepts no secret from a user.
 */
bool disti_hmac_exists(void);

void disti_hmac(const void *key, size_t key_bytes, const struct disti_hmac_piece *pieces, int count,
                unsigned char mac[DISTI_HMAC_BYTES]);

/* Compares in constant time. */
bool disti_hmac_same(const unsigned char a[DISTI_HMAC_BYTES],
                     const unsigned char b[DISTI_HMAC_BYTES]);

/* ---- the proof that both ends of a connection have one secret ---- */

#define DISTI_NONCE_BYTES 32

/*
 * Every protocol with a proof uses these four messages, each protocol in its own frame format:
 *
 *      caller                                    called
 *        hello: identity, nonce a   -------->
 *                                   <--------    challenge: nonce b
 *        proof for the caller's role -------->   checks the proof before it trusts the caller
 *                                   <--------    answer, proof for the called side's role
 *
 * A proof is an HMAC over the role, both nonces, and everything that its sender has sent. So a
 * replayed proof does not match a new nonce, a reflected one has the wrong role, and one from
 * another connection covers other data. Jobs with the same secret cannot be distinguished. An
 * attacker who can modify packets can still modify the data after the handshake.
 */

/* Fills the nonce with random bytes. Returns false with errno set. */
bool disti_nonce(unsigned char nonce[DISTI_NONCE_BYTES]);

#define DISTI_PROOF_PIECES 6

/*
 * Computes the proof for `role`, a text that is unique for each side of each protocol, over at most
 * DISTI_PROOF_PIECES pieces of fixed sizes. If the secret is empty, a public constant replaces it,
 * and the proof only shows that the sender has read the nonces.
 */
void disti_prove(const struct disti_secret *secret, const char *role,
                 const struct disti_hmac_piece *pieces, int count,
                 unsigned char proof[DISTI_HMAC_BYTES]);

#endif
