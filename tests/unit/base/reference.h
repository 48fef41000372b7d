/* SPDX-License-Identifier: BSD-3-Clause */
/* Reference implementation of the reductions: one element at a time, in wider arithmetic. */
#ifndef DISTI_TESTS_UNIT_BASE_REFERENCE_H
#define DISTI_TESTS_UNIT_BASE_REFERENCE_H

#include <dist/dist.h>

/* out[0] = op(a[0], b[0]) */
void reference_reduce(dist_dtype dtype, dist_op op, const void *a, const void *b, void *out);

/* value[0] /= ranks */
void reference_divide(dist_dtype dtype, void *value, int ranks);

/* value[0] *= factor, for the floating types */
void reference_scale(dist_dtype dtype, void *value, double factor);

/* True if the op supports the dtype, as in the table in dist.h. */
bool reference_fits(dist_op op, dist_dtype dtype);

/* True if both have the same bits, or both are NaN. */
bool reference_same(dist_dtype dtype, const void *a, const void *b);

/* Conversions by the definition of the format: `digits` bits of fraction, `least` is the exponent
 * of the least normal number. */
double reference_half_decode(uint16_t half, int digits, int least);
uint16_t reference_half_encode(double value, int digits, int least);

#define REFERENCE_FLOAT16 10, -14
#define REFERENCE_BFLOAT16 7, -126

#endif
