/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of startup.c, implemented with libdist or with an MPI. */
#ifndef BENCH_STARTUP_H
#define BENCH_STARTUP_H

/* Each function returns 0, or another value after printing an error to stderr. */
struct startup {
    /*
     * Calls job() in each rank. The launcher has started the ranks, or argv requests to start them.
     */
    int (*start)(int argc, char **argv, int (*job)(void));
    int (*join)(int *rank_p, int *ranks_p);
    int (*all_reduce)(void);      /* 8 bytes */
    int (*all_to_all)(int ranks); /* 8 bytes per pair */
    int (*barrier)(void);
    int (*leave)(void);
};

extern const struct startup startup;

#endif
