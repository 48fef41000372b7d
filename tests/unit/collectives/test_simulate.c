/* SPDX-License-Identifier: BSD-3-Clause */
/* The simulator against times that were worked out by hand. */
#include "simulate/internal.h"
#include "topology/topology.h"

#include "../base/unit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

static struct disti_forecast simulated_on(const struct disti_topology *topology,
                                          dist_collective collective, const char *algorithm,
                                          uint32_t segments, size_t bytes,
                                          const struct disti_cost *cost)
{
    struct disti_shape shape = {.collective = collective,
                                .ranks = topology->ranks,
                                .segments = segments,
                                .topology = topology};
    struct disti_forecast forecast;
    const struct disti_algorithm *found = disti_algorithm_find(collective, algorithm);
    assert_non_null(found);
    assert_int_equal(disti_forecast(found, &shape, bytes, cost, &forecast), DIST_OK);
    return forecast;
}

static struct disti_forecast simulated(const char *place, dist_collective collective,
                                       const char *algorithm, uint32_t segments, size_t bytes,
                                       const struct disti_cost *cost)
{
    struct disti_topology *topology;
    assert_int_equal(disti_topology_synthetic(place, &topology), DIST_OK);
    struct disti_forecast forecast =
        simulated_on(topology, collective, algorithm, segments, bytes, cost);
    disti_topology_free(topology);
    return forecast;
}

static void assert_seconds(double found, double expected)
{
    if (fabs(found - expected) > 1e-6 * expected + 1e-11)
        fail_msg("%.9g s instead of %.9g s", found, expected);
}

/* Nothing costs anything but what a test sets. */
static struct disti_cost costs_nothing(void)
{
    return (struct disti_cost){.eager_bytes = SIZE_MAX};
}

static void test_one_message_between_nodes(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_OTHER_NODE] = (struct disti_link_cost){3e-5, 4e-6, 1e9};
    cost.step_s = 1e-6;
    struct disti_forecast f =
        simulated("node:2", DIST_COLL_BROADCAST, "binomial", 1, 1000000, &cost);
    assert_seconds(f.seconds, 1e-6 + 3e-5 + 1e-3 + 1e-6 + 4e-6);
    assert_int_equal(f.links[DISTI_OTHER_NODE].messages, 1);
    assert_seconds(f.links[DISTI_OTHER_NODE].bytes, 1e6);
    assert_seconds(f.links[DISTI_OTHER_NODE].busiest, 1e-3 / f.seconds);
    assert_int_equal(f.links[DISTI_SAME_NODE].messages, 0);
    assert_int_equal(f.steps, 2);
}

/* NUMA nodes have their own price; the receiver moves the bytes, and reduces them afterwards. */
static void test_one_message_inside_a_node(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_SAME_NUMA] = (struct disti_link_cost){1e-6, 2e-7, 1e10};
    cost.links[DISTI_SAME_NODE] = (struct disti_link_cost){2e-6, 3e-7, 5e9};
    cost.reduce_bytes_per_second = 2e9;
    double near = simulated("core:2", DIST_COLL_BROADCAST, "binomial", 1, 1000000, &cost).seconds;
    double far = simulated("numa:2", DIST_COLL_BROADCAST, "binomial", 1, 1000000, &cost).seconds;
    double sum = simulated("numa:2", DIST_COLL_REDUCE, "binomial", 1, 1000000, &cost).seconds;
    assert_seconds(near, 1e-6 + 1e-4 + 2e-7);
    assert_seconds(far, 2e-6 + 2e-4 + 3e-7);
    assert_seconds(sum, far + 5e-4);
}

/* What comes over a line is reduced meanwhile, unless the reduction is the slower of the two. */
static void test_reduction_while_it_comes_in(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_OTHER_NODE] = (struct disti_link_cost){1e-5, 0, 1e9};
    cost.reduce_bytes_per_second = 4e9;
    assert_seconds(simulated("node:2", DIST_COLL_REDUCE, "binomial", 1, 1000000, &cost).seconds,
                   1e-5 + 1e-3);
    cost.reduce_bytes_per_second = 5e8;
    assert_seconds(simulated("node:2", DIST_COLL_REDUCE, "binomial", 1, 1000000, &cost).seconds,
                   1e-5 + 2e-3);
    /* A short vector is in a cache: 100000 / 5e8 / 3 is less than it takes on the line. */
    assert_seconds(simulated("node:2", DIST_COLL_REDUCE, "binomial", 1, 100000, &cost).seconds,
                   1e-5 + 1e-4);
}

