/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs of ranks that measure: libdist in groups of its own, and peers of other libraries. */
#ifndef DISTI_BENCH_JOBS_H
#define DISTI_BENCH_JOBS_H

#include "bench/measure.h"
#include "bench/options.h"

#include <stdbool.h>
#include <sys/types.h>

/* Something that runs orders on all ranks: this job itself, or a library's processes. */

struct runner {
    int ranks;
    bool gone; /* it failed and is of no more use */
    /*
     * times: rank r's sample s at [r * order->samples + s], in ns. reason, MEASURE_REASON bytes, is
     * set unless it TOOK; then times may be half filled. Blocks, but not for ever.
     */
    enum outcome (*turn)(struct runner *runner, const struct order *order, double *times,
                         char *reason);
};

/* Lets an mpirun that this process executes start more ranks than cores, unless the user's settings
 * say otherwise. */
void job_oversubscribe(void);

/*
 * Drivers of other libraries: executable files that speak the protocol of protocol.h.
 * They are looked for in the folder that DIST_BENCH_PEERS names, then in bench/peers of the build
 * tree that dist_bench lies in, then in the folder where they are installed.
 */

/* Who takes part in a comparison, and with which command each is started. */

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

/*
 * A library of ours, as the command line has it:
 *
 *     limit
 *     BACKEND[/MEMORY][+VARIABLE=VALUE]...       gloo/dist+DIST_TRANSPORT=tcp
 *     mpi-native[...]                            mpi+DIST_MPI_COLL=native
 */

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
