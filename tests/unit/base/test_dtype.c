/* SPDX-License-Identifier: BSD-3-Clause */
/* Every dtype and op compared with the reference: lengths, alignments, overlapping operands,
 * special values. */
#include "base/dtype.h"

#include "environment.h"
#include "reference.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DTYPE_BYTES_MAX (8 * 2100)
#define DTYPE_GUARD 64

struct dtype_memory {
    unsigned char a[DTYPE_BYTES_MAX + 2 * DTYPE_GUARD];
    unsigned char b[DTYPE_BYTES_MAX + 2 * DTYPE_GUARD];
    unsigned char dst[DTYPE_BYTES_MAX + 2 * DTYPE_GUARD];
    unsigned char expected[DTYPE_BYTES_MAX + 2 * DTYPE_GUARD];
};

enum dtype_place { DTYPE_APART, DTYPE_OVER_A, DTYPE_OVER_B, DTYPE_OVER_BOTH, DTYPE_PLACES };

/* Bits of zero, one, subnormals, the largest value, infinity and NaNs; the sign is added. */
static const uint64_t dtype_odd_32[] = {0,          0x3f800000, 1,          0x7fffff,  0x800000,
                                        0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001};
static const uint64_t dtype_odd_16[] = {0,      0x3c00, 1,      0x3ff,  0x400,
                                        0x7bff, 0x7c00, 0x7e00, 0x7c01, 0x7f7f};
static const uint64_t dtype_odd_64[] = {0,
                                        UINT64_C(0x3ff0000000000000),
                                        1,
                                        UINT64_C(0x000fffffffffffff),
                                        UINT64_C(0x0010000000000000),
                                        UINT64_C(0x7fefffffffffffff),
                                        UINT64_C(0x7ff0000000000000),
                                        UINT64_C(0x7ff8000000000000),
                                        UINT64_C(0x7ff0000000000001)};

#define DTYPE_PICK(list, random) (list)[(random) % (sizeof(list) / sizeof((list)[0]))]

static uint64_t dtype_odd_value(size_t bytes, uint64_t random)
{
    uint64_t sign = (random >> 32 & 1) << (8 * bytes - 1);

    switch (bytes) {
    case 1:
        return sign | (random & 1 ? 0x7f : 0);
    case 2:
        return sign | DTYPE_PICK(dtype_odd_16, random % UINT32_MAX);
    case 4:
        return sign | DTYPE_PICK(dtype_odd_32, random % UINT32_MAX);
    default:
        return sign | DTYPE_PICK(dtype_odd_64, random % UINT32_MAX);
    }
}

/* A third special values, a third values of nearly equal size, a third random bits. */
static void dtype_fill(unsigned char *to, size_t count, size_t bytes, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t value = unit_random(state);

        if (value % 3 == 0)
            value = dtype_odd_value(bytes, unit_random(state));
        else if (value % 3 == 1)
            value = dtype_odd_value(bytes, 1) + (value >> 8) % 4096;
        memcpy(to + i * bytes, &value, bytes); /* the low bytes: little-endian only */
    }
}

static void dtype_expect(struct dtype_memory *m, dist_dtype dtype, dist_op op,
                         const unsigned char *a, const unsigned char *b, size_t count)
{
    size_t bytes = dist_dtype_size(dtype);

    for (size_t i = 0; i < count; i++)
        reference_reduce(dtype, op, a + i * bytes, b + i * bytes, m->expected + i * bytes);
}

static void dtype_compare(dist_dtype dtype, dist_op op, const unsigned char *result,
                          const unsigned char *expected, size_t count)
{
    size_t bytes = dist_dtype_size(dtype);
    uint64_t got = 0, want = 0;

    for (size_t i = 0; i < count; i++) {
        if (reference_same(dtype, expected + i * bytes, result + i * bytes))
            continue;
        memcpy(&got, result + i * bytes, bytes);
        memcpy(&want, expected + i * bytes, bytes);
        fail_msg("%s %s, element %zu of %zu: %#llx instead of %#llx", dist_dtype_string(dtype),
                 dist_op_string(op), i, count, (unsigned long long)got, (unsigned long long)want);
    }
}

