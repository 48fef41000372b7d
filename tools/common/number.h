/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Conversion between the elements of a buffer and numbers. Independent of the library's own
 * conversions, so that tests can compare the two. `bits` are the element's bytes as a little-endian
 * integer.
 */
#ifndef TOOLS_COMMON_NUMBER_H
#define TOOLS_COMMON_NUMBER_H

#include <dist/dist.h>
#include <stdbool.h>
#include <stdint.h>

/* True if the type is a floating-point type. */
bool number_is_float(dist_dtype dtype);

/* Returns the number of explicit mantissa bits of a floating-point type. */
int number_mantissa(dist_dtype dtype);

/* Returns the value of an element. */
double number_of(dist_dtype dtype, uint64_t bits);

/*
 * Returns the element for a value: rounded towards zero for floating-point types, with infinity for
 * values above the largest finite one; the low bits of the whole number for integer types.
 */
uint64_t number_bits(dist_dtype dtype, double value);

#endif
