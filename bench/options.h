/* SPDX-License-Identifier: BSD-3-Clause */
/* Command line, runs of one library or several, and the worker processes. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "bench/measure.h"
#include "tools/common/args.h"

#include <stdint.h>
#include <stdio.h>

/* The command line of dist_bench. */

enum options_action { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION };

/* Numbers that were not given are -1 where the comment says so; texts are NULL. */
struct options {
    bool operations[OPERATION_COUNT]; /* what to measure */
    int64_t ranks;                    /* to start; -1: those of the launcher */
    const char *sizes;                /* [MIN:]MAX */
    int64_t least, most;              /* bytes; -1: not given */
    int64_t factor, step;             /* from size to size; step 0: by the factor */
    int64_t iterations, warmup;       /* -1: by time */
    double time;                      /* seconds for a point and library */
    int64_t rounds;
    int64_t window;
    int64_t buffers;    /* sets, each allocated by itself; 0: as many as the default says, in one */
    const char *timing; /* "row" or "osu" */
    bool apart;         /* the latter: each call is timed by itself */
    int64_t memory_limit;
    bool full, check, in_place;
    bool no_check; /* wins over check */
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

/* Texts point into argv. -1: *failure_p says what is wrong (static storage); exit with 2. */
int options_parse(int argc, char **argv, struct options *options_p, const char **failure_p);

/* options.c: the options, and what holds where none is given. */
extern const struct args options_args;
extern const struct options options_defaults;

/* Is this a run of several libraries? */
bool options_compares(const struct options *options);

/* The program. The exit code. */
int bench_main(int argc, char **argv);

#endif
