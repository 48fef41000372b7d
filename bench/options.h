/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of dist_bench, and its main function. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "bench/measure.h"
#include "tools/common/args.h"

#include <stdint.h>
#include <stdio.h>

enum options_action { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION };

/* An option that was not given has the value in its comment, or NULL if it is a string. */
struct options {
    bool operations[OPERATION_COUNT]; /* selected operations */
    int64_t ranks;                    /* number of ranks to start; -1: given by the launcher */
    const char *sizes;                /* [MIN:]MAX */
    int64_t least, most;              /* bytes; -1: not given */
    int64_t factor, step;             /* between sizes; step 0: use the factor */
    int64_t iterations, warmup;       /* -1: chosen by time */
    double time;                      /* seconds per measurement and library */
    int64_t rounds;
    int64_t window;
    int64_t buffers;    /* number of sets, each allocated separately; 0: the default number, in one
                           piece */
    const char *timing; /* "row" or "osu" */
    bool apart;         /* timing is "osu": each call is timed separately */
    int64_t memory_limit;
    bool full, check, in_place;
    bool no_check; /* overrides check */
    const char *dtype_name, *op_name;
    dist_dtype dtype;
    dist_op op;
    int64_t root;
    const char *backend, *memory, *device;
    const char *format;
    const char *compare, *peer, *mpirun;
    bool peers, limit;
    const char *save, *baseline, *html;
    double tolerance; /* in percent */
    int64_t timeout;  /* seconds */
    const char *worker;
    int action; /* of enum options_action */
};

/*
 * Parses the command line; strings in *options_p point into argv. -1: *failure_p is the error
 * message (static storage); exit with status 2.
 */
int options_parse(int argc, char **argv, struct options *options_p, const char **failure_p);

/* The table of options, and their defaults. */
extern const struct args options_args;
extern const struct options options_defaults;

/* True if the run compares several libraries. */
bool options_compares(const struct options *options);

/* Runs the program. Returns the exit code. */
int bench_main(int argc, char **argv);

#endif
