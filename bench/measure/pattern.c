/* SPDX-License-Identifier: BSD-3-Clause */
/* Data whose result is known. */
#include "pattern.h"

#include "number.h"

#include <math.h>
#include <string.h>

enum { PATTERN_PERIOD = 61, PATTERN_STEP = 17 };

#define PATTERN_ELEMENT_MAX 8

/* Of the 61 values so many count, that about `most` ranks do at one place. */
static int pattern_active(int ranks, int most)
{
    int active = PATTERN_PERIOD * most / ranks;

    return active < 1 ? 1 : active > PATTERN_PERIOD ? PATTERN_PERIOD : active;
}

static bool pattern_is_and(dist_op op)
{
    return op == DIST_PROD || op == DIST_MIN || op == DIST_BAND;
}

/* The t-th of the 61 values. */
static double pattern_value(const struct pattern *pattern, int t)
{
    int ranks = pattern->ranks;

    if (!pattern->reduces)
        return pattern->dtype == DIST_BOOL ? t % 2 : t;
    if (pattern->dtype == DIST_BOOL)
        return (t < pattern_active(ranks, 1)) != pattern_is_and(pattern->op);
    switch (pattern->op) {
    case DIST_PROD:
        return t < pattern_active(ranks, 6) ? 2 : 1;
    case DIST_SUM:
    case DIST_AVG:
    case DIST_PREMUL_SUM: /* at most 3 x 40 x 2: bfloat16 holds whole numbers up to 256 */
        return t < pattern_active(ranks, 40) ? t % 3 + 1 : 0;
    default:
        return t;
    }
}

static int pattern_place(const struct pattern *pattern, int rank, size_t i)
{
    return (int)((i + (size_t)rank * PATTERN_STEP + pattern->seed) % PATTERN_PERIOD);
}

/* a op b as whole numbers; a bool's sum is a logical or, and so on. */
static int64_t pattern_combine(const struct pattern *pattern, int64_t a, int64_t b)
{
    bool logical = pattern->dtype == DIST_BOOL;

    switch (pattern->op) {
    case DIST_PROD:
        return a * b;
    case DIST_MIN:
        return a < b ? a : b;
    case DIST_MAX:
        return a > b ? a : b;
    case DIST_BAND:
        return a & b;
    case DIST_BOR:
        return a | b;
    case DIST_BXOR:
        return a ^ b;
    default:
        return logical ? a | b : a + b;
    }
}

static bool pattern_is_float(dist_dtype dtype)
{
    return dtype <= DIST_BFLOAT16;
}

/* Element i of the result, as a number that the dtype could hold. */
static double pattern_expected(const struct pattern *pattern, size_t i)
{
    unsigned char element[PATTERN_ELEMENT_MAX];
    int64_t total = (int64_t)pattern_value(pattern, pattern_place(pattern, 0, i));
    double expected;

    for (int r = 1; r < pattern->ranks; r++)
        total = pattern_combine(pattern, total,
                                (int64_t)pattern_value(pattern, pattern_place(pattern, r, i)));
    expected = (double)total;
    if (pattern->op == DIST_PREMUL_SUM)
        expected *= PATTERN_FACTOR;
    number_write(pattern->dtype, expected, element);
    expected = number_read(pattern->dtype, element);
    if (pattern->op != DIST_AVG)
        return expected;
    expected /= pattern->ranks;
    return pattern_is_float(pattern->dtype) ? expected : trunc(expected);
}

/* Only averages are rounded: to 1 in 128 at worst, bfloat16's step. */
static bool pattern_agrees(const struct pattern *pattern, double value, double expected)
{
    if (pattern->op == DIST_AVG && pattern_is_float(pattern->dtype))
        return fabs(value - expected) <= fabs(expected) / 128;
    return value == expected;
}

void pattern_fill(const struct pattern *pattern, int rank, size_t first, void *data, size_t count)
{
    size_t size = dist_dtype_size(pattern->dtype), done = 0;
    char *to = data;

    for (; done < count && done < PATTERN_PERIOD; done++)
        number_write(pattern->dtype,
                     pattern_value(pattern, pattern_place(pattern, rank, first + done)),
                     to + done * size);
    while (done < count) {
        size_t more = done < count - done ? done : count - done;

        memcpy(to + done * size, to, more * size);
        done += more;
    }
}

/* The elements behind the first 61 repeat those before. */
static bool pattern_repeats(const char *data, size_t count, size_t size, size_t *bad_p)
{
    size_t i = PATTERN_PERIOD;

    if (count <= i || memcmp(data, data + i * size, (count - i) * size) == 0)
        return true;
    while (memcmp(data + (i - PATTERN_PERIOD) * size, data + i * size, size) == 0)
        i++;
    *bad_p = i;
    return false;
}

bool pattern_is(const struct pattern *pattern, int rank, size_t first, const void *data,
                size_t count, size_t *bad_p)
{
    size_t size = dist_dtype_size(pattern->dtype);
    char expected[PATTERN_PERIOD * PATTERN_ELEMENT_MAX];
    const char *from = data;

    pattern_fill(pattern, rank, first, expected, count < PATTERN_PERIOD ? count : PATTERN_PERIOD);
    for (size_t i = 0; i < count && i < PATTERN_PERIOD; i++) {
        if (memcmp(from + i * size, expected + i * size, size) != 0) {
            *bad_p = i;
            return false;
        }
    }
    return pattern_repeats(from, count, size, bad_p);
}

bool pattern_is_reduced(const struct pattern *pattern, size_t first, const void *data, size_t count,
                        size_t *bad_p)
{
    size_t size = dist_dtype_size(pattern->dtype);
    const char *from = data;

    for (size_t i = 0; i < count && i < PATTERN_PERIOD; i++) {
        double value = number_read(pattern->dtype, from + i * size);

        if (!pattern_agrees(pattern, value, pattern_expected(pattern, first + i))) {
            *bad_p = i;
            return false;
        }
    }
    return pattern_repeats(from, count, size, bad_p);
}
