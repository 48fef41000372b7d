/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs an order on one rank, and takes the time. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include "buffers.h"

#define MEASURE_REASON 512

/*
 * All ranks call it with the same order. times: order->samples of them, in ns a call. A result that
 * is wrong does not end the run, so the ranks stay in step. reason, MEASURE_REASON bytes, is set
 * unless it TOOK. After FAILED the driver is of no more use.
 */
enum outcome measure_run(struct driver *driver, struct buffers *buffers, const struct order *order,
                         double *times, char *reason);

/* The clock, in ns. */
double measure_now(void);

#endif