static void dtype_check_guard(const unsigned char *dst, size_t bytes)
{
    for (int i = 1; i <= 32; i++) {
        assert_int_equal(dst[-i], 0xa5);
        assert_int_equal(dst[bytes + (size_t)i - 1], 0xa5);
    }
}

/* Checks one call. `skew` moves each of the three pointers off its alignment by a different
 * amount. */
static void dtype_check(struct dtype_memory *m, dist_dtype dtype, dist_op op, size_t count,
                        unsigned skew, enum dtype_place place, uint64_t *state)
{
    size_t bytes = count * dist_dtype_size(dtype);
    unsigned char *a = m->a + DTYPE_GUARD + skew % 8;
    unsigned char *b = m->b + DTYPE_GUARD + skew / 2 % 8;
    unsigned char *dst = m->dst + DTYPE_GUARD + skew / 4 % 8;

    memset(m, 0xa5, sizeof(*m));
    dtype_fill(a, count, dist_dtype_size(dtype), state);
    dtype_fill(b, count, dist_dtype_size(dtype), state);
    if (place == DTYPE_OVER_A || place == DTYPE_OVER_BOTH)
        dst = a;
    if (place == DTYPE_OVER_B)
        dst = b;
    if (place == DTYPE_OVER_BOTH)
        b = a;
    dtype_expect(m, dtype, op, a, b, count);
    disti_reduce_kernel(dtype, op)(dst, a, b, count);
    dtype_compare(dtype, op, dst, m->expected, count);
    dtype_check_guard(dst, bytes);
}

/* All counts from 0 to more than four of the widest vectors of bytes, and some large counts. */
static size_t dtype_next_count(size_t count)
{
    if (count < 140)
        return count + 1;
    return count < 255 ? 255 : count < 258 ? count + 1 : count * 2 - 3;
}

static void dtype_check_all(struct dtype_memory *m, dist_dtype dtype, dist_op op)
{
    uint64_t random = 1;
    unsigned skew = 0;

    for (int place = 0; place < DTYPE_PLACES; place++)
        for (size_t count = 0; count <= 2100; count = dtype_next_count(count))
            dtype_check(m, dtype, op, count, skew++, (enum dtype_place)place, &random);
}

static void test_kernels_match_the_reference(void **state)
{
    struct dtype_memory *m = malloc(sizeof(*m));

    (void)state;
    assert_non_null(m);
    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++)
        for (int op = 0; op < DIST_OP_COUNT; op++)
            if (op != DIST_USER && reference_fits((dist_op)op, (dist_dtype)dtype))
                dtype_check_all(m, (dist_dtype)dtype, (dist_op)op);
    free(m);
}

/* Each op on (a, b) and (b, a) has the same bits; otherwise ranks could have different results. */
static void test_operands_commute_exactly(void **state)
{
    static unsigned char a[2048], b[2048], ab[2048], ba[2048];
    uint64_t random = 2;

    (void)state;
    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++)
        for (int op = 0; op < DIST_OP_COUNT; op++) {
            size_t bytes = dist_dtype_size((dist_dtype)dtype);
            disti_reduce_fn kernel = disti_reduce_kernel((dist_dtype)dtype, (dist_op)op);

            if (!kernel)
                continue;
            dtype_fill(a, sizeof(a) / bytes, bytes, &random);
            dtype_fill(b, sizeof(b) / bytes, bytes, &random);
            kernel(ab, a, b, sizeof(a) / bytes);
            kernel(ba, b, a, sizeof(a) / bytes);
            dtype_compare((dist_dtype)dtype, (dist_op)op, ab, ba, sizeof(a) / bytes);
        }
}

/* Many elements use the vector code, a single one the code for the remainder: both give the same
 * bits. */
static void test_single_elements_have_the_same_bits_as_vectors(void **state)
{
    static unsigned char a[4096], b[4096], many[4096], one[4096];
    uint64_t random = 3;

    (void)state;
    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++)
        for (int op = 0; op < DIST_OP_COUNT; op++) {
            size_t bytes = dist_dtype_size((dist_dtype)dtype);
            disti_reduce_fn kernel = disti_reduce_kernel((dist_dtype)dtype, (dist_op)op);

            if (!kernel)
                continue;
            dtype_fill(a, sizeof(a) / bytes, bytes, &random);
            dtype_fill(b, sizeof(b) / bytes, bytes, &random);
            kernel(many, a, b, sizeof(a) / bytes);
            for (size_t at = 0; at < sizeof(a); at += bytes)
                kernel(one + at, a + at, b + at, 1);
            dtype_compare((dist_dtype)dtype, (dist_op)op, many, one, sizeof(a) / bytes);
        }
}

