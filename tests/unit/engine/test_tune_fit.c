/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs fitted to measured times: with them, the simulator predicts the measured times. */
#include "engine/engine.h"
#include "topology/topology.h"

#include "../base/unit.h"

#include <math.h>
#include <string.h>

#define STEP 1e-7

static struct disti_cost fitted(const struct disti_link_times *times, bool far)
{
    struct disti_cost cost = {.eager_bytes = SIZE_MAX, .step_s = STEP};

    if (far)
        disti_tune_fit_far(times, &cost.links[DISTI_OTHER_NODE], &cost.network_bytes_per_second);
    else
        disti_tune_fit_near(times, &cost.links[DISTI_SAME_NUMA]);
    return cost;
}

static double simulated(const char *place, const char *name, size_t bytes,
                        const struct disti_cost *cost)
{
    bool swap = strcmp(name, "recursive_doubling") == 0;
    dist_collective collective = swap ? DIST_COLL_ALL_REDUCE : DIST_COLL_BROADCAST;
    struct disti_topology *topology;
    struct disti_shape shape = {.collective = collective, .ranks = 2, .segments = 1};
    double seconds = -1;

    assert_int_equal(disti_topology_synthetic(place, &topology), DIST_OK);
    shape.topology = topology;
    assert_int_equal(
        disti_simulate(disti_algorithm_find(collective, name), &shape, bytes, cost, &seconds),
        DIST_OK);
    disti_topology_free(topology);
    return seconds;
}

static void assert_near(double found, double expected, double share)
{
    if (fabs(found - expected) > share * expected)
        fail_msg("%.9g s instead of %.9g s", found, expected);
}

/* Measured times: containers on one machine, and Ethernet of 1 Gbit/s. */
static const struct disti_link_times kernel = {.back = 7.6e-6,
                                               .back_busy = 3.6e-6,
                                               .swap = 4.6e-6,
                                               .middle = 26e-6,
                                               .middle_busy = 15e-6,
                                               .length = 250e-6,
                                               .bytes = 1 << 20};
static const struct disti_link_times ethernet = {.back = 60e-6,
                                                 .back_busy = 8e-6,
                                                 .swap = 31e-6,
                                                 .middle = 1150e-6,
                                                 .middle_busy = 40e-6,
                                                 .length = 1150e-6,
                                                 .bytes = DISTI_LINK_MIDDLE};

static void test_fitted_costs_predict_the_measured_times(void **state)
{
    const struct disti_link_times *const all[] = {&kernel, &ethernet};

    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct disti_link_times *times = all[i];
        struct disti_cost cost = fitted(times, true);

        assert_near(simulated("node:2", "binomial", 8, &cost) - 2 * STEP, times->back / 2, 0.01);
        assert_near(simulated("node:2", "binomial", (size_t)times->bytes, &cost) - 2 * STEP,
                    times->length / 2, 0.02);
        assert_near(simulated("node:2", "binomial", DISTI_LINK_MIDDLE, &cost), times->middle / 2,
                    0.15);
        assert_near(simulated("node:2", "recursive_doubling", 8, &cost) - 3 * STEP, times->swap,
                    0.2);
    }
}

/* On a slow link, neither the CPU time nor an exchange in both directions adds to the time. */
static void test_a_slow_link_determines_the_time(void **state)
{
    struct disti_cost cost = fitted(&ethernet, true);

    (void)state;
    assert_near(cost.links[DISTI_OTHER_NODE].bytes_per_second, 65536 / 541e-6, 0.01);
    assert_near(cost.network_bytes_per_second, 65536 / 16e-6, 0.01);
    assert_near(cost.links[DISTI_OTHER_NODE].overhead_s, 5e-6, 0.01);
    assert_near(simulated("node:2", "recursive_doubling", 1 << 20, &cost),
                1048576 / (65536 / 541e-6), 0.05);
}

/* Inconsistent times, as measured on a loaded machine, result in plausible costs. */
static void test_inconsistent_times_give_plausible_costs(void **state)
{
    struct disti_link_times times = {.back = 5e-6,
                                     .back_busy = 9e-6,
                                     .swap = 400e-6,
                                     .middle = 4e-6,
                                     .middle_busy = 3e-6,
                                     .length = 4e-6,
                                     .bytes = 65536};
    struct disti_tuning tuning;

    (void)state;
    disti_tuning_usual(&tuning);
    disti_tune_fit_far(&times, &tuning.cost.links[DISTI_OTHER_NODE],
                       &tuning.cost.network_bytes_per_second);
    disti_tuning_round(&tuning);
    assert_true(disti_tuning_sane(&tuning));
    assert_true(tuning.cost.links[DISTI_OTHER_NODE].overhead_s < 2.5e-6);
    times.back = times.swap = 1e-9;
    disti_tune_fit_near(&times, &tuning.cost.links[DISTI_SAME_NUMA]);
    disti_tuning_round(&tuning);
    assert_true(disti_tuning_sane(&tuning));
}

/* Inside a node, the receiver's overhead is at most a quarter of the latency. */
static void test_fitted_costs_predict_times_inside_a_node(void **state)
{
    const struct disti_link_times times = {
        .back = 1e-6, .burst = 3.25e-6, .length = 100e-6, .bytes = 1 << 20};
    struct disti_cost cost = fitted(&times, false);

    (void)state;
    assert_near(cost.links[DISTI_SAME_NUMA].overhead_s, 0.125e-6, 0.01);
    assert_near(simulated("core:2", "binomial", 8, &cost) - 2 * STEP, 0.5e-6, 0.01);
    assert_near(simulated("core:2", "binomial", 1 << 20, &cost) - 2 * STEP, 50e-6, 0.01);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fitted_costs_predict_the_measured_times),
        cmocka_unit_test(test_a_slow_link_determines_the_time),
        cmocka_unit_test(test_inconsistent_times_give_plausible_costs),
        cmocka_unit_test(test_fitted_costs_predict_times_inside_a_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
