/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection: forced algorithms, rejected settings, and the rules. */
#include "topology/topology.h"
#include "tuning/choose.h"

#include "../base/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static void test_DIST_ALGO_is_parsed(void **state)
{
    struct disti_choice choice;

    (void)state;
    memset(&choice, 0xff, sizeof(choice));
    assert_int_equal(disti_choice_parse(NULL, false, &choice), DIST_OK);
    for (int c = 0; c < DIST_COLL_COUNT; c++)
        assert_null(choice.forced[c]);
    assert_int_equal(choice.forced_segments, 0);
    assert_int_equal(disti_choice_parse("", false, &choice), DIST_OK);
    assert_null(choice.forced[DIST_COLL_ALL_REDUCE]);
    assert_int_equal(disti_choice_parse("all_reduce:ring,broadcast:chain", false, &choice),
                     DIST_OK);
    assert_string_equal(choice.forced[DIST_COLL_ALL_REDUCE]->name, "ring");
    assert_string_equal(choice.forced[DIST_COLL_BROADCAST]->name, "chain");
    assert_null(choice.forced[DIST_COLL_BARRIER]);
    assert_int_equal(disti_choice_parse("barrier:tree", false, &choice), DIST_OK);
    assert_int_equal(choice.forced[DIST_COLL_BARRIER]->collective, DIST_COLL_BARRIER);
    assert_null(choice.forced[DIST_COLL_ALL_REDUCE]);
}

/* Each algorithm of the table can be forced by its name, and the error lists that name. */
static void test_every_algorithm_can_be_forced(void **state)
{
    struct disti_choice choice;

    (void)state;
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        char item[64];

        snprintf(item, sizeof(item), "%s:%s", dist_collective_string(a->collective), a->name);
        assert_int_equal(disti_choice_parse(item, false, &choice), DIST_OK);
        assert_ptr_equal(choice.forced[a->collective], a);
        disti_choice_parse("nonsense", false, &choice);
        assert_non_null(strstr(dist_last_error(), item));
    }
}

static void test_bad_values_of_DIST_ALGO_are_rejected(void **state)
{
    static const char *const bad[] = {
        "ring",
        "all_reduce",
        "all_reduce:",
        ":ring",
        "all_reduce:rin",
        "all_reduce:rings",
        "all_reduce:chain",
        "all_reduce:ring,",
        ",all_reduce:ring",
        "all_reduce:ring;barrier:tree",
        " all_reduce:ring",
        "all_reduce: ring",
        "ALL_REDUCE:RING",
        ",",
    };
    struct disti_choice choice = {.forced_segments = 77};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(disti_choice_parse(bad[i], false, &choice), DIST_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(dist_last_error(), "DIST_ALGO"));
        assert_non_null(strstr(dist_last_error(), "all_gather:direct"));
    }
    assert_int_equal(choice.forced_segments, 77); /* unchanged */
}

static void test_DIST_SEGMENTS_is_parsed(void **state)
{
    static const char *const bad[] = {"-1", "0", "1025", "x", "4x"};
    struct disti_choice choice = {.forced_segments = 77};

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        setenv("DIST_SEGMENTS", bad[i], 1);
        assert_int_equal(disti_choice_parse(NULL, false, &choice), DIST_ERR_INVALID_ARGUMENT);
        assert_non_null(strstr(dist_last_error(), "DIST_SEGMENTS"));
    }
    assert_int_equal(choice.forced_segments, 77);
    setenv("DIST_SEGMENTS", "12", 1);
    assert_int_equal(disti_choice_parse(NULL, false, &choice), DIST_OK);
    assert_int_equal(choice.forced_segments, 12);
    unsetenv("DIST_SEGMENTS");
}

static void expect_selection(const char *topology_text, dist_collective collective, size_t bytes,
                             const char *algorithm, uint32_t segments)
{
    static const struct disti_choice nothing;
    const struct disti_algorithm *got = NULL;
    struct disti_topology *topology = NULL;
    uint32_t got_segments = 0;

    assert_int_equal(disti_topology_synthetic(topology_text, &topology), DIST_OK);
    disti_select(&nothing, collective, bytes, topology, &got, &got_segments);
    assert_int_equal(got->collective, collective);
    assert_string_equal(got->name, algorithm);
    assert_int_equal(got_segments, segments);
    disti_topology_free(topology);
}

