/* SPDX-License-Identifier: BSD-3-Clause */
/* Known data: the results of the library's kernels are accepted, and all other results are
 * rejected. */
#include "bench/measure.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 200, RANKS_MAX = 300 };

/* The test computes with the C types; the pattern computes with double and wraps afterwards. */
#define COMBINE(name, type)                                                                        \
    static void combine_##name(dist_op op, void *to, const void *with)                             \
    {                                                                                              \
        type *a = to, b = *(const type *)with;                                                     \
                                                                                                   \
        switch (op) {                                                                              \
        case DIST_PROD:                                                                            \
            *a = (type)(*a * b);                                                                   \
            break;                                                                                 \
        case DIST_MIN:                                                                             \
            *a = *a < b ? *a : b;                                                                  \
            break;                                                                                 \
        case DIST_MAX:                                                                             \
            *a = *a > b ? *a : b;                                                                  \
            break;                                                                                 \
        default:                                                                                   \
            *a = (type)(*a + b);                                                                   \
        }                                                                                          \
    }
COMBINE(f32, float)
COMBINE(f64, double)
COMBINE(i8, int8_t)
COMBINE(u8, uint8_t)
COMBINE(i32, int32_t)
COMBINE(u64, uint64_t)

static const struct {
    dist_dtype dtype;
    void (*combine)(dist_op op, void *to, const void *with);
} types[] = {{DIST_FLOAT32, combine_f32}, {DIST_FLOAT64, combine_f64}, {DIST_INT8, combine_i8},
             {DIST_UINT8, combine_u8},    {DIST_INT32, combine_i32},   {DIST_UINT64, combine_u64}};

static struct pattern make(dist_dtype dtype, dist_op op, int ranks)
{
    return (struct pattern){.dtype = dtype, .op = op, .reduces = true, .ranks = ranks, .seed = 9};
}

static void reduce(size_t type, dist_op op, int ranks, char *total)
{
    struct pattern pattern = make(types[type].dtype, op, ranks);
    size_t size = dist_dtype_size(pattern.dtype);
    char one[COUNT * 8];

    for (int r = 0; r < ranks; r++) {
        pattern_fill(&pattern, r, 5, r ? one : total, COUNT);
        for (size_t i = 0; r && i < COUNT; i++)
            types[type].combine(op, total + i * size, one + i * size);
    }
}

static void test_right_results_are_accepted(void **state)
{
    static const dist_op ops[] = {DIST_SUM, DIST_PROD, DIST_MIN, DIST_MAX};
    static const int ranks[] = {1, 2, 3, 8, 61, RANKS_MAX};
    char total[COUNT * 8];
    size_t bad;

    (void)state;
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        for (size_t o = 0; o < 4; o++) {
            for (size_t r = 0; r < 6; r++) {
                struct pattern pattern = make(types[t].dtype, ops[o], ranks[r]);

                reduce(t, ops[o], ranks[r], total);
                assert_true(pattern_is_reduced(&pattern, 5, total, COUNT, &bad));
            }
        }
    }
}

/* A wrong byte is found, wherever it is. */
static void test_a_wrong_byte_is_found(void **state)
{
    struct pattern pattern = make(DIST_FLOAT32, DIST_SUM, 3);
    char total[COUNT * 8];
    size_t bad;

    (void)state;
    reduce(0, DIST_SUM, 3, total);
    for (size_t i = 0; i < COUNT; i++) {
        total[i * 4 + 3] ^= 1;
        bad = COUNT;
        assert_false(pattern_is_reduced(&pattern, 5, total, COUNT, &bad));
        assert_int_equal(bad, i);
        total[i * 4 + 3] ^= 1;
    }
}

/* A missing rank is detected. */
static void test_a_missing_rank_is_detected(void **state)
{
    char total[COUNT * 8];
    size_t bad;

    (void)state;
    for (int ranks = 2; ranks < RANKS_MAX; ranks++) {
        struct pattern pattern = make(DIST_FLOAT32, DIST_SUM, ranks);

        reduce(0, DIST_SUM, ranks - 1, total);
        assert_false(pattern_is_reduced(&pattern, 5, total, COUNT, &bad));
    }
}

static void test_moved_data_are_detected(void **state)
{
    char data[COUNT * 8];
    size_t bad;

    (void)state;
    for (int d = 0; d < DIST_DTYPE_COUNT; d++) {
        struct pattern pattern = {.dtype = (dist_dtype)d, .ranks = 4, .seed = 2};

        pattern_fill(&pattern, 3, 7, data, COUNT);
        assert_true(pattern_is(&pattern, 3, 7, data, COUNT, &bad));
        assert_false(pattern_is(&pattern, 2, 7, data, COUNT, &bad));
        assert_false(pattern_is(&pattern, 3, 8, data, COUNT, &bad));
        data[150 * dist_dtype_size((dist_dtype)d)] ^= 1;
        assert_false(pattern_is(&pattern, 3, 7, data, COUNT, &bad));
        assert_int_equal(bad, 150);
    }
}

/* 1.0, 60.0 and the largest float16, in the encoding of the standard. */
static void test_half_precision_is_encoded(void **state)
{
    static const uint16_t half[] = {0x3c00, 0x5380, 0x7bff}, brain[] = {0x3f80, 0x4270};
    static const double values[] = {1, 60, 65504};
    uint16_t bits;

    (void)state;
    for (int i = 0; i < 3; i++) {
        assert_true(number_read(DIST_FLOAT16, &half[i]) == values[i]);
        number_write(DIST_FLOAT16, values[i], &bits);
        assert_int_equal(bits, half[i]);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(number_read(DIST_BFLOAT16, &brain[i]) == values[i]);
        number_write(DIST_BFLOAT16, values[i], &bits);
        assert_int_equal(bits, brain[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_results_are_accepted),
        cmocka_unit_test(test_a_wrong_byte_is_found),
        cmocka_unit_test(test_a_missing_rank_is_detected),
        cmocka_unit_test(test_moved_data_are_detected),
        cmocka_unit_test(test_half_precision_is_encoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
