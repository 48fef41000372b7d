/* SPDX-License-Identifier: BSD-3-Clause */
/* Secrets, and the proof of having one. */
#ifndef DISTI_BASE_AUTH_H
#define DISTI_BASE_AUTH_H

#include <stdbool.h>
#include <stddef.h>

/* ---- a job's secret, and where it comes from ---- */

#define DISTI_SECRET_LEAST 16 /* bytes: a shorter one can be guessed */
#define DISTI_SECRET_MOST 256
#define DISTI_SECRET_PATH 512
#define DISTI_SECRET_WHY (DISTI_SECRET_PATH + 256)

/* Zeroed: none. */
struct disti_secret {
    size_t length;
    unsigned char bytes[DISTI_SECRET_MOST + 2]; /* room for the end of a line, and for more */
    char path[DISTI_SECRET_PATH];               /* the file that it stands in; "": it came along */
};

/* One that came another way, from the launcher or from rank 0; NULL: none. What is too long is cut
 * off. */
void disti_secret_set_bytes(struct disti_secret *secret, const void *bytes, size_t length);
/* The same of a word; "": none. */
void disti_secret_set_word(struct disti_secret *secret, const char *word);

/*
 * From a file that its owner alone can open. False: *secret_p is empty, and `why` says what is
 * wrong, and what to do.
 */
bool disti_secret_read(const char *path, struct disti_secret *secret_p, char why[DISTI_SECRET_WHY]);

/*
 * From the user's cookie file, $XDG_CONFIG_HOME/libdist/cookie or $HOME/.config/libdist/cookie,
 * which is created if it is not there. Of processes that do so at once all get the same. False, and
 * secret_p->path is "": there is none, and none can be made; else: a file is there that will not
 * do.
 */
bool disti_secret_cookie(struct disti_secret *secret_p, char why[DISTI_SECRET_WHY]);

/* Forgets it, in a way that no compiler leaves out. */
void disti_secret_wipe(struct disti_secret *secret);

/* ---- HMAC-SHA-256 (FIPS 180-4, RFC 2104): proves that a peer has the job's secret ---- */

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

/* ---- the proof that both ends of a connection have one secret ---- */

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

#endif
