/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Elements of a buffer as numbers. Written apart from the library's conversions, so that tests can
 * compare the two. Bits are those of the element in a little-endian number.
 */
#ifndef TOOLS_COMMON_NUMBER_H
#define TOOLS_COMMON_NUMBER_H

#include <dist/dist.h>
#include <stdbool.h>
#include <stdint.h>

bool number_is_float(dist_dtype dtype);

/* The explicit bits of the mantissa of a floating-point type. */
int number_mantissa(dist_dtype dtype);

/* The value of an element. */
double number_of(dist_dtype dtype, uint64_t bits);

/*
 * The element next to a value, towards zero; beyond the largest finite one, infinity or NaN. Of an
 * integer the low bits of the whole number.
 */
uint64_t number_bits(dist_dtype dtype, double value);

#endif
