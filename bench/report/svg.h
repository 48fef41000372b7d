/* SPDX-License-Identifier: BSD-3-Clause */
/* The results as one picture of curves, which web views of a repository show. */
#ifndef BENCH_SVG_H
#define BENCH_SVG_H

#include "result.h"

#include <stdio.h>

/* For each collective the times, and beside them those relative to the first library's. -1: it
 * could not be written, errno says why. */
int svg_write(const struct result *result, FILE *to);

#endif
