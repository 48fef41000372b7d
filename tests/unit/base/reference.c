/* SPDX-License-Identifier: BSD-3-Clause */
/* Reference implementation of the reductions: one element at a time, in wider arithmetic. */
#include "reference.h"

#include <math.h>
#include <string.h>

/* More than twice the digits of a double, so that rounding to this type and then to double is the
 * same as rounding once. */
#if defined(__x86_64__)
typedef __float128 reference_wide;
#else
typedef long double reference_wide;
#endif

double reference_half_decode(uint16_t half, int digits, int least)
{
    int fraction = half & ((1 << digits) - 1);
    int exponent = (half & 0x7fff) >> digits;
    double magnitude;

    if (exponent == (0x7fff >> digits))
        magnitude = fraction ? NAN : INFINITY;
    else if (exponent == 0)
        magnitude = ldexp(fraction, least - digits);
    else
        magnitude = ldexp(fraction + (1 << digits), exponent - 1 + least - digits);
    return half & 0x8000 ? -magnitude : magnitude;
}

uint16_t reference_half_encode(double value, int digits, int least)
{
    int infinity = 0x7fff >> digits << digits;
    int sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    double steps;

    if (isnan(value))
        return (uint16_t)(sign | infinity | 1);
    if (isinf(value))
        return (uint16_t)(sign | infinity);
    exponent = value == 0 ? least : ilogb(value);
    if (exponent < least)
        exponent = least;
    /* A carry out of the fraction increments the exponent, up to infinity. */
    steps = nearbyint(ldexp(fabs(value), digits - exponent));
    if (steps + ldexp(exponent - least, digits) >= infinity)
        return (uint16_t)(sign | infinity);
    return (uint16_t)(sign | ((int)steps + ((exponent - least) << digits)));
}

/* The result of each op on two values a and b, in the type `wide`. */
#define REFERENCE_COMBINE(wide)                                                                    \
    switch (op) {                                                                                  \
    case DIST_PROD:                                                                                \
        result = (wide)a * b;                                                                      \
        break;                                                                                     \
    case DIST_MIN:                                                                                 \
        result = a < b ? a : b;                                                                    \
        break;                                                                                     \
    case DIST_MAX:                                                                                 \
        result = a > b ? a : b;                                                                    \
        break;                                                                                     \
    default:                                                                                       \
        result = (wide)a + b;                                                                      \
    }

static reference_wide reference_floats(dist_op op, double a, double b)
{
    reference_wide result;

    if (isnan(a) || isnan(b))
        return NAN;
    if (a == 0 && b == 0 && op == DIST_MIN)
        return signbit(a) ? a : b;
    if (a == 0 && b == 0 && op == DIST_MAX)
        return signbit(a) ? b : a;
    REFERENCE_COMBINE(reference_wide)
    return result;
}

/* Bit by bit, from the number of set bits of the two. */
static unsigned __int128 reference_bits(dist_op op, unsigned __int128 a, unsigned __int128 b)
{
    unsigned __int128 result = 0;

    for (int i = 127; i >= 0; i--) {
        int set = (int)(a >> i & 1) + (int)(b >> i & 1);
        bool bit = op == DIST_BAND ? set == 2 : op == DIST_BOR ? set > 0 : set == 1;

        result = result * 2 + bit;
    }
    return result;
}

/* The product of two 64-bit values needs 128 bits, as unsigned: modulo 2^128, the sign makes no
 * difference. */
static unsigned __int128 reference_integers(dist_op op, __int128 a, __int128 b)
{
    unsigned __int128 result;

    if (op == DIST_BAND || op == DIST_BOR || op == DIST_BXOR)
        return reference_bits(op, (unsigned __int128)a, (unsigned __int128)b);
    REFERENCE_COMBINE(unsigned __int128)
    return result;
}

/* The truth table of each op: the results of (false, false), (false, true) and (true, true). */
static uint8_t reference_bool(dist_op op, uint8_t a, uint8_t b)
{
    static const char *const tables[DIST_OP_COUNT] = {
        [DIST_SUM] = "011",  [DIST_PROD] = "001", [DIST_MIN] = "001", [DIST_MAX] = "011",
        [DIST_BAND] = "001", [DIST_BOR] = "011",  [DIST_BXOR] = "010"};

    return (uint8_t)(tables[op][(a ? 1 : 0) + (b ? 1 : 0)] - '0');
}