static void test_ring_is_the_closed_form(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_OTHER_NODE] = (struct disti_link_cost){2e-5, 0, 1.25e9};
    for (int n = 2; n <= 33; n += n < 8 ? 1 : 5) {
        char place[32];
        snprintf(place, sizeof(place), "node:%d", n);
        size_t bytes = (size_t)n * 100000;
        struct disti_forecast f = simulated(place, DIST_COLL_ALL_REDUCE, "ring", 1, bytes, &cost);
        assert_seconds(f.seconds, 2 * (n - 1) * (2e-5 + (double)bytes / n / 1.25e9));
        assert_int_equal(f.links[DISTI_OTHER_NODE].messages, 2 * (n - 1) * n);
        assert_seconds(f.links[DISTI_OTHER_NODE].bytes, 2.0 * (n - 1) * (double)bytes);
        assert_seconds(f.links[DISTI_OTHER_NODE].waited_s, 0);
        assert_int_equal(f.simulated, 1);
    }
}

/* ceil(log2 n) rounds of a latency each; nothing is moved, whatever the bytes. */
static void test_barrier_moves_nothing(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_OTHER_NODE] = (struct disti_link_cost){3e-6, 0, 1e9};
    struct disti_forecast f =
        simulated("node:9", DIST_COLL_BARRIER, "dissemination", 1, MIB, &cost);
    assert_seconds(f.seconds, 4 * 3e-6);
    assert_int_equal(f.links[DISTI_OTHER_NODE].messages, 4 * 9);
    assert_seconds(f.links[DISTI_OTHER_NODE].bytes, 0);
}

/* A chain of n ranks that s segments follow each other on: n - 2 + s times the time of one. */
static void test_chain_fills_and_drains(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_OTHER_NODE].bytes_per_second = 1e9;
    struct disti_forecast f =
        simulated("node:6", DIST_COLL_BROADCAST, "chain", 10, 10 * 1000000, &cost);
    assert_seconds(f.seconds, (6 - 2 + 10) * 1e-3);
}

static void test_ranks_of_a_node_share_its_line(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_OTHER_NODE].bytes_per_second = 1e9;
    double one = simulated("node:2", DIST_COLL_ALL_TO_ALL, "direct", 1, MIB, &cost).seconds;
    struct disti_forecast two =
        simulated("node:2 core:2", DIST_COLL_ALL_TO_ALL, "direct", 1, MIB, &cost);
    assert_seconds(one, (double)MIB / 1e9);
    assert_seconds(two.seconds, 4 * one); /* each of 2 ranks has 2 blocks for over there */
    assert_seconds(two.links[DISTI_OTHER_NODE].busiest, 1);
    assert_true(two.links[DISTI_OTHER_NODE].waited_s > 0);
}

/* All send to one: its node's line in is what they wait for. Lines out are free. */
static void test_line_in_is_shared_too(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_OTHER_NODE].bytes_per_second = 1e9;
    struct disti_forecast f = simulated("node:5", DIST_COLL_GATHER, "direct", 1, MIB, &cost);
    assert_seconds(f.seconds, 4 * (double)MIB / 1e9);
    assert_seconds(f.links[DISTI_OTHER_NODE].waited_s, (1 + 2 + 3) * (double)MIB / 1e9);
}

/* Through a rack's line of half the rate go two messages, past the one that stays in the rack. */
static void test_nodes_of_a_rack_share_its_line(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_OTHER_NODE] = (struct disti_link_cost){1e-5, 0, 1e9};
    cost.links[DISTI_OTHER_RACK] = (struct disti_link_cost){3e-5, 0, 5e8};
    struct disti_forecast f = simulated("rack:2 node:2", DIST_COLL_GATHER, "direct", 1, MIB, &cost);
    assert_seconds(f.seconds, 3e-5 + 2 * (double)MIB / 5e8);
    assert_int_equal(f.links[DISTI_OTHER_NODE].messages, 1);
    assert_int_equal(f.links[DISTI_OTHER_RACK].messages, 2);
    assert_seconds(f.links[DISTI_OTHER_RACK].busiest, 2 * (double)MIB / 5e8 / f.seconds);
    f = simulated("rack:3 node:2 core:2", DIST_COLL_ALL_REDUCE, "ring", 1, MIB, &cost);
    assert_int_equal(f.simulated, 4);
}

/* Four messages of one lane: short ones leave at once, a long one once that before was taken. */
static void test_long_sends_wait_for_their_receives(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_SAME_NUMA] = (struct disti_link_cost){1e-4, 0, 1e9};
    cost.eager_bytes = 1000000;
    double early = simulated("core:2", DIST_COLL_BROADCAST, "chain", 4, 4000000, &cost).seconds;
    cost.eager_bytes = 999999;
    double late = simulated("core:2", DIST_COLL_BROADCAST, "chain", 4, 4000000, &cost).seconds;
    assert_seconds(early, 1e-4 + 4 * 1e-3);
    assert_seconds(late, 4 * (1e-4 + 1e-3));
}

