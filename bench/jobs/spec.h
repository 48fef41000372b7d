/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library of ours, as the command line has it:
 *
 *     limit
 *     BACKEND[/MEMORY][+VARIABLE=VALUE]...       gloo/dist+DIST_TRANSPORT=tcp
 *     mpi-native[...]                            mpi+DIST_MPI_COLL=native
 */
#ifndef BENCH_SPEC_H
#define BENCH_SPEC_H

#include <stdbool.h>

#define SPEC_VARIABLES_MAX 16

struct spec {
    char *text; /* what the others measurement into */
    const char *backend, *memory;
    bool limit;
    bool launched;                             /* an MPI's mpirun starts it */
    const char *variables[SPEC_VARIABLES_MAX]; /* "NAME=VALUE" */
    int variable_count;
};

/* -1: *failure_p, static storage, says what is wrong. To be given to spec_free. */
int spec_read(const char *text, struct spec *spec_p, const char **failure_p);
void spec_free(struct spec *spec); /* a zeroed one is accepted */

/* Sets its variables in this process. -1: no memory. */
int spec_apply(const struct spec *spec);

#endif
