/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_bench as one of the libraries of another dist_bench. */
#ifndef BENCH_WORKER_MAIN_H
#define BENCH_WORKER_MAIN_H

#include "options.h"

/*
 * options->worker says which; with a number of ranks these are started here, without, this process
 * is a rank that a launcher started. options->most: the largest size, for limit. The exit code.
 */
int worker_main(const struct options *options);

#endif
