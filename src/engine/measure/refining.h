/* SPDX-License-Identifier: BSD-3-Clause */
/* What choices that were refined in this process came to, for those who ask. */
#ifndef DISTI_ENGINE_MEASURE_REFINING_H
#define DISTI_ENGINE_MEASURE_REFINING_H

#include "tuning/refine.h"

/* A choice that all ranks of a group agreed on. */
struct disti_refined {
    dist_collective collective;
    int size_class, ranks, nodes;
    int count, best;
    struct disti_candidate candidates[DISTI_REFINE_MOST];
    double seconds[DISTI_REFINE_MOST]; /* median of the slowest rank */
};

/*
 * The last one of a group of so many ranks on so many machines; false: there is none, or it is long
 * ago. Any thread.
 */
bool disti_refined_find(dist_collective collective, size_t bytes, int ranks, int nodes,
                        struct disti_refined *refined_p);

#endif
