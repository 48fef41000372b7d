/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Data whose result is known: element i of a rank is a function of (i + 17 rank + seed) mod 61. So
 * results repeat every 61 elements: the first 61 are compared with what plain arithmetic in double
 * gives, and the rest with what stands 61 elements before. Values are small whole numbers, chosen
 * so that no type rounds them, and at every place some ranks count and some do not.
 */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include "order.h"

struct pattern {
    dist_dtype dtype;
    dist_op op;
    bool reduces;
    int ranks;
    unsigned seed;
};

/* Writes the elements first, first + 1, ... (count of them) of that rank. */
void pattern_fill(const struct pattern *pattern, int rank, size_t first, void *data, size_t count);

/* Are these the elements first, ... of that rank? Else *bad_p is the first that is not. */
bool pattern_is(const struct pattern *pattern, int rank, size_t first, const void *data,
                size_t count, size_t *bad_p);

/* Are these the elements first, ... of the reduction over all ranks? */
bool pattern_is_reduced(const struct pattern *pattern, size_t first, const void *data, size_t count,
                        size_t *bad_p);

/* The factor of premul_sum that is expected. */
#define PATTERN_FACTOR 2.0

#endif
