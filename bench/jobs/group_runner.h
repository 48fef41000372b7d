/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The ranks of this very job as a runner: rank 0 gives the orders and gets the times, over the
 * group that is measured.
 */
#ifndef BENCH_GROUP_RUNNER_H
#define BENCH_GROUP_RUNNER_H

#include "runner.h"

/* On rank 0. The group stays the caller's. On success to be given to group_runner_free. */
dist_status group_runner_new(dist_group *group, const char *memory, struct runner **runner_p);

/* Sends the others home. NULL is accepted. */
void group_runner_free(struct runner *runner);

/* On the other ranks: does what rank 0 orders until it sends home. A failure has been reported. */
dist_status group_runner_serve(dist_group *group, const char *memory);

#endif
