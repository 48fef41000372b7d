/* SPDX-License-Identifier: BSD-3-Clause */
/* All ranks' plans of an algorithm, to plant faults into. */
#ifndef DISTI_TESTS_COLLECTIVES_PLANTED_H
#define DISTI_TESTS_COLLECTIVES_PLANTED_H

#include "verify/verify.h"

#define PLANTED_RANKS_MAX 16

struct planted {
    struct disti_plan *plans[PLANTED_RANKS_MAX];
    int ranks;
};

/* On a flat topology. The plans are right, and are proved to be. */
struct planted planted_write(dist_collective collective, const char *name, int ranks, int root,
                             uint32_t segments);

/* A test's own algorithm, for two ranks or more; nothing is proved. */
struct planted planted_own(dist_collective collective, disti_algorithm_fn write, int ranks);

/* A step, to be changed. */
struct disti_step *planted_step(const struct planted *planted, int rank, uint32_t lane,
                                uint32_t step);

/* The rank's n-th step of that kind, in the order of lanes; fails the test if there is none. */
struct disti_step *planted_find(const struct planted *planted, int rank, enum disti_step_kind kind,
                                int n);

/* Takes a step out; who waited for it, or behind it in its lane, waits for the step before. */
void planted_drop(const struct planted *planted, int rank, const struct disti_step *step);

/* The verdict must be: right; or wrong, in words that contain `what`. The plans are kept. */
void planted_right(const struct planted *planted, bool in_place);
void planted_wrong(const struct planted *planted, bool in_place, const char *what);

void planted_free(struct planted *planted);

#endif
