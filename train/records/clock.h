/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The clocks of all ranks, seen from rank 0's.
 *
 * In an all-gather no rank leaves before all have entered. So of two ranks a and b
 *
 *     a entered  <=  b left        and        b entered  <=  a left
 *
 * on any one clock. Each round bounds how far their clocks are apart; of many rounds the narrowest
 * bounds hold.
 */
#ifndef TRAIN_RECORDS_CLOCK_H
#define TRAIN_RECORDS_CLOCK_H

#include <dist/dist.h>

struct clock_offset {
    double at;     /* rank 0's clock, about when they were compared */
    double offset; /* seconds to take from the rank's clock to have rank 0's */
    double error;  /* at most so many seconds off, either way */
};

/* The narrowest bounds of these rounds: when one rank entered and left, and the other. */
struct clock_offset clock_bound(const double *enter0, const double *leave0, const double *enter,
                                const double *leave, int rounds);

/* Collective; blocks. offsets: a rank each, on rank 0; elsewhere it is not touched. */
dist_status clock_compare(dist_group *group, struct clock_offset *offsets);

/* When that was on rank 0's clock; between two comparisons the clocks drift evenly. */
double clock_aligned(const struct clock_offset *first, const struct clock_offset *last,
                     double time);

#endif