static void test_ranks_share_cpus(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_SAME_NUMA].bytes_per_second = 1e9;
    cost.node_cpus = 3;
    const char *const all = "direct";
    double free = simulated("core:3", DIST_COLL_ALL_GATHER, all, 1, 1000000, &cost).seconds;
    cost.node_cpus = 1;
    double one = simulated("core:3", DIST_COLL_ALL_GATHER, all, 1, 1000000, &cost).seconds;
    cost.switch_s = 1e-3;
    double slow = simulated("core:3", DIST_COLL_ALL_GATHER, all, 1, 1000000, &cost).seconds;
    assert_seconds(free, 2e-3); /* each takes two blocks */
    assert_seconds(one, 6e-3);
    assert_true(slow > one + 2e-3 && slow < one + 20e-3);
}

/* A piece is put into the network, carried, taken out; of a long message that overlaps. */
static void test_work_for_the_network(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    const double latency = 3e-5, piece = DISTI_NETWORK_PIECE * 1e-9;
    cost.network_bytes_per_second = 1e9;
    cost.links[DISTI_OTHER_NODE].latency_s = latency;
    const char *const way = "binomial", *const swap = "recursive_doubling";
    assert_seconds(simulated("node:2", DIST_COLL_BROADCAST, way, 1, 16384, &cost).seconds,
                   2 * piece + latency);
    assert_seconds(simulated("node:2", DIST_COLL_BROADCAST, way, 1, 1000000, &cost).seconds,
                   1e-3 + piece + latency);
    /* Both send first, then both receive; and so they do with short ones. */
    assert_seconds(simulated("node:2", DIST_COLL_ALL_REDUCE, swap, 1, 1000000, &cost).seconds,
                   2e-3);
    assert_seconds(simulated("node:2", DIST_COLL_ALL_REDUCE, swap, 1, 10000, &cost).seconds,
                   2e-5 + latency);
    /* Where the line is slower the work is hidden, but for the first and the last piece. */
    cost.links[DISTI_OTHER_NODE].bytes_per_second = 1e8;
    assert_seconds(simulated("node:2", DIST_COLL_BROADCAST, way, 1, 1000000, &cost).seconds,
                   piece + 1e-2 + latency + piece);
    /* Inside a node there is no network. */
    assert_seconds(simulated("core:2", DIST_COLL_BROADCAST, way, 1, 1000000, &cost).seconds, 0);
}

/* Containers: what all their ranks do is done one after the other by the CPUs that they share. */
static void test_nodes_share_cpus(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_OTHER_NODE].overhead_s = 1e-6;
    const char *const name = "dissemination";
    double own = simulated("node:4", DIST_COLL_BARRIER, name, 1, 0, &cost).seconds;
    cost.all_cpus = 4;
    double enough = simulated("node:4", DIST_COLL_BARRIER, name, 1, 0, &cost).seconds;
    cost.all_cpus = 1;
    double one = simulated("node:4", DIST_COLL_BARRIER, name, 1, 0, &cost).seconds;
    double two = simulated("node:2 core:2", DIST_COLL_ALL_GATHER, "ring", 1, 8, &cost).seconds;
    assert_seconds(enough, own);
    assert_seconds(one, 2 * 4 * 2e-6); /* rounds, ranks, a send and a reception */
    assert_seconds(two, 3 * 2 * 2e-6); /* steps, of which two messages are between nodes */
}

static void test_ranks_share_memory(void **state)
{
    (void)state;
    struct disti_cost cost = costs_nothing();
    cost.links[DISTI_SAME_NUMA].bytes_per_second = 1e9;
    cost.node_bytes_per_second = 1.5e9;
    double f = simulated("core:3", DIST_COLL_ALL_GATHER, "direct", 1, 1000000, &cost).seconds;
    assert_seconds(f, 9e6 / 1.5e9); /* each takes two blocks, and copies its own */
}

/* Nodes alike, of several kinds; the ranks of the last of them are dealt out to the nodes in turn.
 */
static const char *const alike[] = {"node:2",
                                    "node:8",
                                    "node:2 core:3",
                                    "node:4 core:2",
                                    "node:5 core:3",
                                    "node:3 numa:2 core:2",
                                    "rack:2 node:2",
                                    "rack:3 node:2 core:2",
                                    "rack:2 node:3 core:3",
                                    NULL};

static struct disti_topology *alike_topology(size_t number)
{
    struct disti_topology *topology;
    struct dist_place dealt[12];
    for (int r = 0; r < 12; r++)
        dealt[r] = (struct dist_place){r % 4, -1, -1, r / 4, -1};
    if (alike[number])
        assert_int_equal(disti_topology_synthetic(alike[number], &topology), DIST_OK);
    else
        assert_int_equal(disti_topology_create(dealt, 12, &topology), DIST_OK);
    return topology;
}
#define ALIKE (sizeof(alike) / sizeof(*alike))