static bool reference_is_float(dist_dtype dtype)
{
    return dtype == DIST_FLOAT32 || dtype == DIST_FLOAT64 || dtype == DIST_FLOAT16 ||
           dtype == DIST_BFLOAT16;
}

static double reference_get_float(dist_dtype dtype, const void *from)
{
    uint16_t half;
    float single;
    double value = 0;

    switch (dtype) {
    case DIST_FLOAT16:
        memcpy(&half, from, 2);
        return reference_half_decode(half, REFERENCE_FLOAT16);
    case DIST_BFLOAT16:
        memcpy(&half, from, 2);
        return reference_half_decode(half, REFERENCE_BFLOAT16);
    case DIST_FLOAT32:
        memcpy(&single, from, 4);
        return single;
    default:
        memcpy(&value, from, 8);
        return value;
    }
}

static void reference_put_float(dist_dtype dtype, void *to, reference_wide wide)
{
    double value = (double)wide;
    float single = (float)value;
    uint16_t half;

    switch (dtype) {
    case DIST_FLOAT16:
        half = reference_half_encode(single, REFERENCE_FLOAT16);
        memcpy(to, &half, 2);
        break;
    case DIST_BFLOAT16:
        half = reference_half_encode(single, REFERENCE_BFLOAT16);
        memcpy(to, &half, 2);
        break;
    case DIST_FLOAT32:
        memcpy(to, &single, 4);
        break;
    default:
        memcpy(to, &value, 8);
    }
}

static __int128 reference_get_integer(dist_dtype dtype, const void *from)
{
    size_t bytes = dist_dtype_size(dtype);
    int shift = 64 - 8 * (int)bytes;
    uint64_t bits = 0;

    for (size_t i = 0; i < bytes; i++)
        bits |= (uint64_t)((const unsigned char *)from)[i] << 8 * i;
    if (dtype == DIST_INT8 || dtype == DIST_INT32 || dtype == DIST_INT64)
        return (int64_t)(bits << shift) >> shift;
    return bits;
}

static void reference_put_integer(dist_dtype dtype, void *to, unsigned __int128 value)
{
    for (size_t i = 0; i < dist_dtype_size(dtype); i++)
        ((unsigned char *)to)[i] = (unsigned char)(value >> 8 * i);
}

void reference_reduce(dist_dtype dtype, dist_op op, const void *a, const void *b, void *out)
{
    if (dtype == DIST_BOOL)
        *(uint8_t *)out = reference_bool(op, *(const uint8_t *)a, *(const uint8_t *)b);
    else if (reference_is_float(dtype))
        reference_put_float(
            dtype, out,
            reference_floats(op, reference_get_float(dtype, a), reference_get_float(dtype, b)));
    else
        reference_put_integer(dtype, out,
                              reference_integers(op, reference_get_integer(dtype, a),
                                                 reference_get_integer(dtype, b)));
}

void reference_divide(dist_dtype dtype, void *value, int ranks)
{
    if (reference_is_float(dtype))
        reference_put_float(dtype, value,
                            (reference_wide)reference_get_float(dtype, value) / ranks);
    else
        reference_put_integer(dtype, value,
                              (unsigned __int128)(reference_get_integer(dtype, value) / ranks));
}

void reference_scale(dist_dtype dtype, void *value, double factor)
{
    double rounded = dtype == DIST_FLOAT64 ? factor : (float)factor;

    reference_put_float(dtype, value, (reference_wide)reference_get_float(dtype, value) * rounded);
}

bool reference_fits(dist_op op, dist_dtype dtype)
{
    switch (op) {
    case DIST_AVG:
        return dtype != DIST_BOOL;
    case DIST_BAND:
    case DIST_BOR:
    case DIST_BXOR:
        return !reference_is_float(dtype);
    case DIST_PREMUL_SUM:
        return reference_is_float(dtype);
    default:
        return true;
    }
}

bool reference_same(dist_dtype dtype, const void *a, const void *b)
{
    if (reference_is_float(dtype) && isnan(reference_get_float(dtype, a)))
        return isnan(reference_get_float(dtype, b));
    return memcmp(a, b, dist_dtype_size(dtype)) == 0;
}
