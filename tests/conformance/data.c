/* SPDX-License-Identifier: BSD-3-Clause */
/* The battery's numbers, and the results computed another way than the library does. */
#include "battery.h"

#include <math.h>
#include <string.h>

static uint64_t data_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool data_is_float(dist_dtype dtype)
{
    return dtype <= DIST_BFLOAT16;
}

/* ---- one element of any type, as a number; written apart from the library's conversions ---- */

static double data_half(uint16_t bits, int exponent_bits)
{
    int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    double mantissa = bits & ((1 << mantissa_bits) - 1);
    double sign = bits >> 15 ? -1 : 1;

    if (exponent == (1 << exponent_bits) - 1)
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/* The half nearest to a value that is known to be one: by search, not by rounding rules. */
static uint16_t data_to_half(double value, int exponent_bits)
{
    uint16_t low = 0, high = (uint16_t)(((1 << exponent_bits) - 1) << (15 - exponent_bits));
    double size = fabs(value);

    while (low + 1 < high) {
        uint16_t middle = (uint16_t)((low + high) / 2);

        if (data_half(middle, exponent_bits) <= size)
            low = middle;
        else
            high = middle;
    }
    return (uint16_t)(low | (value < 0 ? 0x8000 : 0));
}

#define DATA_INTEGERS(X)                                                                           \
    X(DIST_INT8, int8_t)                                                                           \
    X(DIST_UINT8, uint8_t)                                                                         \
    X(DIST_INT32, int32_t)                                                                         \
    X(DIST_UINT32, uint32_t)                                                                       \
    X(DIST_INT64, int64_t)                                                                         \
    X(DIST_UINT64, uint64_t)                                                                       \
    X(DIST_BOOL, bool)

static double data_get(const void *memory, size_t i, dist_dtype dtype)
{
    const char *at = (const char *)memory + i * dist_dtype_size(dtype);
    uint16_t half;
    float f;
    double d;

    switch (dtype) {
    case DIST_FLOAT32:
        memcpy(&f, at, sizeof(f));
        return (double)f;
    case DIST_FLOAT64:
        memcpy(&d, at, sizeof(d));
        return d;
    default:
        memcpy(&half, at, sizeof(half));
        return data_half(half, dtype == DIST_FLOAT16 ? 5 : 8);
    }
}

/* An integer element, extended to 64 bits as its type says. */
static uint64_t data_get_integer(const void *memory, size_t i, dist_dtype dtype)
{
#define DATA_GET(name, type)                                                                       \
    if (dtype == name) {                                                                           \
        type value;                                                                                \
        memcpy(&value, (const char *)memory + i * sizeof(type), sizeof(value));                    \
        return (uint64_t)value;                                                                    \
    }
    DATA_INTEGERS(DATA_GET)
#undef DATA_GET
    return 0;
}

/* What remains of a 64-bit value in the type: wraps as the type does. */
static uint64_t data_wrap(uint64_t value, dist_dtype dtype)
{
#define DATA_WRAP(name, type)                                                                      \
    if (dtype == name)                                                                             \
        return (uint64_t)(type)value;
    DATA_INTEGERS(DATA_WRAP)
#undef DATA_WRAP
    return value;
}

static bool data_signed(dist_dtype dtype)
{
    return dtype == DIST_INT8 || dtype == DIST_INT32 || dtype == DIST_INT64;
}

double data_value(uint64_t seed, int rank, size_t i, dist_dtype dtype, dist_op op)
{
    uint64_t bits = data_mix(data_mix(seed + (uint64_t)rank * 0x10001) + i);

    if (data_is_float(dtype)) {
        if (op == DIST_PROD) /* near 1, so that eight of them neither vanish nor overflow */
            return 0.75 + (double)(bits % 8) / 16;
        return ((double)(bits % 2048) - 1024) /
               16; /* a float16 has it exactly, a bfloat16 may not */
    }
    if (data_signed(dtype))
        return (double)(int)(bits % 200) - 100;
    return (double)(bits % 200);
}

static double data_rounded(double value, dist_dtype dtype)
{
    if (dtype != DIST_BFLOAT16)
        return value;
    return data_half(data_to_half(value, 8), 8);
}

void data_fill(void *memory, uint64_t seed, int rank, size_t count, dist_dtype dtype, dist_op op)
{
    for (size_t i = 0; i < count; i++) {
        char *at = (char *)memory + i * dist_dtype_size(dtype);
        double value = data_value(seed, rank, i, dtype, op);
        uint64_t integer = (uint64_t)(int64_t)value;
        uint16_t half;
        float f = (float)value;

        if (dtype == DIST_FLOAT32) {
            memcpy(at, &f, sizeof(f));
        } else if (dtype == DIST_FLOAT64) {
            memcpy(at, &value, sizeof(value));
        } else if (dtype == DIST_FLOAT16 || dtype == DIST_BFLOAT16) {
            half = data_to_half(value, dtype == DIST_FLOAT16 ? 5 : 8);
            memcpy(at, &half, sizeof(half));
        } else {
#define DATA_PUT(name, type)                                                                       \
    if (dtype == name) {                                                                           \
        type x = (type)integer;                                                                    \
        memcpy(at, &x, sizeof(x));                                                                 \
    }
            DATA_INTEGERS(DATA_PUT)
#undef DATA_PUT
        }
    }
}

/* ---- expectations ---- */

static uint64_t data_expect_integer(uint64_t seed, int ranks, size_t i, dist_dtype dtype,
                                    dist_op op)
{
    uint64_t result = (uint64_t)(int64_t)data_value(seed, 0, i, dtype, op);

    for (int r = 1; r < ranks; r++) {
        int64_t value = (int64_t)data_value(seed, r, i, dtype, op);

        if (op == DIST_PROD)
            result *= (uint64_t)value;
        else if (op == DIST_MIN)
            result = (int64_t)result < value ? result : (uint64_t)value;
        else if (op == DIST_MAX)
            result = (int64_t)result > value ? result : (uint64_t)value;
        else
            result += (uint64_t)value;
    }
    result = data_wrap(result, dtype);
    if (op != DIST_AVG)
        return result;
    if (data_signed(dtype))
        return (uint64_t)((int64_t)result / ranks);
    return result / (uint64_t)ranks;
}

/* The value, and the room that rounding needs: one rounding of the size of the sum a step. */
static double data_expect_float(uint64_t seed, int ranks, size_t i, dist_dtype dtype, dist_op op,
                                double *room_p)
{
    static const double unit[] = {[DIST_FLOAT32] = 0x1p-24,
                                  [DIST_FLOAT64] = 0x1p-53,
                                  [DIST_FLOAT16] = 0x1p-11,
                                  [DIST_BFLOAT16] = 0x1p-8};
    double result = data_rounded(data_value(seed, 0, i, dtype, op), dtype);
    double size = fabs(result);

    for (int r = 1; r < ranks; r++) {
        double value = data_rounded(data_value(seed, r, i, dtype, op), dtype);

        size = op == DIST_PROD ? fmax(size, 1) * fmax(fabs(value), 1) : size + fabs(value);
        if (op == DIST_PROD)
            result *= value;
        else if (op == DIST_MIN)
            result = fmin(result, value);
        else if (op == DIST_MAX)
            result = fmax(result, value);
        else
            result += value;
    }
    *room_p = op == DIST_MIN || op == DIST_MAX ? 0 : size * unit[dtype] * (ranks + 1);
    return op == DIST_AVG ? result / ranks : result;
}

bool data_reduced(const void *memory, uint64_t seed, int ranks, size_t i, dist_dtype dtype,
                  dist_op op, double *expected_p, double *found_p)
{
    double room;

    if (!data_is_float(dtype)) {
        uint64_t expected = data_expect_integer(seed, ranks, i, dtype, op);
        uint64_t found = data_get_integer(memory, i, dtype);

        *expected_p = (double)(int64_t)expected;
        *found_p = (double)(int64_t)found;
        return expected == found;
    }
    *expected_p = data_expect_float(seed, ranks, i, dtype, op, &room);
    *found_p = data_get(memory, i, dtype);
    return fabs(*expected_p - *found_p) <= room; /* false for a NaN */
}

bool data_same(const void *memory, uint64_t seed, int rank, size_t i, size_t at, dist_dtype dtype,
               dist_op op)
{
    if (data_is_float(dtype))
        return data_get(memory, at, dtype) ==
               data_rounded(data_value(seed, rank, i, dtype, op), dtype);
    return data_get_integer(memory, at, dtype) ==
           data_wrap((uint64_t)(int64_t)data_value(seed, rank, i, dtype, op), dtype);
}
