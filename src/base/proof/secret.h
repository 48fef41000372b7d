/* SPDX-License-Identifier: BSD-3-Clause */
/* A job's secret, and where it comes from. */
#ifndef DISTI_BASE_PROOF_SECRET_H
#define DISTI_BASE_PROOF_SECRET_H

#include <stdbool.h>
#include <stddef.h>

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

#endif
