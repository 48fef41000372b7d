/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of vectors that lie side by side in memory. */
#ifndef BENCH_LIMIT_SUM_H
#define BENCH_LIMIT_SUM_H

#include <dist/dist.h>
#include <stdbool.h>

/* Can that dtype be summed here? Types that need conversions cannot. */
bool limit_can_sum(dist_dtype dtype);

/*
 * In one pass: for bytes bytes from offset on, the sum of in[0..ins) into each of out[0..outs). An
 * out may be one of the ins. stream: the outs are long and none of the ins, so that they need not
 * be read into the cache first. bytes is a whole number of elements.
 */
void limit_sum(dist_dtype dtype, const char *const *in, int ins, char *const *out, int outs,
               size_t offset, size_t bytes, bool stream);

/* stream: `to` is long, and need not be read into the cache first. */
void limit_copy(char *to, const char *from, size_t bytes, bool stream);

#endif
