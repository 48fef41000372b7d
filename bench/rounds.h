/* SPDX-License-Identifier: BSD-3-Clause */
/* Measurements in rounds: in each round every library runs once. */
#ifndef DISTI_BENCH_ROUNDS_H
#define DISTI_BENCH_ROUNDS_H

#include "bench/jobs.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "bench/report.h"

/* Collects the samples of one library in all rounds of a measurement, and computes its times. */

struct summary {
    int ranks; /* number of ranks that are evaluated; 2 for messages */
    double scale;
    bool mean;                       /* use the mean over the ranks, not the slowest rank */
    double *samples, *rounds, *sums; /* all samples; median of each round; sum of each rank */
    size_t count;
    int round_count;
};

/*
 * Allocates the memory of a summary. Returns 0, or -1 if out of memory. summary_free also accepts a
 * zeroed summary.
 */
int summary_begin(struct summary *summary, const struct order *order, int ranks, int rounds);
void summary_free(struct summary *summary);

/* Adds the times of a run, in the layout of struct runner. -1: out of memory. */
int summary_add(struct summary *summary, const double *times, long samples);

/* Computes *time. -1: out of memory, or no samples. */
int summary_end(struct summary *summary, long batch, struct result_time *time);

/*
 * Calls `each` for every measurement that the options select, by operation, then by size. `first`
 * is true for the first size of an operation. Stops when a call returns a value other than 0, and
 * returns that value.
 */
int measurement_each(const struct options *options, int ranks,
                     int (*each)(void *arg, struct order *order, bool first), void *arg);

/* A whole run: all measurements, printed, saved and compared. */

/* Exit codes. */
enum { RUN_OK = 0, RUN_FAILED = 1, RUN_USAGE = 2, RUN_SLOWER = 3 };

struct run {
    const struct options *options;
    struct result *result;   /* with all libraries; measurements are appended */
    struct runner **runners; /* one per library */
    bool (*stopped)(void);   /* checked before each run of a library; NULL: never */
    void (*measured)(
        void *arg); /* called after each measurement, to report excluded libraries; may be NULL */
    void *arg;
    bool frugal; /* free the buffers after each run; set per measurement */
};

/* Measures, prints, saves, compares. Returns the exit code. */
int run_all(struct run *run);

#endif
