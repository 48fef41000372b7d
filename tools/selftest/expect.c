/* SPDX-License-Identifier: BSD-3-Clause */
/* What reductions must give: computed rank by rank, in wider types than the library uses. */
#include "data.h"

#include <math.h>
#include <string.h>

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
