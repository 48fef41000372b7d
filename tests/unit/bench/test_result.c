/* SPDX-License-Identifier: BSD-3-Clause */
/* Statistics of samples, and bandwidths from times. */
#include "bench/report.h"
#include "bench/rounds.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static bool near(double a, double b)
{
    return fabs(a - b) < 1e-9 * (fabs(b) + 1);
}

static void test_quantiles_are_interpolated(void **state)
{
    double values[] = {5, 1, 4, 2, 3};

    (void)state;
    assert_true(near(result_quantile(values, 5, 0.5), 3));
    assert_true(near(result_quantile(values, 5, 0), 1));
    assert_true(near(result_quantile(values, 5, 1), 5));
    assert_true(near(result_quantile(values, 5, 0.875), 4.5));
    assert_true(near(result_quantile(values, 4, 0.5), 2.5));
    assert_true(result_quantile(NULL, 0, 0.5) == 0);
}

/* Two ranks with three samples in each of two rounds; the slowest are 4 5 6, then 10 1 7. */
static void test_samples_are_summarized(void **state)
{
    static const double first[] = {4, 2, 6, 1, 5, 3}, second[] = {10, 1, 1, 2, 1, 7};
    struct order order = {.operation = operation_find("all_reduce"), .dtype = DIST_FLOAT32};
    struct result_time time = {0};
    struct summary summary;

    (void)state;
    assert_int_equal(summary_begin(&summary, &order, 2, 2), 0);
    assert_int_equal(summary_add(&summary, first, 3), 0);
    assert_int_equal(summary_add(&summary, second, 3), 0);
    assert_int_equal(summary_end(&summary, 8, &time), 0);
    assert_true(near(time.median, 6)); /* mean of 5 and 7 */
    assert_true(near(time.min, 1) && near(time.max, 10) && near(time.p50, 5.5));
    assert_true(near(time.mean, 33 / 6.0));
    assert_true(near(time.rank_min, 19 / 6.0) && near(time.rank_max, 24 / 6.0));
    assert_true(near(time.rank_avg, 43 / 12.0));
    assert_int_equal(time.samples, 6);
    assert_int_equal(time.batch, 8);
    free(time.rounds);
    summary_free(&summary);
}

/* A round trip is halved, and a rank that only waits does not count. */
static void test_latency_is_half_a_round_trip(void **state)
{
    static const double times[] = {8, 6, 0};
    struct order order = {.operation = operation_find("latency"), .dtype = DIST_FLOAT32};
    struct result_time time = {0};
    struct summary summary;

    (void)state;
    assert_int_equal(summary_begin(&summary, &order, 3, 1), 0);
    assert_int_equal(summary_add(&summary, times, 1), 0);
    assert_int_equal(summary_end(&summary, 1, &time), 0);
    assert_true(near(time.median, 4) && near(time.rank_avg, 3.5));
    free(time.rounds);
    summary_free(&summary);
}

/* 1000 bytes in 100 ns on 4 ranks: 10 GB/s, and the bus bandwidth as defined by nccl-tests. */
static void test_bandwidths_follow_nccl_tests(void **state)
{
    static const struct {
        const char *collective;
        int window;
        double algorithm, bus;
    } rows[] = {{"all_reduce", 1, 10, 15},    {"all_reduce_coalesced", 1, 10, 15},
                {"broadcast", 1, 10, 10},     {"reduce", 1, 10, 10},
                {"all_gather_v", 1, 10, 7.5}, {"reduce_scatter", 1, 10, 7.5},
                {"all_to_all", 1, 10, 7.5},   {"scatter", 1, 10, 7.5},
                {"bw", 64, 640, 640},         {"bibw", 64, 1280, 1280}};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct result_measurement measurement = {
            .collective = rows[i].collective, .bytes = 1000, .window = rows[i].window};

        assert_true(near(result_algorithm_bandwidth(&measurement, 100), rows[i].algorithm));
        assert_true(near(result_bus_bandwidth(&measurement, 4, 100), rows[i].bus));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quantiles_are_interpolated),
        cmocka_unit_test(test_samples_are_summarized),
        cmocka_unit_test(test_latency_is_half_a_round_trip),
        cmocka_unit_test(test_bandwidths_follow_nccl_tests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
