/* SPDX-License-Identifier: BSD-3-Clause */
/* Who takes part in a comparison, and with which command each is started. */
#ifndef BENCH_LIBRARIES_H
#define BENCH_LIBRARIES_H

#include "bench/options.h"

#define LIBRARY_WORDS_MAX 64

struct library {
    char *name;
    char *words[LIBRARY_WORDS_MAX + 1]; /* the command, ended by NULL; NULL: it cannot be started */
    int word_count;
    bool limit;
    bool asked;   /* by its name */
    char *reason; /* why it cannot be started; else NULL */
};

struct libraries {
    struct library *entries;
    int count;
};

/*
 * Those of the options, the peers probed. largest: the longest size of the run. -1: wrong usage,
 * *failure_p (static storage) says what is wrong. Free with libraries_free.
 */
int libraries_make(const struct options *options, size_t largest, struct libraries *libraries_p,
                   const char **failure_p);
void libraries_free(struct libraries *libraries); /* a zeroed one is accepted */

#endif
