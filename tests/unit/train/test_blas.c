/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kernels a CPU can run, by the names that OpenBLAS gives them. */
#include "train/gemm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_known_cores(void **state)
{
    (void)state;
    assert_int_equal(blas_level_of("Prescott"), BLAS_SSE);
    assert_int_equal(blas_level_of("Nehalem"), BLAS_SSE);
    assert_int_equal(blas_level_of("Sandybridge"), BLAS_AVX);
    assert_int_equal(blas_level_of("Haswell"), BLAS_AVX2);
    assert_int_equal(blas_level_of("Zen"), BLAS_AVX2);
    assert_int_equal(blas_level_of("SkylakeX"), BLAS_AVX512);
}

/* A name that comes later is of a CPU that OpenBLAS knows: nothing better can be named. */
static void test_unknown_core(void **state)
{
    (void)state;
    assert_int_equal(blas_level_of("NextLake"), BLAS_AVX512);
}

static void test_case_of_letters(void **state)
{
    (void)state;
    assert_int_equal(blas_level_of("PRESCOTT"), BLAS_SSE);
    assert_int_equal(blas_level_of("haswell"), BLAS_AVX2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_cores),
        cmocka_unit_test(test_unknown_core),
        cmocka_unit_test(test_case_of_letters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
