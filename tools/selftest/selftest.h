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
    bool apart;        /* nothing in place */
    bool complete;     /* what makes sense must be supported */
    bool reversed;     /* in a group of all ranks, the last of them first */
    int timeout_ms;    /* of a call; 0: DIST_TIMEOUT's, or a minute */
    int stuck_s;       /* a rank that is busy with one case for so long ends; 0: it never does */
};

/* What a rank has done; kept up to date, so that a parent that shares the memory can see it. */
struct selftest_count {
    int rank, ranks; /* of the world; ranks 0: it has not been joined */
    long cases, refusals, checks, faults;
    char now[160];      /* what it is busy with; "": it is done */
    char refused[1536]; /* why there is no group, if there is none */
};

/*
 * Runs the battery as a rank of the job that this process is in; *count_p is zeroed. Faults go to
 * stderr. Returns the exit code: 0, or 1 if there was a fault or nothing was checked.
 */
int selftest_rank(const struct selftest *selftest, int rank, struct selftest_count *count_p);

/* The command of dist_info: argv[0] is "selftest". Returns the exit code. */
int selftest_main(int argc, char **argv);

/* A word of the command line: a mode, or "all"; a operation of memory; a case. False: it is none.
 */
bool selftest_mode(const char *word, int *mode_p);
bool selftest_memory(const char *word, int *memory_p);
bool selftest_case(const char *word);

#endif
