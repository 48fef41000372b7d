/* SPDX-License-Identifier: BSD-3-Clause */
/* Results: as table, JSON, CSV, curves and pages; baselines. */
#ifndef DISTI_BENCH_REPORT_H
#define DISTI_BENCH_REPORT_H

#include "bench/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/*
 * The results of a whole run: libraries x measurements. Everything that prints, saves, draws or
 * compares reads this. Times are in nanoseconds; the time of a sample is its slowest rank's, or
 * where calls are timed apart the mean of the ranks'. Texts and arrays are owned by the result, but
 * those that are marked static.
 */

/* One library at one measurement. */
struct result_time {
    bool measured;
    char *reason;  /* why not, if it was not; else NULL */
    bool wrong;    /* not measured since the result was wrong */
    double median; /* the median over the rounds of each round's median over samples */
    double min, max, p50, p99, mean;     /* of the samples of all rounds together */
    double rank_avg, rank_min, rank_max; /* over the ranks, of each rank's mean (as OSU prints) */
    double *rounds;                      /* each round's median */
    int round_count;
    long samples; /* of all rounds together */
    long batch;   /* calls in a sample */
};

/* One collective at one size. */
struct result_measurement {
    const char *collective; /* static: "all_reduce", ..., "bw", "bibw", "latency" */
    const char *dtype, *op; /* static; op NULL where nothing is reduced */
    int root;               /* -1 where there is none */
    bool in_place;
    size_t bytes;              /* what busbw formulas call the size; 0 for a barrier */
    size_t block;              /* bytes of a block: what OSU calls the size */
    size_t element;            /* bytes of an element of dtype */
    int buffers;               /* sets that are used in turn */
    bool apart;                /* each call timed by itself, behind a barrier */
    int window;                /* messages in a call of bw and bibw, else 1 */
    struct result_time *times; /* one a library */
};

/* What was measured. */
struct result_library {
    char *name;    /* as the command line has it: "gloo/dist", "openmpi", "limit", ... */
    char *release; /* and its version, as it says itself; "" while unknown */
    char *reason;  /* why it was left out from some measurement on; NULL: it was not */
    bool limit;    /* the bound of this machine, no library */
};

struct result {
    int ranks;
    int rounds;
    char *command;             /* the command line */
    char *version;             /* of libdist */
    char *date;                /* ISO 8601 */
    char *host, *system, *cpu; /* name of the machine; kernel; model of its CPUs */
    int cpus;                  /* that this process may use */
    struct result_library *libraries;
    int library_count;
    struct result_measurement *measurements; /* in the order in which they were measured */
    int measurement_count;
};

/* An empty result with what is known of this machine and command line. NULL: no memory. */
struct result *result_new(int ranks, int argc, char *const argv[]);
void result_free(struct result *result); /* NULL is accepted */

/* Appends; the texts are copied. -1: no memory. Libraries come before the first measurement. */
int result_add_library(struct result *result, const char *name, bool limit);
struct result_measurement *result_add_measurement(struct result *result,
                                                  const struct result_measurement *like);

/*
 * Bandwidths in GB/s (1e9 bytes a second) of a time in ns, as nccl-tests define them: the size over
 * the time, and that times what the collective must move at least over each link. 0 where the size
 * is 0. bw and bibw: all bytes that were sent, in both.
 */
double result_algorithm_bandwidth(const struct result_measurement *measurement, double time);
double result_bus_bandwidth(const struct result_measurement *measurement, int ranks, double time);

/* Sorts values and returns the q-th quantile (0 to 1), between neighbours. 0 if count is 0. */
double result_quantile(double *values, size_t count, double q);

/* Compares a run with an earlier one that --save wrote. */

/*
 * Prints each measurement that both have, to stderr if quiet_stdout. Returns the number of those
 * that are slower by more than tolerance percent; -1: the file cannot be read, or has no
 * measurement in common; it has been said why.
 */
int baseline_compare(const struct result *result, const char *file, double tolerance,
                     bool quiet_stdout);

/* Reads what --format csv writes. */

/*
 * The results in a file: its libraries, its measurements, and the medians, which is what curves are
 * made of; the machine is this one. NULL: *failure_p (static storage) names file, line and what is
 * wrong. Free with result_free.
 */
struct result *csv_read(const char *file, const char **failure_p);

/* The results as one picture of curves, which web views of a repository show. */

/* For each collective the times, and beside them those relative to the first library's. -1: it
 * could not be written, errno says why. */
int svg_write(const struct result *result, FILE *to);

/* The results as one page with curves, which needs nothing but a browser. */

/*
 * Writes the page: for each collective the curves of time, bus bandwidth and of the times relative
 * to the first library's, a table, and what was measured where. -1: it could not be written,
 * errno says why.
 */
int html_write(const struct result *result, FILE *to);

/* Prints results, measurement by measurement as they come. */

/* One way of printing. Any function may be NULL. */
struct print_format {
    const char *name;
    bool pairs; /* wants each size out of place and in place */
    void (*begin)(const struct options *options, const struct result *result);
    void (*head)(const struct options *options, const struct result *result,
                 const struct result_measurement
                     *measurement); /* before the first measurement of a collective */
    /* a: out of place, or the only one; b: in place. Either may be NULL. */
    void (*measurement)(const struct options *options, const struct result *result,
                        const struct result_measurement *a, const struct result_measurement *b);
    void (*end)(const struct options *options, const struct result *result);
};

const struct print_format *print_find(const char *name);

/* The results as JSON; returns 0, or -1 if writing failed. */
int print_json_file(const struct result *result, FILE *to);

#endif
