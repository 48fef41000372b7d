/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithms of the table, each a function that writes a plan. */
#ifndef DISTI_COLLECTIVES_ALGORITHMS_H
#define DISTI_COLLECTIVES_ALGORITHMS_H

#include "plan/plan.h"

#define ALGORITHM(which, folder, row, ...)                                                         \
    void disti_##folder##_##row(const struct disti_shape *shape, struct disti_builder *b);
#include "collectives/algorithms.def"
#undef ALGORITHM

#endif
