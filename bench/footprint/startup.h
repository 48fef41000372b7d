/* SPDX-License-Identifier: BSD-3-Clause */
/* What startup.c does with each library: the same few calls of libdist or of an MPI. */
#ifndef BENCH_STARTUP_H
#define BENCH_STARTUP_H

/* Runs job() as the ranks, which the launcher has started, or which argv asks to start. */
int startup_main(int argc, char **argv, int (*job)(void));

/* Each returns 0, or non-zero after it has said why on stderr. */
int startup_join(int *rank_p, int *ranks_p);
int startup_all_reduce(void);      /* 8 bytes */
int startup_all_to_all(int ranks); /* 8 bytes for each pair */
int startup_barrier(void);
int startup_leave(void);

#endif
