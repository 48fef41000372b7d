/* SPDX-License-Identifier: BSD-3-Clause */
/* float16 and bfloat16: conversion of every value, and rounding at every boundary between two
 * values. */
#include "base/dtype.h"
#include "base/kernels/half.h"

#include "reference.h"
#include "unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct half_format {
    float (*widen)(uint16_t half);
    uint16_t (*narrow)(float value);
    dist_dtype dtype;
    int digits, least;
    uint16_t infinity;
};

static struct half_format half_float16 = {disti_float16_to_float, disti_float16_from_float,
                                          DIST_FLOAT16, REFERENCE_FLOAT16, 0x7c00};
static struct half_format half_bfloat16 = {disti_bfloat16_to_float, disti_bfloat16_from_float,
                                           DIST_BFLOAT16, REFERENCE_BFLOAT16, 0x7f80};

static bool half_is_nan(const struct half_format *f, unsigned half)
{
    return (half & 0x7fff) > f->infinity;
}

static void test_every_value_is_converted(void **state)
{
    const struct half_format *f = *state;

    for (unsigned half = 0; half <= 0xffff; half++) {
        float value = f->widen((uint16_t)half);
        double exact = reference_half_decode((uint16_t)half, f->digits, f->least);

        if (half_is_nan(f, half)) {
            assert_true(isnan(value));
            assert_true(half_is_nan(f, f->narrow(value)));
            assert_int_equal(f->narrow(value) & 0x8000, half & 0x8000);
        } else {
            assert_true(value == exact && !signbit(value) == !signbit(exact));
            assert_int_equal(f->narrow(value), half);
        }
    }
}

/* Between two adjacent values: below the middle rounds down, the middle rounds to even, above it
 * rounds up. */
static void test_every_boundary_is_rounded_to_even(void **state)
{
    const struct half_format *f = *state;

    for (unsigned half = 0; half < f->infinity; half++) {
        double low = reference_half_decode((uint16_t)half, f->digits, f->least);
        int exponent = half >> f->digits ? (int)(half >> f->digits) - 1 : 0;
        float middle = (float)(low + ldexp(0.5, exponent + f->least - f->digits));
        unsigned even = half + (half & 1);

        assert_int_equal(f->narrow(nextafterf(middle, 0)), half);
        assert_int_equal(f->narrow(middle), even);
        assert_int_equal(f->narrow(nextafterf(middle, INFINITY)), half + 1);
        assert_int_equal(f->narrow(-nextafterf(middle, 0)), half | 0x8000);
        assert_int_equal(f->narrow(-middle), even | 0x8000);
        assert_int_equal(f->narrow(-nextafterf(middle, INFINITY)), (half + 1) | 0x8000);
    }
}

static void test_random_floats_match_the_reference(void **state)
{
    const struct half_format *f = *state;
    uint64_t random = 5;

    for (int i = 0; i < 2000000; i++) {
        uint32_t bits = (uint32_t)unit_random(&random);
        uint16_t expected;
        float value;

        memcpy(&value, &bits, sizeof(value));
        expected = reference_half_encode(value, f->digits, f->least);
        if (isnan(value))
            assert_true(half_is_nan(f, f->narrow(value)));
        else
            assert_int_equal(f->narrow(value), expected);
    }
}

/* Runs the kernels on all 65536 values, with an operand that does not change them. */
static void test_kernels_keep_every_value(void **state)
{
    const struct half_format *f = *state;
    uint16_t *all = malloc(4 * 65536 * sizeof(*all));
    uint16_t *zero = all + 65536, *one = all + 2 * 65536, *out = all + 3 * 65536;

    assert_non_null(all);
    for (unsigned half = 0; half <= 0xffff; half++) {
        all[half] = (uint16_t)half;
        zero[half] = 0x8000;
        one[half] = f->narrow(1);
    }
    for (int op = 0; op < DIST_OP_COUNT; op++) {
        const uint16_t *other = op == DIST_PROD                    ? one
                                : op == DIST_MIN || op == DIST_MAX ? all
                                                                   : zero;

        if (!disti_reduce_kernel(f->dtype, (dist_op)op))
            continue;
        disti_reduce_kernel(f->dtype, (dist_op)op)(out, all, other, 65536);
        for (unsigned half = 0; half <= 0xffff; half++)
            assert_true(reference_same(f->dtype, &all[half], &out[half]));
    }
    free(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_every_value_is_converted, &half_float16),
        cmocka_unit_test_prestate(test_every_value_is_converted, &half_bfloat16),
        cmocka_unit_test_prestate(test_every_boundary_is_rounded_to_even, &half_float16),
        cmocka_unit_test_prestate(test_every_boundary_is_rounded_to_even, &half_bfloat16),
        cmocka_unit_test_prestate(test_random_floats_match_the_reference, &half_float16),
        cmocka_unit_test_prestate(test_random_floats_match_the_reference, &half_bfloat16),
        cmocka_unit_test_prestate(test_kernels_keep_every_value, &half_float16),
        cmocka_unit_test_prestate(test_kernels_keep_every_value, &half_bfloat16),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
