/* SPDX-License-Identifier: BSD-3-Clause */
/* Measures one collective at one size with all libraries, in turns. */
#ifndef BENCH_MEASUREMENT_H
#define BENCH_MEASUREMENT_H

#include "bench/jobs/runner.h"
#include "bench/options.h"
#include "bench/report/result.h"

struct schedule {
    const struct options *options;
    struct runner **runners; /* one a library, in the result's order */
    int count;
    bool frugal; /* give memory back between turns */
    bool (*stopped)(void);
};

/*
 * First each is asked how long a call takes. From that follow the calls in a sample, which are the
 * same for all, and the samples in a turn; then the rounds, each beginning with another library.
 * order: its operation, bytes, dtype, op, root, in_place and window are set. Appends a measurement
 * to the result, whose times say who could not and why. NULL: no memory.
 */
struct result_measurement *measurement_take(const struct schedule *schedule, struct order *order,
                                            struct result *result);

/*
 * Calls each for every measurement of the options, in order: operation by operation, size by size.
 * At each one's first, *first is true. Stops at the first that returns other than 0, and returns
 * that.
 */
int measurement_each(const struct options *options, int ranks,
                     int (*each)(void *arg, struct order *order, bool first), void *arg);

#endif
