/* SPDX-License-Identifier: BSD-3-Clause */
/* Conversion between the elements of a buffer and numbers. */
#include "tools/common/number.h"

#include <math.h>
#include <string.h>

/*
 * Number of exponent bits of each floating-point type; 0 for integers. The sign has 1 bit, and the
 * mantissa has the remaining bits.
 */
static const uint8_t number_exponents[DIST_DTYPE_COUNT] = {
    [DIST_FLOAT32] = 8, [DIST_FLOAT64] = 11, [DIST_FLOAT16] = 5, [DIST_BFLOAT16] = 8};

bool number_is_float(dist_dtype dtype)
{
    return number_exponents[dtype] > 0;
}

int number_mantissa(dist_dtype dtype)
{
    return 8 * (int)dist_dtype_size(dtype) - 1 - number_exponents[dtype];
}

double number_of(dist_dtype dtype, uint64_t bits)
{
    const unsigned spare = 64 - 8 * (unsigned)dist_dtype_size(dtype);
    const int mantissa = number_mantissa(dtype), greatest = (1 << number_exponents[dtype]) - 1;
    const int exponent = (int)(bits >> mantissa) & greatest;
    const uint64_t unit = UINT64_C(1) << mantissa, fraction = bits & (unit - 1);
    double value;

    if (!number_is_float(dtype)) {
        const bool sign = dtype == DIST_INT8 || dtype == DIST_INT32 || dtype == DIST_INT64;

        return sign ? (double)((int64_t)(bits << spare) >> spare) : (double)bits;
    }
    if (exponent == greatest)
        value = fraction ? (double)NAN : (double)INFINITY;
    else
        value = ldexp((double)(exponent ? fraction | unit : fraction),
                      (exponent ? exponent : 1) - greatest / 2 - mantissa);
    return bits << spare >> 63 ? -value : value;
}

uint64_t number_bits(dist_dtype dtype, double value)
{
    const unsigned bits = 8 * (unsigned)dist_dtype_size(dtype);
    const int mantissa = number_mantissa(dtype), greatest = (1 << number_exponents[dtype]) - 1;
    uint64_t magnitude = 0;
    int exponent;

    if (!number_is_float(dtype))
        return (uint64_t)(int64_t)value & UINT64_MAX >> (64 - bits);
    frexp(value, &exponent); /* the value is in [1/2, 1) * 2^exponent */
    exponent += greatest / 2 - 1;
    if (isinf(value) || exponent >= greatest)
        magnitude = (uint64_t)greatest << mantissa;
    else if (value != 0 &&
             exponent > 0) /* the mantissa's implicit leading 1 adds 1 to the exponent */
        magnitude = ((uint64_t)(exponent - 1) << mantissa) +
                    (uint64_t)ldexp(fabs(value), mantissa + greatest / 2 - exponent);
    else
        magnitude = (uint64_t)ldexp(fabs(value), mantissa + greatest / 2 - 1);
    return magnitude | (uint64_t)(signbit(value) != 0) << (bits - 1);
}