/* Ranks that stand for others give what all give, to the last bit. */
static void stands_for_others(const struct disti_algorithm *algorithm,
                              const struct disti_shape *shape, size_t bytes,
                              const struct disti_cost *cost)
{
    struct disti_forecast few, all;
    struct disti_simulation *simulation;
    assert_int_equal(disti_simulation_open(algorithm, shape, &simulation), DIST_OK);
    assert_int_equal(disti_simulation_run(simulation, bytes, cost, &few), DIST_OK);
    assert_int_equal(disti_sim_run(simulation, bytes, true, cost, &all), DIST_OK);
    disti_simulation_close(simulation);
    assert_int_equal(all.simulated, shape->ranks);
    assert_true(few.simulated < shape->ranks || !algorithm->symmetric);
    few.simulated = all.simulated;
    if (memcmp(&few, &all, sizeof(few)) != 0)
        fail_msg("%s of %zu bytes, %d ranks: %.17g s instead of %.17g s", algorithm->name, bytes,
                 shape->ranks, few.seconds, all.seconds);
}

/* The plans of symmetric algorithms are not all written; they must equal those that would be. */
static void test_algorithms_symmetric(void **state)
{
    (void)state;
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        for (size_t i = 0; a->symmetric && i < ALIKE * 2; i++) {
            struct disti_topology *topology = alike_topology(i % ALIKE);
            struct disti_shape shape = {.collective = a->collective,
                                        .ranks = topology->ranks,
                                        .segments = i / ALIKE ? 3 : 1,
                                        .topology = topology};
            struct disti_algorithm each = *a;
            struct disti_forecast few, all;
            each.symmetric = false;
            assert_int_equal(disti_forecast(a, &shape, 0, &disti_cost_usual, &few), DIST_OK);
            assert_int_equal(disti_forecast(&each, &shape, 0, &disti_cost_usual, &all), DIST_OK);
            if (all.simulated != few.simulated || all.simulated == shape.ranks)
                fail_msg("%s is not symmetric: %d ranks", a->name, shape.ranks);
            disti_topology_free(topology);
        }
}

static void test_ranks_stand_for_others(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1000, 100000, 12 * MIB};
    struct disti_cost costs[3] = {disti_cost_usual, disti_cost_usual, costs_nothing()};
    costs[1].node_cpus = 2;
    costs[2].links[DISTI_OTHER_NODE].bytes_per_second = 1e9; /* much at the same time */
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        for (size_t i = 0; i < ALIKE * 4 * 3 * 2; i++) {
            struct disti_topology *topology = alike_topology(i % ALIKE);
            struct disti_shape shape = {.collective = a->collective,
                                        .ranks = topology->ranks,
                                        .segments = i / ALIKE / 12 ? 3 : 1,
                                        .topology = topology};
            stands_for_others(a, &shape, sizes[i / ALIKE % 4], &costs[i / ALIKE / 4 % 3]);
            disti_topology_free(topology);
        }
}

/* Every algorithm comes to an end, and twice in the same time. */
static void test_all_algorithms_and_always_alike(void **state)
{
    (void)state;
    static const char *const places[] = {"core:1", "core:7", "node:5", "node:3 numa:2 core:2"};
    struct disti_cost crowded = disti_cost_usual;
    crowded.node_cpus = 2;
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        for (size_t p = 0; p < sizeof(places) / sizeof(*places); p++) {
            struct disti_forecast f =
                simulated(places[p], a->collective, a->name, 3, 100000, &crowded);
            struct disti_forecast g =
                simulated(places[p], a->collective, a->name, 3, 100000, &crowded);
            assert_memory_equal(&f, &g, sizeof(f));
            assert_true(p == 0 || f.seconds > 1e-6);
        }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_message_between_nodes),
        cmocka_unit_test(test_one_message_inside_a_node),
        cmocka_unit_test(test_reduction_while_it_comes_in),
        cmocka_unit_test(test_ring_is_the_closed_form),
        cmocka_unit_test(test_barrier_moves_nothing),
        cmocka_unit_test(test_chain_fills_and_drains),
        cmocka_unit_test(test_ranks_of_a_node_share_its_line),
        cmocka_unit_test(test_line_in_is_shared_too),
        cmocka_unit_test(test_nodes_of_a_rack_share_its_line),
        cmocka_unit_test(test_long_sends_wait_for_their_receives),
        cmocka_unit_test(test_ranks_share_cpus),
        cmocka_unit_test(test_work_for_the_network),
        cmocka_unit_test(test_nodes_share_cpus),
        cmocka_unit_test(test_ranks_share_memory),
        cmocka_unit_test(test_algorithms_symmetric),
        cmocka_unit_test(test_ranks_stand_for_others),
        cmocka_unit_test(test_all_algorithms_and_always_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
