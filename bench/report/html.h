/* SPDX-License-Identifier: BSD-3-Clause */
/* The results as one page with curves, which needs nothing but a browser. */
#ifndef BENCH_HTML_H
#define BENCH_HTML_H

#include "result.h"

#include <stdio.h>

/*
 * Writes the page: for each collective the curves of time, bus bandwidth and of the times relative
 * to the first library's, a table, and what was measured where. -1: it could not be written,
 * errno says why.
 */
int html_write(const struct result *result, FILE *to);

#endif
