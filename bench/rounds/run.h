/* SPDX-License-Identifier: BSD-3-Clause */
/* A whole run: all measurements, printed, saved and compared. */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

#include "bench/jobs/runner.h"
#include "bench/options.h"
#include "bench/report/result.h"

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
};

/* Measures, prints, saves, compares. The exit code. */
int run_all(struct run *run);

#endif