static void test_rules_for_whole_vectors(void **state)
{
    (void)state;
    expect_selection("core:8", DIST_COLL_ALL_REDUCE, 0, "recursive_doubling", 1);
    expect_selection("core:8", DIST_COLL_ALL_REDUCE, 8 * KIB, "recursive_doubling", 1);
    expect_selection("core:8", DIST_COLL_ALL_REDUCE, 8 * KIB + 1, "direct", 1);
    expect_selection("core:8", DIST_COLL_ALL_REDUCE, 1 * MIB, "direct",
                     1); /* a block is one segment */
    expect_selection("core:8", DIST_COLL_ALL_REDUCE, 16 * MIB, "direct", 16);
    expect_selection("core:8", DIST_COLL_ALL_REDUCE, SIZE_MAX, "direct", 64);
    expect_selection("node:4 core:8", DIST_COLL_ALL_REDUCE, 8, "tree", 1);
    expect_selection("node:4 core:8", DIST_COLL_ALL_REDUCE, 1 * MIB, "hierarchical", 1);
    expect_selection("node:4", DIST_COLL_ALL_REDUCE, 8, "recursive_doubling", 1);
    expect_selection("node:4", DIST_COLL_ALL_REDUCE, 256 * KIB, "halving_doubling", 1);
    expect_selection("node:4", DIST_COLL_ALL_REDUCE, 16 * MIB, "ring", 2);
    expect_selection("node:4", DIST_COLL_ALL_REDUCE, 16 * MIB + 8, "ring", 4);
    expect_selection("core:8", DIST_COLL_BROADCAST, 1 * KIB, "binomial", 1);
    expect_selection("core:8", DIST_COLL_BROADCAST, 1 * MIB, "chain", 8);
    expect_selection("core:17", DIST_COLL_BROADCAST, 1 * MIB, "tree", 4);
    expect_selection("node:3", DIST_COLL_BARRIER, 0, "dissemination", 1);
    expect_selection("core:8", DIST_COLL_ALL_GATHER, 1 * MIB, "direct", 1);
    expect_selection("node:8", DIST_COLL_ALL_GATHER, 64, "direct", 1);
    expect_selection("node:8", DIST_COLL_ALL_GATHER, 1 * MIB, "ring", 1);
}

static void test_rules_for_blocks(void **state)
{
    (void)state;
    expect_selection("core:8", DIST_COLL_REDUCE, 1 * KIB, "binomial", 1);
    expect_selection("core:8", DIST_COLL_REDUCE, 16 * MIB, "scatter_gather", 16);
    expect_selection("node:8", DIST_COLL_REDUCE, 1 * MIB, "chain", 8);
    expect_selection("node:4 core:8", DIST_COLL_REDUCE, 1 * MIB, "tree", 4);
    expect_selection("core:9", DIST_COLL_ALL_GATHER, 64, "bruck", 1);
    expect_selection("core:8", DIST_COLL_REDUCE_SCATTER, 64, "direct", 1);
    expect_selection("core:9", DIST_COLL_REDUCE_SCATTER, 64, "recursive_halving", 1);
    expect_selection("core:9", DIST_COLL_REDUCE_SCATTER, 1 * MIB, "direct", 8);
    expect_selection("node:4 core:2", DIST_COLL_REDUCE_SCATTER, 4 * KIB, "hierarchical", 1);
    expect_selection("node:8", DIST_COLL_REDUCE_SCATTER, 4 * KIB, "recursive_halving", 1);
    expect_selection("node:8", DIST_COLL_REDUCE_SCATTER, 4 * MIB, "ring", 2);
    expect_selection("node:4 core:3", DIST_COLL_ALL_GATHER, 1 * KIB, "bruck", 1);
    expect_selection("node:4 core:3", DIST_COLL_ALL_GATHER, 1 * MIB, "hierarchical", 8);
    expect_selection("core:8", DIST_COLL_GATHER, 64, "direct", 1);
    expect_selection("core:9", DIST_COLL_GATHER, 64, "binomial", 1);
    expect_selection("core:9", DIST_COLL_GATHER, 1 * MIB, "direct", 1);
    expect_selection("core:9", DIST_COLL_SCATTER, 1 * KIB, "binomial", 1);
    expect_selection("core:9", DIST_COLL_SCATTER, 1 * KIB + 1, "direct", 1);
    expect_selection("core:8", DIST_COLL_ALL_TO_ALL, 256, "direct", 1);
    expect_selection("core:9", DIST_COLL_ALL_TO_ALL, 256, "bruck", 1);
    expect_selection("core:9", DIST_COLL_ALL_TO_ALL, 257, "direct", 1);
    expect_selection("core:33", DIST_COLL_ALL_TO_ALL, 257, "pairwise", 1);
    expect_selection("node:3", DIST_COLL_ALL_GATHER_V, 8 * MIB, "ring", 4);
    expect_selection("core:3", DIST_COLL_REDUCE_SCATTER_V, 1 * MIB, "direct", 8);
}

/* In irregular calls ranks may have different sizes, so the size must not affect the choice. */
static void test_rules_for_irregular_calls_ignore_the_size(void **state)
{
    static const dist_collective blind[] = {DIST_COLL_GATHER_V, DIST_COLL_SCATTER_V,
                                            DIST_COLL_ALL_TO_ALL_V};
    static const char *const names[] = {"direct", "direct", "pairwise"};

    (void)state;
    for (int i = 0; i < 3; i++)
        for (size_t bytes = 0; bytes <= 64 * MIB; bytes = bytes * 4 + 1)
            expect_selection("node:8 core:8", blind[i], bytes, names[i], 1);
}

