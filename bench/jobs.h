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

/* A library: a job of processes that speak the protocol of protocol.h, as a runner. */

/* Of one process that has come. */
struct job_rank {
    int fd;     /* -1: not there */
    pid_t pid;  /* as the kernel says */
    char *line; /* what has come of a line */
    size_t length, room;
};

struct job {
    struct runner runner; /* first */
    char *name;
    char *release;               /* as it says itself; NULL: not yet */
    char reason[MEASURE_REASON]; /* why it is gone */
    char *path;                  /* of the socket */
    int listener;
    pid_t pid;  /* of what was started, the leader of its process group; 0: it was reaped */
    int output; /* a file with no name: what it has printed */
    struct job_rank *members; /* by rank */
    int joined;
    double timeout; /* ns */
};

/*
 * Starts argv (execvp) with DIST_BENCH_SOCKET set to a socket in folder. Its processes are not
 * waited for: job_wait_for_ranks does. On success *job_p is to be given to job_end. NULL: no
 * memory, or the system refused; it has been said.
 */
struct job *job_start(const char *folder, const char *name, int ranks, char *const argv[],
                      double timeout);

/* Waits until all its processes have come; those that have not in time, or have ended, make it
 * gone. Stopped early if stopped() says so. */
void job_wait_for_ranks(struct job *job, bool (*stopped)(void));

/* Sends its processes home, ends what has not gone within some seconds, and frees. NULL is
 * accepted. Two steps for many jobs: job_quit sends home and does not wait. */
void job_quit(struct job *job);
void job_end(struct job *job);

/*
 * The ranks of this very job as a runner: rank 0 gives the orders and gets the times, over the
 * group that is measured.
 */

/* On rank 0. The group stays the caller's. On success to be given to group_runner_free. */
dist_status group_runner_new(dist_group *group, const char *memory, struct runner **runner_p);

/* Sends the others home. NULL is accepted. */
void group_runner_free(struct runner *runner);

/* On the other ranks: does what rank 0 orders until it sends home. A failure has been reported. */
dist_status group_runner_serve(dist_group *group, const char *memory);

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