static void dtype_check_finish(dist_dtype dtype, dist_op op, size_t count, int ranks,
                               uint64_t *state)
{
    unsigned char memory[300 * 8 + 1], expected[300 * 8];
    unsigned char *data = memory + 1;
    size_t bytes = dist_dtype_size(dtype);

    dtype_fill(data, count, bytes, state);
    memcpy(expected, data, count * bytes);
    for (size_t i = 0; op == DIST_AVG && i < count; i++)
        reference_divide(dtype, expected + i * bytes, ranks);
    disti_finish(data, count, dtype, op, ranks);
    dtype_compare(dtype, op, data, expected, count);
}

static void test_averages_match_the_reference(void **state)
{
    static const int ranks[] = {1, 2, 3, 7, 8, 128, 300, 1000, 70000};
    uint64_t random = 4;

    (void)state;
    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++)
        for (int op = 0; op < DIST_OP_COUNT; op++)
            for (size_t r = 0; r < sizeof(ranks) / sizeof(ranks[0]); r++) {
                if (!reference_fits((dist_op)op, (dist_dtype)dtype))
                    continue;
                for (size_t count = 0; count <= 300; count = count * 2 + 1)
                    dtype_check_finish((dist_dtype)dtype, (dist_op)op, count, ranks[r], &random);
            }
}

static void test_averages_of_integers_truncate(void **state)
{
    int8_t small[] = {-7, 7, -8, 127};
    uint64_t large[] = {UINT64_MAX};

    (void)state;
    disti_finish(small, 4, DIST_INT8, DIST_AVG, 4);
    assert_int_equal(small[0], -1);
    assert_int_equal(small[1], 1);
    assert_int_equal(small[2], -2);
    assert_int_equal(small[3], 31);
    disti_finish(large, 1, DIST_UINT64, DIST_AVG, 2);
    assert_true(large[0] == UINT64_MAX / 2);
}

static void dtype_check_scale(dist_dtype dtype, double factor, size_t count, size_t skew,
                              bool in_place, uint64_t *state)
{
    unsigned char memory[300 * 8 + 16], expected[300 * 8], other[300 * 8 + 16];
    unsigned char *src = memory + skew, *dst = in_place ? src : other + 2 * skew;
    size_t bytes = dist_dtype_size(dtype);

    memset(other, 0xa5, sizeof(other));
    dtype_fill(src, count, bytes, state);
    memset(src + count * bytes, 0xa5, 1);
    memcpy(expected, src, count * bytes);
    for (size_t i = 0; i < count; i++)
        reference_scale(dtype, expected + i * bytes, factor);
    disti_scale(dst, src, count, dtype, factor);
    dtype_compare(dtype, DIST_PREMUL_SUM, dst, expected, count);
    assert_int_equal(dst[count * bytes], 0xa5);
}

/* Ordinary factors, one that float32 rounds, one out of its range, and factors with special
 * results. */
static void test_scaling_matches_the_reference(void **state)
{
    static const double factors[] = {0,      -0.0,  1,           0.125,   -3,       1.0 / 3,
                                     1e-300, 1e300, 1 + 0x1p-30, 0x1p-20, INFINITY, NAN};
    static const dist_dtype dtypes[] = {DIST_FLOAT32, DIST_FLOAT64, DIST_FLOAT16, DIST_BFLOAT16};
    uint64_t random = 5;
    size_t skew = 0;

    (void)state;
    for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
        for (size_t f = 0; f < sizeof(factors) / sizeof(factors[0]); f++)
            for (size_t count = 0; count <= 300; count = count * 2 + 1)
                for (int in_place = 0; in_place < 2; in_place++)
                    dtype_check_scale(dtypes[d], factors[f], count, skew++ % 8, in_place, &random);
}

