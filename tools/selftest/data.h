/* SPDX-License-Identifier: BSD-3-Clause */
/* The battery's numbers, and the results computed another way than the library does. */
#ifndef TOOLS_SELFTEST_DATA_H
#define TOOLS_SELFTEST_DATA_H

#include <dist/dist.h>

/*
 * Endless rows of numbers, one a rank, each within what the type can hold and the op can stand. For
 * operations of the program's own, op is DIST_PREMUL_SUM or DIST_USER.
 */
struct data {
    uint64_t seed;
    dist_dtype dtype;
    dist_op op;
};

/* Does the op make sense for the dtype? */
bool data_fits(dist_dtype dtype, dist_op op);

/* The bits of element i of rank's row, as the type's bytes lie in a little-endian number. */
uint64_t data_bits(const struct data *d, int rank, size_t i);

/* Writes count elements of rank's row, from element `first` on. */
void data_fill(const struct data *d, int rank, size_t first, size_t count, void *memory);

/* The value of a float's bits. */
double data_float(dist_dtype dtype, uint64_t bits);
bool data_is_float(dist_dtype dtype);

/*
 * What the battery's premul_sum multiplies rank's row by, and its user operation: bytes added to
 * bytes, which is no other operation, and shows what came twice or not at all.
 */
double data_factor(int rank);
void data_user(void *arg, void *dst, const void *a, const void *b, size_t count, dist_dtype dtype);

/* ---- expect.c ---- */

/*
 * Is the element at `found` the i-th of all ranks' rows, reduced? Computed rank by rank in float64,
 * or in 64-bit integers for integers; floats within the rounding of `ranks` steps. The two numbers
 * are for the message.
 */
bool data_reduced(const struct data *d, int ranks, size_t i, const void *found, double *expected_p,
                  double *found_p);

#endif
