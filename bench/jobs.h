/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs of ranks that measure: libdist in a group of its own, and peers (drivers of other
 * libraries).
 */
#ifndef DISTI_BENCH_JOBS_H
#define DISTI_BENCH_JOBS_H

#include "bench/measure.h"
#include "bench/options.h"

#include <stdbool.h>
#include <sys/types.h>

/* A runner runs orders on all ranks: on this job itself, or on the processes of a library. */

struct runner {
    int ranks;
    bool has_failed; /* cannot be used any more */
    /*
     * Runs an order. times: sample s of rank r is stored at [r * order->samples + s], in ns. Sets
     * reason (MEASURE_REASON bytes) unless the result is OUTCOME_TOOK; in that case times may be
     * incomplete. Blocks until the timeout at most.
     */
    enum outcome (*run_order)(struct runner *runner, const struct order *order, double *times,
                              char *reason);
};

/*
 * Lets an mpirun that this process starts run more ranks than cores, unless the user has set the
 * variables.
 */
void job_oversubscribe(void);

/*
 * Peers are drivers of other libraries: executable files that implement the protocol of protocol.h.
 * dist_bench searches them in the directory that DIST_BENCH_PEERS names, then in bench/peers of the
 * build tree that contains dist_bench, then in the directory where they are installed.
 */

/* The libraries of a comparison, and the commands that start them. */

#define LIBRARY_WORDS_MAX 64

struct library {
    char *name;
    char *words[LIBRARY_WORDS_MAX +
                1]; /* the command, terminated by NULL; empty: it cannot be started */
    int word_count;
    bool limit;
    bool is_named; /* requested by name */
    char *reason;  /* why it cannot be started, or NULL */
};

struct libraries {
    struct library *entries;
    int count;
};

/*
 * Lists the libraries that the options select, and probes the peers. largest: the largest size of
 * the run. -1: wrong usage; *failure_p is the error message (static storage). Free with
 * libraries_free.
 */
int libraries_make(const struct options *options, size_t largest, struct libraries *libraries_p,
                   const char **failure_p);
void libraries_free(struct libraries *libraries); /* accepts a zeroed struct */

/*
 * A configuration of libdist on the command line:
 *
 *     limit
 *     BACKEND[/MEMORY][+VARIABLE=VALUE]...       gloo/dist+DIST_TRANSPORT=tcp
 *     mpi-native[...]                            mpi+DIST_MPI_COLL=native
 */

#define SPEC_VARIABLES_MAX 16

struct spec {
    char *text; /* the memory that the other fields point into */
    const char *backend, *memory;
    bool limit;
    bool launched;                             /* started by mpirun */
    const char *variables[SPEC_VARIABLES_MAX]; /* "NAME=VALUE" */
    int variable_count;
};

/* Parses text. -1: *failure_p is the error message (static storage). Free with spec_free. */
int spec_read(const char *text, struct spec *spec_p, const char **failure_p);
void spec_free(struct spec *spec); /* accepts a zeroed struct */

/* Sets the variables of the spec in this process's environment. -1: out of memory. */
int spec_apply(const struct spec *spec);

#endif
