/* SPDX-License-Identifier: BSD-3-Clause */
/* Which algorithm, and how many segments, for a call, as rules say that look at no costs. */
#ifndef DISTI_TUNING_SELECT_H
#define DISTI_TUNING_SELECT_H

#include "plan/plan.h"

/* What is forced, DIST_ALGO="all_reduce:ring,broadcast:chain" and DIST_SEGMENTS; 0: nothing. */
struct disti_choice {
    const struct disti_algorithm *forced[DIST_COLL_COUNT];
    uint32_t forced_segments; /* 0: not forced */
    bool reproducible;        /* of what reduces, only ordered algorithms */
};

/*
 * text: DIST_ALGO's, NULL or empty: no algorithm is forced. Reads DIST_SEGMENTS itself.
 * reproducible: what reduces may be forced to ordered algorithms only. ERR_INVALID_ARGUMENT; the
 * error lists the algorithms that may be forced.
 */
dist_status disti_choice_parse(const char *text, bool reproducible, struct disti_choice *choice_p);

/*
 * Chooses for blocks of `bytes` bytes (of a _V form: the mean block, rounded down). Every rank must
 * come to the same answer, so it depends on nothing but what all ranks know: of GATHER_V, SCATTER_V
 * and ALL_TO_ALL_V the bytes are not looked at. Never fails.
 *
 * Where choice->reproducible and disti_algorithm_reduces(collective), the plan must then be written
 * on a flat topology (disti_topology_flat): the order of additions is by rank, wherever ranks are.
 */
void disti_select(const struct disti_choice *choice, dist_collective collective, size_t bytes,
                  const struct disti_topology *topology, const struct disti_algorithm **algorithm_p,
                  uint32_t *segments_p);

/* The segments for that algorithm: what is forced, else enough that none is long. */
uint32_t disti_select_segments(const struct disti_choice *choice,
                               const struct disti_algorithm *algorithm, size_t bytes,
                               const struct disti_topology *topology);

/* Does each rank know its own counts only, so that the bytes must have no say? */
bool disti_select_blind(dist_collective collective);

#endif
