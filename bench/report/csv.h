/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads what --format csv writes. */
#ifndef BENCH_CSV_H
#define BENCH_CSV_H

#include "result.h"

/*
 * The results in a file: its libraries, its measurements, and the medians, which is what curves are
 * made of; the machine is this one. NULL: *failure_p (static storage) names file, line and what is
 * wrong. Free with result_free.
 */
struct result *csv_read(const char *file, const char **failure_p);

#endif
