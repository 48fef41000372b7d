/* SPDX-License-Identifier: BSD-3-Clause */
/* Compares a run with an earlier one that --save wrote. */
#ifndef BENCH_BASELINE_H
#define BENCH_BASELINE_H

#include "result.h"

/*
 * Prints each measurement that both have, to stderr if quiet_stdout. Returns the number of those
 * that are slower by more than tolerance percent; -1: the file cannot be read, or has no
 * measurement in common; it has been said why.
 */
int baseline_compare(const struct result *result, const char *file, double tolerance,
                     bool quiet_stdout);

#endif
