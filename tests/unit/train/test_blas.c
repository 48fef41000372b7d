/* SPDX-License-Identifier: BSD-3-Clause */
/* Which kernels a CPU can run, by OpenBLAS's names of cores. */
#include "train/gemm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_known_cores_have_their_level(void **state)
{
    (void)state;
    assert_int_equal(blas_level_of("Prescott"), BLAS_SSE);
    assert_int_equal(blas_level_of("Nehalem"), BLAS_SSE);
    assert_int_equal(blas_level_of("Sandybridge"), BLAS_AVX);
    assert_int_equal(blas_level_of("Haswell"), BLAS_AVX2);
    assert_int_equal(blas_level_of("Zen"), BLAS_AVX2);
    assert_int_equal(blas_level_of("SkylakeX"), BLAS_AVX512);
}

/* An unknown name belongs to a newer CPU that OpenBLAS supports, so it gets the best level. */
static void test_an_unknown_core_has_the_best_level(void **state)
{
    (void)state;
    assert_int_equal(blas_level_of("NextLake"), BLAS_AVX512);
}

static void test_case_is_ignored(void **state)
{
    (void)state;
    assert_int_equal(blas_level_of("PRESCOTT"), BLAS_SSE);
    assert_int_equal(blas_level_of("haswell"), BLAS_AVX2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_cores_have_their_level),
        cmocka_unit_test(test_an_unknown_core_has_the_best_level),
        cmocka_unit_test(test_case_is_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
