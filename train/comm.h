/* SPDX-License-Identifier: BSD-3-Clause */
/* What training asks of the other ranks, and how much time that takes. */
#ifndef TRAIN_COMM_H
#define TRAIN_COMM_H

#include <stddef.h>
#include <stdint.h>

#include <dist/dist.h>

#include "options.h"

struct comm {
    dist_group *group;
    int rank, world, local_rank;
    double seconds; /* spent in the calls below */
};

/* Every function blocks until all ranks have called it, or the group's timeout is over. */

/*
 * Joins the ranks. spawned: this process was started by dist_spawn, which says who it
 * is; rank and world size of the options are not looked at. COMM_SCHEDULER: this process was the
 * job's scheduler, and the job has ended well.
 */
#define COMM_SCHEDULER 1
int comm_open(const struct options *options, bool spawned, struct comm *comm);

/* Leaves. -1: the others did not come here in time. A zeroed comm is accepted. */
int comm_close(struct comm *comm);

/* Over the ranks: DIST_SUM of results, or DIST_AVG of losses. */
int comm_reduce(struct comm *comm, double *values, size_t count, dist_op op);
int comm_broadcast(struct comm *comm, float *values, size_t count); /* from rank 0 */

/*
 * Every rank says how it fared at something that it did alone: result is 0 or -1. Returns
 * 0 if all are well. Otherwise -1 on every rank, so that none waits for one that has
 * given up; the text is the rank's own, or names the ranks that failed to do `what`.
 */
int comm_agree(struct comm *comm, int result, const char *what);

/* -1 if not all ranks give the same value: the text names those that differ from the most. */
int comm_compare(struct comm *comm, uint64_t value, const char *what);

/* Seconds on a clock that only goes forward. */
double comm_now(void);

/* ---- a hash of memory, to see whether the ranks hold the same parameters ---- */

/*
 * Depends on every bit and on the order. For finding accidents, not for keeping out
 * attackers.
 */
uint64_t hash_floats(const float *floats, size_t count);

#endif
