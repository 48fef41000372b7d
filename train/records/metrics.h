/* SPDX-License-Identifier: BSD-3-Clause */
/* --metrics: a line of JSON for each step, and for each test. */
#ifndef TRAIN_RECORDS_METRICS_H
#define TRAIN_RECORDS_METRICS_H

#include <stdbool.h>
#include <stdio.h>

#include "records.h"

struct metrics {
    FILE *file; /* NULL: closed */
};

/* resumed: adds to the file, and ends its last line if that was cut. */
int metrics_open(const char *path, const struct records_setup *setup, struct metrics *metrics);

/*
 * Each a line, in the file when they return. -1: it could not be written. The first is of `steps`
 * steps up to *step, which has their times and samples added up, and of their mean loss.
 */
int metrics_step(struct metrics *metrics, const struct record_step *step, double loss, int steps);
int metrics_test(struct metrics *metrics, const struct record_test *test);
int metrics_close(struct metrics *metrics);

#endif
