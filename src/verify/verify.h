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
 * Runs the plans of all ranks, as many as plans[0] says, symbolically, in place or out of place.
 * Proves: every output chunk holds the right data, and where the collective reduces every rank's
 * contribution exactly once, finished exactly once; no deadlock although a SEND ends only when it
 * is met; no memory read before it was written; messages meet with the same data. BARRIER: every
 * rank's end follows every rank's start. Of up to 64 ranks it also proves that no write races a
 * read or write, although SENDs may end before they are met.
 *
 * Of more ranks it follows as many chunks of the data as fit into some hundred MB, all of them up
 * to about 1000 ranks, and proves the above of these; it trusts 64 bit sums of numbers that stand
 * for contributions. ERR_NO_MEMORY; else DIST_OK and the verdict.
 */
dist_status disti_verify(struct disti_plan *const *plans, bool in_place,
                         struct disti_verdict *verdict_p);

/*
 * Writes the plans of all ranks, one at a time, and verifies them. `shape->rank` is ignored.
 * Besides the above the errors of disti_plan_write.
 */
dist_status disti_verify_algorithm(const struct disti_algorithm *algorithm,
                                   const struct disti_shape *shape, bool in_place,
                                   struct disti_verdict *verdict_p);

#endif
