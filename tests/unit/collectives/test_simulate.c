/* SPDX-License-Identifier: BSD-3-Clause */
/* Simulated times, compared with times that were computed by hand. */
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

/* Costs that are all 0, for a test to set some of them. */
static struct disti_cost no_costs(void)
{
    return (struct disti_cost){.eager_bytes = SIZE_MAX};
}

static void test_one_message_between_nodes(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
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

/* Links between NUMA nodes have their own costs; the receiver copies the data and reduces them
 * afterwards. */
static void test_one_message_inside_a_node(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
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

/* Data from another node are reduced while they arrive, so only the slower of the two counts. */
static void test_reduction_while_data_arrive(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
    cost.links[DISTI_OTHER_NODE] = (struct disti_link_cost){1e-5, 0, 1e9};
    cost.reduce_bytes_per_second = 4e9;
    assert_seconds(simulated("node:2", DIST_COLL_REDUCE, "binomial", 1, 1000000, &cost).seconds,
                   1e-5 + 1e-3);
    cost.reduce_bytes_per_second = 5e8;
    assert_seconds(simulated("node:2", DIST_COLL_REDUCE, "binomial", 1, 1000000, &cost).seconds,
                   1e-5 + 2e-3);
    /* A short vector is in a cache: 100000 / 5e8 / 3 is less than its time on the link. */
    assert_seconds(simulated("node:2", DIST_COLL_REDUCE, "binomial", 1, 100000, &cost).seconds,
                   1e-5 + 1e-4);
}

static void test_a_ring_matches_its_formula(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
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

/* ceil(log2 n) rounds of one latency each; no data are sent, whatever the number of bytes. */
static void test_barrier_moves_nothing(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
    cost.links[DISTI_OTHER_NODE] = (struct disti_link_cost){3e-6, 0, 1e9};
    struct disti_forecast f =
        simulated("node:9", DIST_COLL_BARRIER, "dissemination", 1, MIB, &cost);
    assert_seconds(f.seconds, 4 * 3e-6);
    assert_int_equal(f.links[DISTI_OTHER_NODE].messages, 4 * 9);
    assert_seconds(f.links[DISTI_OTHER_NODE].bytes, 0);
}

/* With a chain of n ranks and s segments, the time is n - 2 + s times that of one segment. */
static void test_a_chain_matches_its_formula(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
    cost.links[DISTI_OTHER_NODE].bytes_per_second = 1e9;
    struct disti_forecast f =
        simulated("node:6", DIST_COLL_BROADCAST, "chain", 10, 10 * 1000000, &cost);
    assert_seconds(f.seconds, (6 - 2 + 10) * 1e-3);
}

static void test_ranks_of_a_node_share_its_link(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
    cost.links[DISTI_OTHER_NODE].bytes_per_second = 1e9;
    double one = simulated("node:2", DIST_COLL_ALL_TO_ALL, "direct", 1, MIB, &cost).seconds;
    struct disti_forecast two =
        simulated("node:2 core:2", DIST_COLL_ALL_TO_ALL, "direct", 1, MIB, &cost);
    assert_seconds(one, (double)MIB / 1e9);
    assert_seconds(two.seconds, 4 * one); /* each of 2 ranks sends 2 blocks to the other node */
    assert_seconds(two.links[DISTI_OTHER_NODE].busiest, 1);
    assert_true(two.links[DISTI_OTHER_NODE].waited_s > 0);
}

/* All ranks send to one: the incoming link of its node is the bottleneck. Outgoing links have
 * capacity. */
static void test_an_incoming_link_is_shared(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
    cost.links[DISTI_OTHER_NODE].bytes_per_second = 1e9;
    struct disti_forecast f = simulated("node:5", DIST_COLL_GATHER, "direct", 1, MIB, &cost);
    assert_seconds(f.seconds, 4 * (double)MIB / 1e9);
    assert_seconds(f.links[DISTI_OTHER_NODE].waited_s, (1 + 2 + 3) * (double)MIB / 1e9);
}

/* Two messages share a rack's link of half the bandwidth; the message within the rack does not use
 * it. */
static void test_nodes_of_a_rack_share_its_link(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
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

/* Four messages of one lane: short ones are sent immediately, a long one only after the previous
 * one has been received. */
static void test_long_sends_wait_for_their_receives(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
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
    struct disti_cost cost = no_costs();
    cost.links[DISTI_SAME_NUMA].bytes_per_second = 1e9;
    cost.node_cpus = 3;
    const char *const all = "direct";
    double free = simulated("core:3", DIST_COLL_ALL_GATHER, all, 1, 1000000, &cost).seconds;
    cost.node_cpus = 1;
    double one = simulated("core:3", DIST_COLL_ALL_GATHER, all, 1, 1000000, &cost).seconds;
    cost.switch_s = 1e-3;
    double slow = simulated("core:3", DIST_COLL_ALL_GATHER, all, 1, 1000000, &cost).seconds;
    assert_seconds(free, 2e-3); /* each receives two blocks */
    assert_seconds(one, 6e-3);
    assert_true(slow > one + 2e-3 && slow < one + 20e-3);
}

/* Each piece is sent by a CPU, transferred, and received by a CPU; for a long message these
 * overlap. */
static void test_CPU_time_of_messages_between_nodes(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
    const double latency = 3e-5, piece = DISTI_NETWORK_PIECE * 1e-9;
    cost.network_bytes_per_second = 1e9;
    cost.links[DISTI_OTHER_NODE].latency_s = latency;
    const char *const way = "binomial", *const swap = "recursive_doubling";
    assert_seconds(simulated("node:2", DIST_COLL_BROADCAST, way, 1, 16384, &cost).seconds,
                   2 * piece + latency);
    assert_seconds(simulated("node:2", DIST_COLL_BROADCAST, way, 1, 1000000, &cost).seconds,
                   1e-3 + piece + latency);
    /* Both ranks first send and then receive, for long and short messages. */
    assert_seconds(simulated("node:2", DIST_COLL_ALL_REDUCE, swap, 1, 1000000, &cost).seconds,
                   2e-3);
    assert_seconds(simulated("node:2", DIST_COLL_ALL_REDUCE, swap, 1, 10000, &cost).seconds,
                   2e-5 + latency);
    /* If the link is slower than the CPUs, their time shows only for the first and the last
     * piece. */
    cost.links[DISTI_OTHER_NODE].bytes_per_second = 1e8;
    assert_seconds(simulated("node:2", DIST_COLL_BROADCAST, way, 1, 1000000, &cost).seconds,
                   piece + 1e-2 + latency + piece);
    /* Inside a node no network is used. */
    assert_seconds(simulated("core:2", DIST_COLL_BROADCAST, way, 1, 1000000, &cost).seconds, 0);
}

/* Nodes that share CPUs (containers): the CPU time of all their ranks adds up. */
static void test_nodes_share_cpus(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
    cost.links[DISTI_OTHER_NODE].overhead_s = 1e-6;
    const char *const name = "dissemination";
    double own = simulated("node:4", DIST_COLL_BARRIER, name, 1, 0, &cost).seconds;
    cost.all_cpus = 4;
    double enough = simulated("node:4", DIST_COLL_BARRIER, name, 1, 0, &cost).seconds;
    cost.all_cpus = 1;
    double one = simulated("node:4", DIST_COLL_BARRIER, name, 1, 0, &cost).seconds;
    double two = simulated("node:2 core:2", DIST_COLL_ALL_GATHER, "ring", 1, 8, &cost).seconds;
    assert_seconds(enough, own);
    assert_seconds(one, 2 * 4 * 2e-6); /* rounds, ranks, a send and a receive */
    assert_seconds(two, 3 * 2 * 2e-6); /* steps, 2 messages between nodes each */
}

static void test_ranks_share_memory_bandwidth(void **state)
{
    (void)state;
    struct disti_cost cost = no_costs();
    cost.links[DISTI_SAME_NUMA].bytes_per_second = 1e9;
    cost.node_bytes_per_second = 1.5e9;
    double f = simulated("core:3", DIST_COLL_ALL_GATHER, "direct", 1, 1000000, &cost).seconds;
    assert_seconds(f, 9e6 / 1.5e9); /* each receives two blocks and copies its own */
}

/* Topologies of identical nodes. In the last one (NULL), ranks are assigned to the nodes in
 * turn. */
static const char *const identical_nodes[] = {"node:2",
                                              "node:8",
                                              "node:2 core:3",
                                              "node:4 core:2",
                                              "node:5 core:3",
                                              "node:3 numa:2 core:2",
                                              "rack:2 node:2",
                                              "rack:3 node:2 core:2",
                                              "rack:2 node:3 core:3",
                                              NULL};

static struct disti_topology *identical_nodes_topology(size_t number)
{
    struct disti_topology *topology;
    struct dist_place round_robin[12];
    for (int r = 0; r < 12; r++)
        round_robin[r] = (struct dist_place){r % 4, -1, -1, r / 4, -1};
    if (identical_nodes[number])
        assert_int_equal(disti_topology_synthetic(identical_nodes[number], &topology), DIST_OK);
    else
        assert_int_equal(disti_topology_create(round_robin, 12, &topology), DIST_OK);
    return topology;
}
#define IDENTICAL_NODES (sizeof(identical_nodes) / sizeof(*identical_nodes))

/* Checks that the result is exactly the same if representative ranks are simulated instead of
 * all. */
static void compare_with_all_ranks(const struct disti_algorithm *algorithm,
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

/* For symmetric algorithms, not all plans are written. Checks that the result is the same as if
 * they were. */
static void test_results_of_symmetric_algorithms(void **state)
{
    (void)state;
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        for (size_t i = 0; a->symmetric && i < IDENTICAL_NODES * 2; i++) {
            struct disti_topology *topology = identical_nodes_topology(i % IDENTICAL_NODES);
            struct disti_shape shape = {.collective = a->collective,
                                        .ranks = topology->ranks,
                                        .segments = i / IDENTICAL_NODES ? 3 : 1,
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

static void test_representative_ranks_give_the_same_result(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1000, 100000, 12 * MIB};
    struct disti_cost costs[3] = {disti_cost_usual, disti_cost_usual, no_costs()};
    costs[1].node_cpus = 2;
    costs[2].links[DISTI_OTHER_NODE].bytes_per_second = 1e9; /* many events at the same time */
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        for (size_t i = 0; i < IDENTICAL_NODES * 4 * 3 * 2; i++) {
            struct disti_topology *topology = identical_nodes_topology(i % IDENTICAL_NODES);
            struct disti_shape shape = {.collective = a->collective,
                                        .ranks = topology->ranks,
                                        .segments = i / IDENTICAL_NODES / 12 ? 3 : 1,
                                        .topology = topology};
            compare_with_all_ranks(a, &shape, sizes[i / IDENTICAL_NODES % 4],
                                   &costs[i / IDENTICAL_NODES / 4 % 3]);
            disti_topology_free(topology);
        }
}

/* Every algorithm terminates, and a second simulation has the same result. */
static void test_every_algorithm_is_simulated_reproducibly(void **state)
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
        cmocka_unit_test(test_reduction_while_data_arrive),
        cmocka_unit_test(test_a_ring_matches_its_formula),
        cmocka_unit_test(test_barrier_moves_nothing),
        cmocka_unit_test(test_a_chain_matches_its_formula),
        cmocka_unit_test(test_ranks_of_a_node_share_its_link),
        cmocka_unit_test(test_an_incoming_link_is_shared),
        cmocka_unit_test(test_nodes_of_a_rack_share_its_link),
        cmocka_unit_test(test_long_sends_wait_for_their_receives),
        cmocka_unit_test(test_ranks_share_cpus),
        cmocka_unit_test(test_CPU_time_of_messages_between_nodes),
        cmocka_unit_test(test_nodes_share_cpus),
        cmocka_unit_test(test_ranks_share_memory_bandwidth),
        cmocka_unit_test(test_results_of_symmetric_algorithms),
        cmocka_unit_test(test_representative_ranks_give_the_same_result),
        cmocka_unit_test(test_every_algorithm_is_simulated_reproducibly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
