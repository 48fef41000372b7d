/* SPDX-License-Identifier: BSD-3-Clause */
/* Who takes part in a comparison, and with which command each is started. */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

#include "bench/options.h"

#define CONTEST_WORDS_MAX 64

struct contestant {
    char *name;
    char *words[CONTEST_WORDS_MAX + 1]; /* the command, ended by NULL; NULL: it cannot be started */
    int word_count;
    bool limit;
    bool asked;   /* by its name */
    char *reason; /* why it cannot be started; else NULL */
};

struct contest {
    struct contestant *contestants;
    int count;
};

/*
 * Those of the options, the peers probed. largest: the longest size of the run. -1: wrong usage,
 * *failure_p (static storage) says what is wrong. Free with contest_free.
 */
int contest_make(const struct options *options, size_t largest, struct contest *contest_p,
                 const char **failure_p);
void contest_free(struct contest *contest); /* a zeroed one is accepted */

#endif
