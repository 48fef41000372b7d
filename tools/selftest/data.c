/* SPDX-License-Identifier: BSD-3-Clause */
/* The battery's numbers; written apart from the library's conversions. */
#include "tools/selftest/battery.h"

#include <math.h>
#include <string.h>

/* How many different values a row of floats has. */
#define DATA_FLOATS 2048

static uint64_t data_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

bool data_is_float(dist_dtype dtype)
{
    return dtype <= DIST_BFLOAT16;
}

bool data_fits(dist_dtype dtype, dist_op op)
{
    bool bits = op == DIST_BAND || op == DIST_BOR || op == DIST_BXOR;

    if (dtype == DIST_BOOL && op == DIST_AVG)
        return false;
    if (op == DIST_PREMUL_SUM)
        return data_is_float(dtype);
    return !bits || !data_is_float(dtype);
}

/* ---- halves ---- */

/* The value of a half's bits; a bfloat16 has 8 bits of exponent, a float16 has 5. */
static double data_half(uint64_t bits, int exponent_bits)
{
    int mantissa_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(bits >> mantissa_bits & ((1u << exponent_bits) - 1));
    double mantissa = (double)(bits & ((1u << mantissa_bits) - 1));
    double sign = bits >> 15 & 1 ? -1 : 1;

    if (exponent == (1 << exponent_bits) - 1)
        return mantissa != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

/* The half next to the value, towards zero: by search, not by rounding rules. */
static uint64_t data_to_half(double value, int exponent_bits)
{
    unsigned low = 0, high = ((1u << exponent_bits) - 1) << (15 - exponent_bits);

    while (low + 1 < high) {
        unsigned middle = (low + high) / 2;

        if (data_half(middle, exponent_bits) <= fabs(value))
            low = middle;
        else
            high = middle;
    }
    return low | (value < 0 ? 0x8000u : 0);
}

double data_float(dist_dtype dtype, uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float f;
    double d;

    if (dtype == DIST_FLOAT32) {
        memcpy(&f, &low, sizeof(f));
        return (double)f;
    }
    if (dtype == DIST_FLOAT64) {
        memcpy(&d, &bits, sizeof(d));
        return d;
    }
    return data_half(bits, dtype == DIST_FLOAT16 ? 5 : 8);
}

/* ---- rows ---- */

/* Float number k of DATA_FLOATS; a float16 has it exactly, a bfloat16 may not. */
static double data_value(dist_op op, unsigned k)
{
    if (op == DIST_PROD) /* near 1, so that eight of them neither vanish nor overflow */
        return 0.75 + (double)(k % 8) / 16;
    return ((double)k - DATA_FLOATS / 2.0) / 16;
}

static uint64_t data_float_bits(dist_dtype dtype, dist_op op, unsigned k)
{
    static uint16_t halves[2][2][DATA_FLOATS]; /* the search is slow: its results are kept */
    static bool known[2][2];
    int exponent_bits = dtype == DIST_FLOAT16 ? 5 : 8, prod = op == DIST_PROD ? 1 : 0;
    int format = dtype == DIST_FLOAT16 ? 1 : 0;
    double value = data_value(op, k);
    float f = (float)value;
    uint32_t low;
    uint64_t bits;

    if (dtype == DIST_FLOAT32) {
        memcpy(&low, &f, sizeof(low));
        return low;
    }
    if (dtype == DIST_FLOAT64) {
        memcpy(&bits, &value, sizeof(bits));
        return bits;
    }
    for (unsigned i = 0; !known[format][prod] && i < DATA_FLOATS; i++)
        halves[format][prod][i] = (uint16_t)data_to_half(data_value(op, i), exponent_bits);
    known[format][prod] = true;
    return halves[format][prod][k];
}

uint64_t data_bits(const struct data *d, int rank, size_t i)
{
    uint64_t mixed = data_mix(data_mix(d->seed + (uint64_t)rank * 0x10001) + i);
    size_t size = dist_dtype_size(d->dtype);

    if (data_is_float(d->dtype))
        return data_float_bits(d->dtype, d->op, (unsigned)(mixed % DATA_FLOATS));
    if (d->dtype == DIST_BOOL)
        return mixed % 8 ? 1 + (mixed >> 8) % 255 : 0; /* some AND of eight shall be true */
    return size == 8 ? mixed : mixed & ((UINT64_C(1) << 8 * size) - 1);
}

void data_fill(const struct data *d, int rank, size_t first, size_t count, void *memory)
{
    size_t size = dist_dtype_size(d->dtype);

    for (size_t i = 0; i < count; i++) {
        uint64_t bits = data_bits(d, rank, first + i);

        memcpy((char *)memory + i * size, &bits, size);
    }
}

/* ---- operations of the program's own ---- */

double data_factor(int rank)
{
    return 0.75 - 0.5 * (rank % 3);
}

void data_user(void *arg, void *dst, const void *a, const void *b, size_t count, dist_dtype dtype)
{
    const unsigned char *left = a, *right = b;
    unsigned char *to = dst;

    (void)arg;
    for (size_t i = 0; i < count * dist_dtype_size(dtype); i++)
        to[i] = (unsigned char)(left[i] + right[i]);
}

/* What reductions must give: computed rank by rank, in wider types than the library uses. */

static bool expect_signed(dist_dtype dtype)
{
    return dtype == DIST_INT8 || dtype == DIST_INT32 || dtype == DIST_INT64;
}

/* The low bits of a number, extended to 64 as the type says. */
static uint64_t expect_wrap(dist_dtype dtype, uint64_t value)
{
    unsigned spare = 64 - 8 * (unsigned)dist_dtype_size(dtype);

    if (expect_signed(dtype))
        return (uint64_t)((int64_t)(value << spare) >> spare);
    return value << spare >> spare;
}

static uint64_t expect_integer_step(dist_dtype dtype, dist_op op, uint64_t a, uint64_t b)
{
    bool less = expect_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;

    switch (op) {
    case DIST_PROD:
        return a * b;
    case DIST_MIN:
        return less ? a : b;
    case DIST_MAX:
        return less ? b : a;
    case DIST_BAND:
        return a & b;
    case DIST_BOR:
        return a | b;
    case DIST_BXOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static uint64_t expect_integer(const struct data *d, int ranks, size_t i)
{
    uint64_t result = expect_wrap(d->dtype, data_bits(d, 0, i));

    for (int r = 1; r < ranks; r++)
        result =
            expect_integer_step(d->dtype, d->op, result, expect_wrap(d->dtype, data_bits(d, r, i)));
    result = expect_wrap(d->dtype, result);
    if (d->op != DIST_AVG)
        return result;
    if (expect_signed(d->dtype))
        return (uint64_t)((int64_t)result / ranks);
    return result / (uint64_t)ranks;
}

/* All but 0 is true, and comes out as 1. Sum and greatest are "or", product and least "and". */
static uint64_t expect_bool(const struct data *d, int ranks, size_t i)
{
    uint64_t truths = 0;

    for (int r = 0; r < ranks; r++)
        truths += data_bits(d, r, i) != 0;
    if (d->op == DIST_BXOR)
        return truths % 2;
    if (d->op == DIST_SUM || d->op == DIST_MAX || d->op == DIST_BOR)
        return truths > 0;
    return truths == (uint64_t)ranks;
}

/* Bytes added to bytes. */
static uint64_t expect_user(const struct data *d, int ranks, size_t i)
{
    uint64_t result = 0;

    for (unsigned byte = 0; byte < dist_dtype_size(d->dtype); byte++) {
        uint64_t sum = 0;

        for (int r = 0; r < ranks; r++)
            sum += data_bits(d, r, i) >> 8 * byte & 0xff;
        result |= (sum & 0xff) << 8 * byte;
    }
    return result;
}

/* Half the distance between 1 and the next number. */
static double expect_unit(dist_dtype dtype)
{
    switch (dtype) {
    case DIST_FLOAT32:
        return 0x1p-24;
    case DIST_FLOAT64:
        return 0x1p-53;
    case DIST_FLOAT16:
        return 0x1p-11;
    default:
        return 0x1p-8;
    }
}

static double expect_float_step(dist_op op, double a, double b)
{
    if (op == DIST_PROD)
        return a * b;
    if (op == DIST_MIN)
        return fmin(a, b);
    if (op == DIST_MAX)
        return fmax(a, b);
    return a + b;
}

/* The value, and the room that rounding needs: some roundings of the size of the sum a step. */
static double expect_float(const struct data *d, int ranks, size_t i, double *room_p)
{
    double result = 0, size = 0;

    for (int r = 0; r < ranks; r++) {
        double value = data_float(d->dtype, data_bits(d, r, i));

        if (d->op == DIST_PREMUL_SUM)
            value *= data_factor(r);
        result = r == 0 ? value : expect_float_step(d->op, result, value);
        if (d->op == DIST_PROD)
            size = fmax(size, 1) * fmax(fabs(value), 1);
        else
            size += fabs(value);
    }
    *room_p = size * expect_unit(d->dtype) * (ranks + 1);
    if (d->op == DIST_MIN || d->op == DIST_MAX)
        *room_p = 0;
    if (d->op != DIST_AVG)
        return result;
    *room_p /= ranks;
    return result / ranks;
}

bool data_reduced(const struct data *d, int ranks, size_t i, const void *found, double *expected_p,
                  double *found_p)
{
    uint64_t bits = 0, expected;
    double room;

    memcpy(&bits, found, dist_dtype_size(d->dtype));
    if (data_is_float(d->dtype) && d->op != DIST_USER) {
        *expected_p = expect_float(d, ranks, i, &room);
        *found_p = data_float(d->dtype, bits);
        return fabs(*expected_p - *found_p) <= room; /* false for a NaN */
    }
    if (d->op == DIST_USER)
        expected = expect_user(d, ranks, i);
    else if (d->dtype == DIST_BOOL)
        expected = expect_bool(d, ranks, i);
    else
        expected = expect_integer(d, ranks, i);
    if (d->op != DIST_USER)
        bits = expect_wrap(d->dtype, bits);
    *expected_p = (double)(int64_t)expected;
    *found_p = (double)(int64_t)bits;
    return expected == bits;
}
