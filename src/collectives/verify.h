/* SPDX-License-Identifier: BSD-3-Clause */
/* The proof that a set of plans, one a rank, does what the collective promises. */
#ifndef DISTI_COLLECTIVES_VERIFY_H
#define DISTI_COLLECTIVES_VERIFY_H

#include "collectives/plan.h"

/* What is wrong with the plans, for a person. */
struct disti_verdict {
    bool ok;
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

#endif
