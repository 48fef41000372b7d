/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring several libraries in one run, in turns. */
#ifndef BENCH_COMPARE_H
#define BENCH_COMPARE_H

#include "options.h"

/* The exit code. */
int compare_main(const struct options *options, int argc, char **argv);

#endif
