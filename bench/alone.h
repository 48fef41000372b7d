/* SPDX-License-Identifier: BSD-3-Clause */
/* Measuring libdist alone: the ranks of a launcher, or ranks that are started here. */
#ifndef BENCH_ALONE_H
#define BENCH_ALONE_H

#include "options.h"

/* The exit code. */
int alone_main(const struct options *options, int argc, char **argv);

/* Did a launcher start this process? Its variable, or NULL. */
const char *alone_launcher(void);

#endif
