/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Drivers of other libraries: executable files that speak the protocol of protocol.h.
 * They are looked for in the folder that DIST_BENCH_PEERS names, then in bench/peers of the build
 * tree that dist_bench lies in, then in the folder where they are installed.
 */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stdbool.h>

/* The path of the driver of that name, to be freed; NULL: there is none. */
char *peer_find(const char *name);

/* Calls each(arg, name) for every driver, by name. Stops at the first that returns other than 0. */
int peer_each(int (*each)(void *arg, const char *name), void *arg);

/*
 * Runs PATH --probe. Can it be used here? text, size bytes: library and version, or why not.
 * Blocks for some seconds at most.
 */
bool peer_probe(const char *path, char *text, int size);

#endif
