/* SPDX-License-Identifier: BSD-3-Clause */
/* Orders and rings: each node is entered once, whatever the numbers in the places. */
#include "topology/topology.h"

#include "../base/unit.h"

#include <stdlib.h>
#include <string.h>

/* Checks the invariants of a topology. */
static void topology_check(const struct disti_topology *topology)
{
    int first = -1;

    assert_int_equal(topology->node_first[0], 0);
    assert_int_equal(topology->node_first[topology->nodes], topology->ranks);
    for (int node = 0; node < topology->nodes; node++) {
        int lowest = topology->ranks;

        assert_true(disti_node_size(topology, node) >= 1);
        for (int i = 0; i < disti_node_size(topology, node); i++) {
            int rank = disti_node_member(topology, node, i);

            assert_int_equal(disti_node_of(topology, rank), node);
            lowest = rank < lowest ? rank : lowest;
        }
        assert_true(lowest > first); /* nodes are numbered in rank order */
        first = lowest;
    }
    for (int rank = 0; rank < topology->ranks; rank++) {
        assert_int_equal(topology->order[topology->position[rank]], rank);
        assert_int_equal(disti_ring_previous(topology, disti_ring_next(topology, rank)), rank);
    }
}

/* Returns how many times the ring crosses from one node to another. */
static int ring_crossings(const struct disti_topology *topology)
{
    int crossings = 0, rank = 0;

    for (int i = 0; i < topology->ranks; i++) {
        int next = disti_ring_next(topology, rank);

        crossings += disti_node_of(topology, rank) != disti_node_of(topology, next);
        rank = next;
    }
    assert_int_equal(rank, 0); /* the ring is closed */
    return crossings;
}

static void ring_visits_all(const struct disti_topology *topology)
{
    int *seen = calloc((size_t)topology->ranks, sizeof(*seen));

    assert_non_null(seen);
    for (int i = 0, rank = 0; i < topology->ranks; i++, rank = disti_ring_next(topology, rank))
        assert_int_equal(seen[rank]++, 0);
    free(seen);
}

static void test_rings_enter_each_node_once(void **state)
{
    uint64_t random = 7;

    (void)state;
    for (int trial = 0; trial < 400; trial++) {
        struct dist_place places[48];
        struct disti_topology *topology = NULL;
        int ranks = 1 + (int)(unit_random(&random) % 48), spread = 1 + trial % 9;

        for (int rank = 0; rank < ranks; rank++)
            places[rank] =
                (struct dist_place){.node = (int32_t)(unit_random(&random) % spread) * 1000 - 1,
                                    .package = (int32_t)(unit_random(&random) % 2),
                                    .numa = (int32_t)(unit_random(&random) % 3) - 1,
                                    .core = (int32_t)(unit_random(&random) % 4),
                                    .gpu = -1};
        assert_int_equal(disti_topology_create(places, ranks, &topology), DIST_OK);
        topology_check(topology);
        ring_visits_all(topology);
        assert_int_equal(ring_crossings(topology), topology->nodes == 1 ? 0 : topology->nodes);
        disti_topology_free(topology);
    }
}

static void test_ranks_of_a_node_are_ordered_by_place(void **state)
{
    const struct dist_place places[] = {
        {5, 1, 1, 3, -1}, {9, 0, 0, 0, -1}, {5, 0, 0, 1, -1}, {5, 1, 1, 2, -1},
        {9, 0, 0, 0, -1}, {5, 0, 1, 0, -1}, {5, 0, 0, 0, -1},
    };
    static const int order[] = {6, 2, 5, 3, 0, 1, 4};
    struct disti_topology *topology = NULL;

    (void)state;
    assert_int_equal(disti_topology_create(places, 7, &topology), DIST_OK);
    topology_check(topology);
    assert_int_equal(topology->nodes, 2);
    assert_memory_equal(topology->order, order, sizeof(order));
    assert_false(topology->uniform);
    disti_topology_free(topology);
}

static void test_synthetic_topologies_are_parsed(void **state)
{
    struct disti_topology *topology = NULL;

    (void)state;
    assert_int_equal(disti_topology_synthetic("node:4 package:2 core:8", &topology), DIST_OK);
    topology_check(topology);
    assert_int_equal(topology->ranks, 64);
    assert_int_equal(topology->nodes, 4);
    assert_true(topology->uniform);
    assert_int_equal(topology->localities[63].node, 3);
    assert_int_equal(topology->localities[63].package, 1);
    assert_int_equal(topology->localities[63].numa, -1);
    assert_int_equal(topology->localities[63].core, 7);
    assert_int_equal(topology->localities[16].core, 0);
    assert_int_equal(topology->localities[16].node, 1);
    disti_topology_free(topology);
    assert_int_equal(disti_topology_synthetic("  numa:3  core:2 ", &topology), DIST_OK);
    assert_int_equal(topology->ranks, 6);
    assert_int_equal(topology->nodes, 1);
    assert_int_equal(topology->localities[5].numa, 2);
    assert_int_equal(topology->rack_nodes, 0);
    disti_topology_free(topology);
    assert_int_equal(disti_topology_synthetic("rack:3 node:2 core:4", &topology), DIST_OK);
    topology_check(topology);
    assert_int_equal(topology->nodes, 6);
    assert_int_equal(topology->rack_nodes, 2);
    assert_int_equal(topology->localities[23].node, 5);
    assert_int_equal(topology->localities[8].node, 2);
    disti_topology_free(topology);
    assert_int_equal(disti_topology_synthetic("rack:3 core:4", &topology), DIST_OK);
    assert_int_equal(topology->nodes, 3);
    assert_int_equal(topology->rack_nodes, 1);
    disti_topology_free(topology);
}

static void test_a_flat_topology_is_one_node(void **state)
{
    struct disti_topology *topology = NULL;

    (void)state;
    assert_int_equal(disti_topology_flat(5, &topology), DIST_OK);
    topology_check(topology);
    for (int rank = 0; rank < 5; rank++)
        assert_int_equal(topology->order[rank], rank);
    assert_int_equal(topology->nodes, 1);
    disti_topology_free(topology);
}

static void test_bad_topologies_are_rejected(void **state)
{
    static const char *const bad[] = {
        "",
        " ",
        "node",
        "node:",
        "node:0",
        "node:-1",
        "node:x",
        "node:2x",
        "node: 2",
        "row:2",
        "node:2 rack:2",
        "core:2 node:2",
        "core:2 core:2",
        "node:2,core:2",
        ":4",
        "node:2 package:",
        "core:99999999999999999999",
        "node:100000 core:100000",
        "node:1048576 package:1048576 core:1048576",
        "nodes:2",
        "nod:2",
    };
    struct disti_topology *topology = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(disti_topology_synthetic(bad[i], &topology), DIST_ERR_INVALID_ARGUMENT);
        assert_null(topology);
        assert_non_null(strstr(dist_last_error(), "node:4 package:2 core:8"));
    }
    assert_int_equal(disti_topology_flat(0, &topology), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(disti_topology_create(NULL, 0, &topology), DIST_ERR_INVALID_ARGUMENT);
    assert_null(topology);
    disti_topology_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rings_enter_each_node_once),
        cmocka_unit_test(test_ranks_of_a_node_are_ordered_by_place),
        cmocka_unit_test(test_synthetic_topologies_are_parsed),
        cmocka_unit_test(test_a_flat_topology_is_one_node),
        cmocka_unit_test(test_bad_topologies_are_rejected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
