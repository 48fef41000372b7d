/* SPDX-License-Identifier: BSD-3-Clause */
/* Results: output as table, JSON, CSV, curves and pages; baselines. */
#ifndef DISTI_BENCH_REPORT_H
#define DISTI_BENCH_REPORT_H

#include "bench/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/*
 * The results of a run: libraries x measurements. All code that prints, saves, draws or compares
 * reads this struct. Times are in nanoseconds. The time of a sample is that of the slowest rank, or
 * the mean over the ranks if each call is timed separately. The result owns its strings and arrays,
 * except those marked static.
 */

/* The times of one library at one measurement. */
struct result_time {
    bool measured;
    char *reason;                        /* why it was not measured, or NULL */
    bool wrong;                          /* not measured because the result was wrong */
    double median;                       /* the median over the rounds of each round's median */
    double min, max, p50, p99, mean;     /* statistics of the samples of all rounds */
    double rank_avg, rank_min, rank_max; /* over the ranks' means (as OSU prints) */
    double *rounds;                      /* median of each round */
    int round_count;
    long samples; /* number of samples in all rounds */
    long batch;   /* calls per sample */
};

/* One collective at one size. */
struct result_measurement {
    const char *collective; /* static: "all_reduce", ..., "bw", "bibw", "latency" */
    const char *dtype, *op; /* static; op is NULL if the operation does not reduce */
    int root;               /* -1: the operation has no root */
    bool in_place;
    size_t bytes;              /* size in busbw formulas; 0 for a barrier */
    size_t block;              /* bytes of a block: OSU's size */
    size_t element;            /* bytes of an element of dtype */
    int buffers;               /* number of sets used in rotation */
    bool apart;                /* each call timed separately, after a barrier */
    int window;                /* messages per call of bw and bibw; otherwise 1 */
    struct result_time *times; /* one per library */
};

/* A measured library. */
struct result_library {
    char *name;    /* as on the command line: "gloo/dist", "openmpi", "limit", ... */
    char *release; /* library and version, as it reports them; "" if unknown */
    char *reason;  /* why it was excluded from some measurement on, or NULL */
    bool limit;    /* not a library, but the bound of this machine */
};

struct result {
    int ranks;
    int rounds;
    char *command;             /* the command line */
    char *version;             /* version of libdist */
    char *date;                /* ISO 8601 */
    char *host, *system, *cpu; /* host name; kernel; CPU model */
    int cpus;                  /* number of CPUs that this process may use */
    struct result_library *libraries;
    int library_count;
    struct result_measurement *measurements; /* in the order of measurement */
    int measurement_count;
};

/*
 * Creates an empty result with the facts about this machine and the command line. NULL: out of
 * memory.
 */
struct result *result_new(int ranks, int argc, char *const argv[]);
void result_free(struct result *result); /* NULL is accepted */

/*
 * Append a library or a measurement; strings are copied. -1 or NULL: out of memory. All libraries
 * must be added before the first measurement.
 */
int result_add_library(struct result *result, const char *name, bool limit);
struct result_measurement *result_add_measurement(struct result *result,
                                                  const struct result_measurement *like);

/*
 * Return bandwidths in GB/s (1e9 bytes per second) for a time in ns, as nccl-tests define them:
 * size / time, and that times a factor for the minimum traffic of the collective on each link. 0 if
 * the size is 0. For bw and bibw, both are all sent bytes / time.
 */
double result_algorithm_bandwidth(const struct result_measurement *measurement, double time);
double result_bus_bandwidth(const struct result_measurement *measurement, int ranks, double time);

/*
 * Sorts values and returns the q-th quantile (0 to 1), interpolated between neighbours. 0 if count
 * is 0.
 */
double result_quantile(double *values, size_t count, double q);

/* Comparison of a run with an earlier one that --save wrote. */

/*
 * Prints each measurement that both runs contain, to stderr if quiet_stdout. Returns the number of
 * measurements that are slower by more than tolerance percent. -1: the file cannot be read, or has
 * no measurement in common; the error has been printed.
 */
int baseline_compare(const struct result *result, const char *file, double tolerance,
                     bool quiet_stdout);

/* Reads the output of --format csv. */

/*
 * Returns the libraries, the measurements and their medians, which suffice for curves; the machine
 * is this one. NULL: *failure_p (static storage) names the file, the line and the error. Free with
 * result_free.
 */
struct result *csv_read(const char *file, const char **failure_p);

/* The results as one SVG picture of curves, for web views of a repository. */

/*
 * Draws two plots for each collective: times, and times relative to the first library. -1: writing
 * failed; see errno.
 */
int svg_write(const struct result *result, FILE *to);

/* The results as one self-contained HTML page with curves. */

/*
 * Writes the page. For each collective it contains curves of the time, the bus bandwidth and the
 * time relative to the first library, and a table; the page also describes the run and the machine.
 * -1: writing failed; see errno.
 */
int html_write(const struct result *result, FILE *to);

/* Prints results after each measurement. */

/* An output format. Any function may be NULL. */
struct print_format {
    const char *name;
    bool pairs; /* measures each size both out of place and in place */
    void (*begin)(const struct options *options, const struct result *result);
    void (*head)(const struct options *options, const struct result *result,
                 const struct result_measurement
                     *measurement); /* called before the first measurement of a collective */
    /* a: out of place, or the only one; b: in place. Either may be NULL. */
    void (*measurement)(const struct options *options, const struct result *result,
                        const struct result_measurement *a, const struct result_measurement *b);
    void (*end)(const struct options *options, const struct result *result);
};

const struct print_format *print_find(const char *name);

/* Writes the results as JSON. -1: writing failed. */
int print_json_file(const struct result *result, FILE *to);

#endif
