/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of this very job as a runner: rank 0 gives the orders and gets the times, over the
 * group that is measured.
 */
#ifndef BENCH_PLAIN_H
#define BENCH_PLAIN_H

#include "runner.h"

/* On rank 0. The group stays the caller's. On success to be given to plain_free. */
dist_status plain_new(dist_group *group, const char *memory, struct runner **runner_p);

/* Sends the others home. NULL is accepted. */
void plain_free(struct runner *runner);

/* On the other ranks: does what rank 0 orders until it sends home. A failure has been reported. */
dist_status plain_serve(dist_group *group, const char *memory);

#endif
