/* SPDX-License-Identifier: BSD-3-Clause */
/* The proof that a set of plans, one a rank, does what the collective promises. */
#ifndef DISTI_VERIFY_VERIFY_H
#define DISTI_VERIFY_VERIFY_H

#include "plan/plan.h"

/* What is wrong with the plans, for a person. */
struct disti_verdict {
    bool ok;
    bool all;       /* every chunk of the data was looked at */
    bool ordered;   /* every result was added in the order of reproducible results (plan.h) */
    char text[512]; /* the first fault: rank, lane, step, chunk, and what it is */
    uint64_t messages;
    uint64_t chunks_sent; /* over all ranks */
};

/*
 * Runs plans[0 .. ranks) symbolically, in place or out of place. Proves: every output chunk
 * holds the right data, and where the collective reduces every rank's contribution
 * exactly once, finished exactly once; no deadlock although a SEND ends only when it is met; no
 * scratch read before it was written; messages meet with the same data; no write races a read or
 * write, although SENDs may end before they are met. BARRIER: every rank's end follows every rank's
 * start. At most 64 ranks. ERR_NO_MEMORY, ERR_INVALID_ARGUMENT; else DIST_OK and
 * the verdict.
 */
dist_status disti_verify(struct disti_plan *const *plans, int ranks, bool in_place,
                         struct disti_verdict *verdict_p);

/* Writes and verifies all ranks' plans of one algorithm. `shape->rank` is ignored. */
dist_status disti_verify_algorithm(const struct disti_algorithm *algorithm,
                                   const struct disti_shape *shape, bool in_place,
                                   struct disti_verdict *verdict_p);

/*
 * For thousands of ranks, which disti_verify does not take: follows as many chunks of the data as
 * fit into some hundred MB through the plans of all ranks, all of them up to about 1000 ranks. Of
 * these it proves that every output has each rank's contribution exactly once, that messages meet
 * with the same data, and that what handles them does not come to a deadlock. It looks for no
 * races, and trusts 64 bit sums of numbers that stand for contributions. `messages` and the like
 * are not set. ERR_NO_MEMORY, and those of disti_plan_write.
 */
dist_status disti_verify_sample(const struct disti_algorithm *algorithm,
                                const struct disti_shape *shape, struct disti_verdict *verdict_p);

#endif