/* All 65536 pairs of bytes: 0 is false; every other value is true. */
static void test_all_nonzero_bytes_are_true(void **state)
{
    static unsigned char a[65536], b[65536], out[65536], expected[65536];

    (void)state;
    for (unsigned i = 0; i < 65536; i++) {
        a[i] = (unsigned char)i;
        b[i] = (unsigned char)(i >> 8);
    }
    for (int op = 0; op < DIST_OP_COUNT; op++) {
        disti_reduce_fn kernel = disti_reduce_kernel(DIST_BOOL, (dist_op)op);

        if (!kernel)
            continue;
        for (unsigned i = 0; i < 65536; i++)
            reference_reduce(DIST_BOOL, (dist_op)op, a + i, b + i, expected + i);
        kernel(out, a, b, 65536);
        assert_memory_equal(out, expected, 65536);
    }
}

static void test_ops_support_the_documented_dtypes(void **state)
{
    (void)state;
    for (int dtype = -1; dtype <= DIST_DTYPE_COUNT; dtype++)
        for (int op = -1; op <= DIST_OP_COUNT; op++) {
            bool ours = dtype >= 0 && dtype < DIST_DTYPE_COUNT && op >= 0 && op < DIST_OP_COUNT;
            bool fits = ours && reference_fits((dist_op)op, (dist_dtype)dtype);

            assert_int_equal(disti_op_fits((dist_op)op, (dist_dtype)dtype), fits);
            if (ours)
                assert_int_equal(disti_reduce_kernel((dist_dtype)dtype, (dist_op)op) != NULL,
                                 fits && op != DIST_USER);
        }
    assert_false(disti_op_fits(DIST_OP_DYNAMIC, DIST_FLOAT32));
}

static void test_only_defined_dtypes_and_ops_are_valid(void **state)
{
    (void)state;
    assert_true(disti_dtype_valid(DIST_FLOAT32) && disti_dtype_valid(DIST_BOOL));
    assert_false(disti_dtype_valid(DIST_DTYPE_COUNT));
    assert_false(disti_dtype_valid((dist_dtype)-1));
    assert_true(disti_op_valid(DIST_SUM) && disti_op_valid(DIST_USER));
    assert_false(disti_op_valid(DIST_OP_COUNT));
    assert_false(disti_op_valid((dist_op)-1));
    assert_false(disti_op_valid(DIST_OP_DYNAMIC));
}

/* The program's floating-point environment does not change the results, and is not changed. */
static void dtype_check_environment(struct dtype_memory *m, dist_dtype dtype, dist_op op,
                                    size_t count)
{
    const bool scales = op == DIST_PREMUL_SUM;

    for (int odd = 0; odd < 2; odd++) {
        unsigned char *result = odd ? m->dst : m->expected;

        if (odd)
            environment_odd();
        disti_reduce(dtype, op, result, m->a, m->b, count);
        disti_finish(result, count, dtype, op, 3);
        if (scales)
            disti_scale(result, result, count, dtype, 1.0 / 3.0);
        if (odd)
            assert_true(environment_usual());
    }
    dtype_compare(dtype, op, m->dst, m->expected, count);
}

static void test_the_floating_point_environment_has_no_effect(void **state)
{
    static struct dtype_memory m;
    uint64_t random = 5;

    (void)state;
    for (dist_dtype dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++) {
        for (dist_op op = 0; op < DIST_OP_COUNT; op++) {
            if (op == DIST_USER || !disti_op_fits(op, dtype))
                continue;
            dtype_fill(m.a, 1001, dist_dtype_size(dtype), &random);
            dtype_fill(m.b, 1001, dist_dtype_size(dtype), &random);
            dtype_check_environment(&m, dtype, op, 1001);
            dtype_check_environment(&m, dtype, op, 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_match_the_reference),
        cmocka_unit_test(test_operands_commute_exactly),
        cmocka_unit_test(test_single_elements_have_the_same_bits_as_vectors),
        cmocka_unit_test(test_averages_match_the_reference),
        cmocka_unit_test(test_averages_of_integers_truncate),
        cmocka_unit_test(test_scaling_matches_the_reference),
        cmocka_unit_test(test_the_floating_point_environment_has_no_effect),
        cmocka_unit_test(test_all_nonzero_bytes_are_true),
        cmocka_unit_test(test_ops_support_the_documented_dtypes),
        cmocka_unit_test(test_only_defined_dtypes_and_ops_are_valid),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
