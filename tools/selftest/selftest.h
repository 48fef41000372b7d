/* SPDX-License-Identifier: BSD-3-Clause */
/* The conformance battery for backends and transports: its options, its counters and its entry. */
#ifndef TOOLS_SELFTEST_SELFTEST_H
#define TOOLS_SELFTEST_SELFTEST_H

#include <stdbool.h>

struct selftest {
    const char *backend;
    const char *table; /* output of `dist_info backends --format csv` to check, or NULL */
    const char *only;  /* run the cases of this collective only; NULL: all */
    int mode;          /* a value of selftest_mode */
    int memory;        /* a value of selftest_memory */
    int mixed;         /* this rank, counted from 1, uses transport tcp only; 0: none */
    bool brief;        /* fewer counts */
    bool apart;        /* no calls in place */
    bool complete;     /* every sensible combination must be supported */
    bool reversed;     /* run in a subgroup of all ranks in reverse order */
    int timeout_ms;    /* of a call; 0: DIST_TIMEOUT, or 60 s */
    int stuck_s;       /* a rank exits if one case takes longer than this; 0: no limit */
};

/* The progress of a rank. Updated before every case, since a parent may read it in shared memory.
 */
struct selftest_count {
    int rank, ranks; /* in the world; ranks is 0 until the world has been joined */
    long cases, refusals, checks, faults;
    char now[160];      /* name of the running case; "": finished */
    char refused[1536]; /* why the group could not be created; "": it was created */
};

/*
 * Runs the battery as a rank of the job. The caller has zeroed *count_p. Prints faults to stderr.
 * Returns the exit code: 0, or 1 if there was a fault or nothing was checked.
 */
int selftest_rank(const struct selftest *selftest, int rank, struct selftest_count *count_p);

/* Runs the command of dist_info; argv[0] is "selftest". Returns the exit code. */
int selftest_main(int argc, char **argv);

/* Parse a word of the command line: a mode or "all", a kind of memory, the name of a case. Return
 * false if the word is unknown. */
bool selftest_mode(const char *word, int *mode_p);
bool selftest_memory(const char *word, int *memory_p);
bool selftest_case(const char *word);

#endif
