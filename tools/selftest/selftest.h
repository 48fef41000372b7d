/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance battery, from outside: what is to be run, and what came of it. */
#ifndef TOOLS_SELFTEST_SELFTEST_H
#define TOOLS_SELFTEST_SELFTEST_H

#include <stdbool.h>

struct selftest {
    const char *backend;
    const char *table; /* a file of `dist_info backends --format csv` that must be true; or NULL */
    const char *only;  /* the cases of one collective; NULL: all */
    int mode;          /* of selftest_mode */
    int memory;        /* of selftest_memory */
    int mixed;         /* the rank that has transport tcp only, counted from 1; 0: none */
    bool brief;        /* fewer counts */
    bool native;       /* numbers that are none are MPI's business */
    bool complete;     /* what makes sense must be supported */
    bool reversed;     /* in a group of all ranks, the last of them first */
};

/* What a rank has done. Ranks of one machine may have it in memory that their parent sees. */
struct selftest_count {
    int rank, ranks; /* of the world; ranks 0: it was not joined */
    long cases, refusals, checks, faults;
};

/*
 * Runs the battery as a rank of the job that this process is in. Faults go to stderr. Returns the
 * exit code: 0, or 1 if there was a fault or nothing was checked.
 */
int selftest_rank(const struct selftest *selftest, int rank, struct selftest_count *count_p);

/* A word of the command line: a mode, or "all"; a kind of memory. False: it is none. */
bool selftest_mode(const char *word, int *mode_p);
bool selftest_memory(const char *word, int *memory_p);

#endif
