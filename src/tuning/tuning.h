/* SPDX-License-Identifier: BSD-3-Clause */
/* What a choice of algorithms is made from: costs, and choices that somebody fixed. As text too. */
#ifndef DISTI_TUNING_TUNING_H
#define DISTI_TUNING_TUNING_H

#include "tuning/cost.h"

#define DISTI_FIXED_MAX 32
#define DISTI_TUNING_TEXT                                                                          \
    8192 /* room for any that disti_tuning_print writes without fixed ones                         \
          */

/* A fixed choice, for blocks of at most `bytes` bytes and at most `ranks` ranks. */
struct disti_fixed {
    uint64_t bytes;
    int32_t collective;
    int32_t ranks;
    int32_t algorithm; /* its row in disti_algorithms */
    uint32_t segments; /* 0: as many as the rules say */
};

/*
 * Rank 0's, handed to all ranks as it lies in memory. It has no padding that is not zero if it was
 * made by disti_tuning_usual or disti_tuning_parse.
 */
struct disti_tuning {
    struct disti_cost cost;
    uint32_t predict; /* 0: costs are not looked at, the rules choose */
    uint32_t fixed_count;
    struct disti_fixed fixed[DISTI_FIXED_MAX]; /* the first that fits decides */
    char source[64];                           /* "measured", "the file NAME", ...; for people */
};

/* disti_cost_usual and nothing fixed. */
void disti_tuning_usual(struct disti_tuning *tuning_p);

/* Is every number within what is possible? For what another process sent. */
bool disti_tuning_sane(const struct disti_tuning *tuning);

/*
 * Every cost has the value that comes out when it is written and read again, so that it makes no
 * difference whether a tuning was just measured or found.
 */
void disti_tuning_round(struct disti_tuning *tuning);

/*
 * The text of a tuning file (dist-tuning(7)), with `key`, the line that says where it was measured.
 * Returns its length as snprintf does.
 */
size_t disti_tuning_print(const struct disti_tuning *tuning, const char *key, char *text,
                          size_t size);

/*
 * Reads such a text; costs that it does not give are the usual ones. key NULL: any will do;
 * otherwise it must be the file's. Strict: a word that is not known, or a number out of range, is
 * ERR_INVALID_ARGUMENT. Then why[why_size] says what is wrong, with `name`, the file's, and the
 * line; nothing is reported.
 */
dist_status disti_tuning_parse(const char *text, const char *name, const char *key,
                               struct disti_tuning *tuning_p, char *why, size_t why_size);

/* What is fixed for such a call; NULL: nothing. */
const struct disti_fixed *disti_tuning_fixed(const struct disti_tuning *tuning,
                                             dist_collective collective, size_t bytes, int ranks);

#endif
