/* SPDX-License-Identifier: BSD-3-Clause */
/* The worker's side of the protocol of bench/protocol.h, with any driver. */
#ifndef BENCH_SERVE_H
#define BENCH_SERVE_H

#include "driver.h"

/*
 * Connects to dist_bench and runs its orders on the driver until it says quit or goes away; blocks.
 * name: what dist_bench calls the library; release: the library and its version. -1: there is no
 * connection, which has been reported on stderr.
 */
int serve(struct driver *driver, const char *name, const char *release);

#endif
