/* SPDX-License-Identifier: BSD-3-Clause */
/* The plans of all ranks of an algorithm, in which tests plant faults. */
#ifndef DISTI_TESTS_COLLECTIVES_PLANTED_H
#define DISTI_TESTS_COLLECTIVES_PLANTED_H

#include "verify/verify.h"

#define PLANTED_RANKS_MAX 16

struct planted {
    struct disti_plan *plans[PLANTED_RANKS_MAX];
    int ranks;
};

/* Writes the plans for a flat topology and checks that the verifier accepts them. */
struct planted planted_write(dist_collective collective, const char *name, int ranks, int root,
                             uint32_t segments);

/* Writes the plans of a test's own algorithm, for at least 2 ranks, without a check. */
struct planted planted_own(dist_collective collective, disti_algorithm_fn write, int ranks);

/* Returns a step of a rank's plan, to be changed. */
struct disti_step *planted_step(const struct planted *planted, int rank, uint32_t lane,
                                uint32_t step);

/* Returns the rank's n-th step of that kind, in the order of lanes; fails the test if there is
 * none. */
struct disti_step *planted_find(const struct planted *planted, int rank, enum disti_step_kind kind,
                                int n);

/* Removes a step and renumbers the later steps of its lane. A step that waited for the removed step
 * waits for the previous step of that lane instead. */
void planted_drop(const struct planted *planted, int rank, const struct disti_step *step);

/* Check that the verifier accepts the plans, or rejects them with a message that contains `what`.
 * The plans are not freed. */
void planted_right(const struct planted *planted, bool in_place);
void planted_wrong(const struct planted *planted, bool in_place, const char *what);

void planted_free(struct planted *planted);

#endif