/* ---- reproducible results ---- */

static const dist_collective reducing[] = {DIST_COLL_ALL_REDUCE, DIST_COLL_REDUCE,
                                           DIST_COLL_REDUCE_SCATTER, DIST_COLL_REDUCE_SCATTER_V};

/* For any size and placement, a reducing collective selects an ordered algorithm. */
static void test_reproducible_selections_are_ordered(void **state)
{
    static const char *const topologies[] = {"core:1", "core:5", "node:5", "node:3 core:2"};
    const struct disti_choice choice = {.reproducible = true};

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        struct disti_topology *topology = NULL;

        assert_int_equal(disti_topology_synthetic(topologies[t], &topology), DIST_OK);
        for (size_t bytes = 0; bytes < 1024 * MIB; bytes = bytes * 3 + 1) {
            for (int c = 0; c < DIST_COLL_SEND; c++) {
                const struct disti_algorithm *got = NULL, *other = NULL;
                static const struct disti_choice nothing;
                uint32_t segments = 0;

                disti_select(&choice, (dist_collective)c, bytes, topology, &got, &segments);
                disti_select(&nothing, (dist_collective)c, bytes, topology, &other, &segments);
                assert_int_equal(got->collective, c);
                assert_true(got->ordered || got == other);
                for (int r = 0; r < 4; r++)
                    assert_true(got->ordered || c != (int)reducing[r]);
            }
        }
        disti_topology_free(topology);
    }
}

static void test_unordered_algorithms_cannot_be_forced_if_reproducible(void **state)
{
    struct disti_choice choice = {.forced_segments = 77};

    (void)state;
    assert_int_equal(disti_choice_parse("all_reduce:ring", true, &choice),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(choice.forced_segments, 77);
    assert_non_null(
        strstr(dist_last_error(), "all_reduce:ring does not give reproducible results"));
    assert_non_null(strstr(dist_last_error(), "all_reduce:direct_ordered"));
    assert_non_null(strstr(dist_last_error(), "all_reduce:halving_doubling"));
    assert_null(strstr(dist_last_error(), "all_reduce:tree"));
    assert_null(strstr(dist_last_error(), "reduce_scatter"));
    assert_int_equal(disti_choice_parse("reduce_scatter:rong", true, &choice),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_null(strstr(dist_last_error(), "reduce_scatter:ring"));
    assert_non_null(strstr(dist_last_error(), "reduce_scatter:direct_ordered"));
    assert_non_null(strstr(dist_last_error(), "all_gather:ring")); /* it does not reduce */
    assert_int_equal(
        disti_choice_parse("all_gather:ring,all_reduce:recursive_doubling", true, &choice),
        DIST_OK);
    assert_true(choice.reproducible);
    assert_string_equal(choice.forced[DIST_COLL_ALL_REDUCE]->name, "recursive_doubling");
    assert_string_equal(choice.forced[DIST_COLL_ALL_GATHER]->name, "ring");
}

/* Each call gets an algorithm of its collective, and a forced algorithm is used. */
static void test_an_algorithm_is_always_selected(void **state)
{
    static const char *const topologies[] = {"core:1", "core:5", "node:5", "node:3 core:2"};
    struct disti_choice forced = {.forced_segments = 3};

    (void)state;
    for (size_t t = 0; t < 4; t++) {
        struct disti_topology *topology = NULL;

        assert_int_equal(disti_topology_synthetic(topologies[t], &topology), DIST_OK);
        for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
            const struct disti_algorithm *got = NULL;
            uint32_t segments = 0;

            forced.forced[a->collective] = a;
            disti_select(&forced, a->collective, 123456789, topology, &got, &segments);
            assert_ptr_equal(got, a);
            assert_int_equal(segments, 3);
            forced.forced[a->collective] = NULL;
            disti_select(&forced, a->collective, 123456789, topology, &got, &segments);
            assert_int_equal(got->collective, a->collective);
        }
        disti_topology_free(topology);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_DIST_ALGO_is_parsed),
        cmocka_unit_test(test_every_algorithm_can_be_forced),
        cmocka_unit_test(test_bad_values_of_DIST_ALGO_are_rejected),
        cmocka_unit_test(test_DIST_SEGMENTS_is_parsed),
        cmocka_unit_test(test_rules_for_whole_vectors),
        cmocka_unit_test(test_rules_for_blocks),
        cmocka_unit_test(test_rules_for_irregular_calls_ignore_the_size),
        cmocka_unit_test(test_an_algorithm_is_always_selected),
        cmocka_unit_test(test_reproducible_selections_are_ordered),
        cmocka_unit_test(test_unordered_algorithms_cannot_be_forced_if_reproducible),
    };

    unsetenv("DIST_SEGMENTS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
