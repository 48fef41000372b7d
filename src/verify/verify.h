/* SPDX-License-Identifier: BSD-3-Clause */
/* Verifies that the plans of all ranks together do what their collective promises. */
#ifndef DISTI_VERIFY_VERIFY_H
#define DISTI_VERIFY_VERIFY_H

#include "plan/plan.h"

/* The result of a verification; `text` describes what is wrong with the plans. */
struct disti_verdict {
    bool ok;
    bool all;       /* every chunk of the data was checked */
    bool ordered;   /* every result was added in the order of reproducible results (plan.h) */
    char text[512]; /* the first fault: rank, lane, step, chunk, and description */
    uint64_t messages;
    uint64_t chunks_sent; /* over all ranks */
};

/*
 * Runs the plans of ranks 0 .. plans[0]->ranks - 1 symbolically, in place or out of place, and
 * proves:
 *
 *   - every output chunk has the right data; if the collective reduces, it has every rank's
 *     contribution exactly once and is finished exactly once
 *   - no deadlock, even if a SEND ends only when its receive has been posted
 *   - no chunk is read before it has been written
 *   - the two ends of each message have the same data
 *   - BARRIER: no rank leaves before all ranks have entered
 *   - with up to 64 ranks: no write races with a read or write, even if SENDs end early
 *
 * With more than 64 ranks, it follows as many chunks of the data as fit into a few hundred MB (all
 * of them up to about 1000 ranks). It then represents contributions by 64-bit hashes and compares
 * their sums, so a wrong plan passes with negligible probability.
 *
 * Returns DIST_OK and the verdict, or ERR_NO_MEMORY.
 */
dist_status disti_verify(struct disti_plan *const *plans, bool in_place,
                         struct disti_verdict *verdict_p);

/* Writes the plans of all ranks, one at a time, and verifies them. `shape->rank` is ignored.
 * Returns the errors of disti_verify() and disti_plan_write(). */
dist_status disti_verify_algorithm(const struct disti_algorithm *algorithm,
                                   const struct disti_shape *shape, bool in_place,
                                   struct disti_verdict *verdict_p);

#endif
