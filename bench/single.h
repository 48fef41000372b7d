/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring libdist by itself: the ranks of a launcher, or ranks that are started here. */
#ifndef BENCH_SINGLE_H
#define BENCH_SINGLE_H

#include "options.h"

/* The exit code. */
int single_main(const struct options *options, int argc, char **argv);

/* Did a launcher start this process? Its variable, or NULL. */
const char *single_launcher(void);

#endif
