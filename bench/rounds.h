/* SPDX-License-Identifier: BSD-3-Clause */
/* Rounds of measurements, in turns. */
#ifndef DISTI_BENCH_ROUNDS_H
#define DISTI_BENCH_ROUNDS_H

#include "bench/jobs.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "bench/report.h"

/* Collects the samples of a library's turns at one measurement, and makes its times of them. */

struct summary {
    int ranks; /* that count: of messages two */
    double scale;
    bool mean;                       /* a sample's time is that of all ranks, not of the slowest */
    double *samples, *rounds, *sums; /* of all turns; medians; by rank */
    size_t count;
    int round_count;
};

/* -1: no memory. A zeroed summary may be freed. */
int summary_begin(struct summary *summary, const struct order *order, int ranks, int rounds);
void summary_free(struct summary *summary);

/* Takes a turn's times, as a runner gives them. -1: no memory. */
int summary_add(struct summary *summary, const double *times, long samples);

/* Fills in what was measured. -1: no memory. */
int summary_end(struct summary *summary, long batch, struct result_time *time);

/*
 * Calls each for every measurement of the options, in order: operation by operation, size by size.
 * At each one's first, *first is true. Stops at the first that returns other than 0, and returns
 * that.
 */
int measurement_each(const struct options *options, int ranks,
                     int (*each)(void *arg, struct order *order, bool first), void *arg);

/* A whole run: all measurements, printed, saved and compared. */

/* Exit codes. */
enum { RUN_OK = 0, RUN_FAILED = 1, RUN_USAGE = 2, RUN_SLOWER = 3 };

struct run {
    const struct options *options;
    struct result *result;       /* its libraries are there, its measurements are added */
    struct runner **runners;     /* one a library */
    bool (*stopped)(void);       /* asked between turns; NULL: never */
    void (*measured)(void *arg); /* called after each measurement, so that libraries can say why
                                they went; NULL: nothing */
    void *arg;
    bool frugal; /* give memory back between turns: of the measurement at hand */
};

/* Measures, prints, saves, compares. The exit code. */
int run_all(struct run *run);

#endif
