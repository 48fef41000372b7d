/* SPDX-License-Identifier: BSD-3-Clause */
/* What startup.c does with each library: the same few calls of libdist or of an MPI. */
#ifndef BENCH_STARTUP_H
#define BENCH_STARTUP_H

/* Each call returns 0, or non-zero after it has said why on stderr. */
struct startup {
    /* Runs job() as the ranks, which the launcher has started, or which argv asks to start. */
    int (*start)(int argc, char **argv, int (*job)(void));
    int (*join)(int *rank_p, int *ranks_p);
    int (*all_reduce)(void);      /* 8 bytes */
    int (*all_to_all)(int ranks); /* 8 bytes for each pair */
    int (*barrier)(void);
    int (*leave)(void);
};

extern const struct startup startup;

#endif
