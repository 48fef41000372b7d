/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection by predicted time, compared with an exhaustive search and with the rules. */
#include "base/clock.h"
#include "topology/topology.h"
#include "tuning/choose.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static const struct disti_choice nothing;
static struct disti_tuning usual;

static struct disti_topology *topology_of(const char *text)
{
    struct disti_topology *topology = NULL;

    assert_int_equal(disti_topology_synthetic(text, &topology), DIST_OK);
    return topology;
}

static struct disti_chosen choose(const char *text, const struct disti_choice *choice,
                                  const struct disti_tuning *tuning, dist_collective collective,
                                  size_t bytes)
{
    struct disti_topology *topology = topology_of(text);
    struct disti_chosen chosen;

    disti_choose(choice, tuning, topology, collective, bytes, &chosen);
    assert_int_equal(chosen.best.algorithm->collective, collective);
    assert_true(chosen.best.segments >= 1);
    disti_topology_free(topology);
    return chosen;
}

static double seconds_of(const struct disti_topology *topology,
                         const struct disti_algorithm *algorithm, uint32_t segments, size_t bytes)
{
    const struct disti_shape shape = {.collective = algorithm->collective,
                                      .ranks = topology->ranks,
                                      .segments = segments,
                                      .topology = topology};
    double seconds = -1;

    assert_int_equal(disti_simulate(algorithm, &shape, bytes, &usual.cost, &seconds), DIST_OK);
    return seconds;
}

/* The selected algorithm is at most slightly slower than the best of all algorithms and numbers of
 * segments. */
static void test_the_selection_is_nearly_the_best(void **state)
{
    static const char *const texts[] = {"core:2", "core:4", "node:4", "node:2 core:3"};
    static const dist_collective collectives[] = {DIST_COLL_ALL_REDUCE, DIST_COLL_BROADCAST,
                                                  DIST_COLL_ALL_GATHER_V, DIST_COLL_REDUCE};
    static const size_t sizes[] = {8, 64 * KIB, MIB};

    (void)state;
    for (size_t i = 0; i < 4 * 4 * 3; i++) {
        const char *text = texts[i % 4];
        dist_collective collective = collectives[i / 4 % 4];
        size_t bytes = sizes[i / 16];
        struct disti_chosen chosen = choose(text, &nothing, &usual, collective, bytes);
        struct disti_topology *topology = topology_of(text);
        double best = 1e9, mine;

        for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
            for (uint32_t segments = 1; a->collective == collective && segments <= 16;
                 segments *= 2) {
                double seconds = seconds_of(topology, a, segments, bytes);

                best = seconds < best ? seconds : best;
            }
        }
        mine = seconds_of(topology, chosen.best.algorithm, chosen.best.segments, bytes);
        /* hill climbing may find a local optimum, and a rule is kept if it is at most a tenth
         * slower */
        assert_true(mine <= best / 0.9 * 1.15);
        assert_true(mine <= chosen.rule.seconds);
        disti_topology_free(topology);
    }
}

/* The algorithm of the rule is kept unless the predicted gain is a tenth; the reason names which of
 * the two was selected. */
static void test_rules_are_kept_unless_a_tenth_is_gained(void **state)
{
    static const char *const texts[] = {"core:4", "node:5", "node:2 core:2", "node:16"};

    (void)state;
    for (int t = 0; t < 4; t++) {
        for (int c = 0; c < DIST_COLL_SEND; c++) {
            for (size_t bytes = 1; bytes <= MIB; bytes *= 32) {
                struct disti_chosen chosen =
                    choose(texts[t], &nothing, &usual, (dist_collective)c, bytes);
                bool same = chosen.best.algorithm == chosen.rule.algorithm &&
                            chosen.best.segments == chosen.rule.segments;

                if (chosen.reason == DISTI_REASON_PREDICTED)
                    assert_true(chosen.best.seconds < 0.9 * chosen.rule.seconds);
                else
                    assert_true(same);
                assert_true(chosen.reason == DISTI_REASON_PREDICTED ||
                            chosen.reason == DISTI_REASON_RULE_NEAR ||
                            chosen.reason == DISTI_REASON_RULE_STEPS ||
                            chosen.reason == DISTI_REASON_RULE_BLIND);
            }
        }
    }
}

/* The selection depends on the costs: if messages are expensive, it uses few. */
static void test_the_selection_depends_on_costs(void **state)
{
    struct disti_tuning slow = usual, fast = usual;
    struct disti_chosen few, many;

    (void)state;
    slow.cost.links[DISTI_OTHER_NODE].latency_s = 5e-3;
    slow.cost.links[DISTI_OTHER_NODE].overhead_s = 1e-3;
    fast.cost.links[DISTI_OTHER_NODE].latency_s = 1e-7;
    fast.cost.links[DISTI_OTHER_NODE].overhead_s = 1e-9;
    fast.cost.links[DISTI_OTHER_NODE].bytes_per_second = 1e8;
    few = choose("node:8", &nothing, &slow, DIST_COLL_ALL_REDUCE, MIB);
    many = choose("node:8", &nothing, &fast, DIST_COLL_ALL_REDUCE, MIB);
    assert_string_not_equal(few.best.algorithm->name, "ring");
    assert_true(few.best.algorithm != many.best.algorithm ||
                few.best.segments != many.best.segments);
}

/* neighbour_exchange has no rule, so only a prediction can select it. */
static void test_a_prediction_can_select_an_algorithm_without_rule(void **state)
{
    (void)state;
    struct disti_tuning expensive = usual; /* the overhead of a message exceeds its latency */
    expensive.cost.links[DISTI_OTHER_NODE].latency_s = 1e-6;
    expensive.cost.links[DISTI_OTHER_NODE].overhead_s = 10e-6;
    struct disti_chosen chosen =
        choose("node:6", &nothing, &expensive, DIST_COLL_ALL_GATHER, 16 * KIB);
    assert_string_equal(chosen.best.algorithm->name, "neighbour_exchange");
    assert_int_equal(chosen.reason, DISTI_REASON_PREDICTED);
    assert_true(chosen.best.seconds < 0.9 * chosen.rule.seconds);
    chosen = choose("node:6", &nothing, &usual, DIST_COLL_ALL_GATHER, 16 * KIB);
    assert_string_not_equal(chosen.best.algorithm->name, "neighbour_exchange");
}

static void test_without_prediction_the_rules_apply(void **state)
{
    struct disti_tuning off = usual;

    (void)state;
    off.predict = 0;
    for (size_t bytes = 0; bytes <= MIB; bytes = bytes * 8 + 1) {
        struct disti_chosen chosen = choose("node:8", &nothing, &off, DIST_COLL_ALL_REDUCE, bytes);

        assert_int_equal(chosen.reason, DISTI_REASON_RULE_OFF);
        assert_ptr_equal(chosen.best.algorithm, chosen.rule.algorithm);
        assert_int_equal(chosen.count, 0);
    }
}

static void test_fixed_and_forced_algorithms_are_used(void **state)
{
    struct disti_tuning fixed = usual;
    struct disti_choice forced = {.forced_segments = 7};
    struct disti_choice ordered = {.reproducible = true};
    struct disti_chosen chosen;
    char why[256];

    (void)state;
    assert_int_equal(disti_tuning_parse("libdist tuning 1\nall_reduce bytes<=1M: tree segments 3\n",
                                        "FILE", NULL, &fixed, why, sizeof(why)),
                     DIST_OK);
    chosen = choose("node:8", &nothing, &fixed, DIST_COLL_ALL_REDUCE, MIB);
    assert_int_equal(chosen.reason, DISTI_REASON_FIXED);
    assert_string_equal(chosen.best.algorithm->name, "tree");
    assert_int_equal(chosen.best.segments, 3);
    chosen = choose("node:8", &nothing, &fixed, DIST_COLL_ALL_REDUCE, MIB + 1);
    assert_int_not_equal(chosen.reason, DISTI_REASON_FIXED);
    /* tree has its own order of additions, so it is not used for reproducible results */
    chosen = choose("node:8", &ordered, &fixed, DIST_COLL_ALL_REDUCE, MIB);
    assert_true(chosen.best.algorithm->ordered);
    forced.forced[DIST_COLL_ALL_REDUCE] = disti_algorithm_find(DIST_COLL_ALL_REDUCE, "ring");
    chosen = choose("node:8", &forced, &fixed, DIST_COLL_ALL_REDUCE, MIB);
    assert_int_equal(chosen.reason, DISTI_REASON_FORCED);
    assert_string_equal(chosen.best.algorithm->name, "ring");
    assert_int_equal(chosen.best.segments, 7);
}

/* In reproducible mode, all reducing algorithms are ordered, whatever is predicted. */
static void test_reproducible_mode_selects_ordered_algorithms(void **state)
{
    const struct disti_choice ordered = {.reproducible = true};
    static const char *const texts[] = {"core:5", "node:5", "node:3 core:2"};

    (void)state;
    for (int t = 0; t < 3; t++) {
        for (int c = 0; c < DIST_COLL_SEND; c++) {
            for (size_t bytes = 1; bytes <= MIB; bytes *= 16) {
                struct disti_chosen chosen =
                    choose(texts[t], &ordered, &usual, (dist_collective)c, bytes);

                if (!disti_algorithm_reduces((dist_collective)c))
                    continue;
                assert_true(chosen.best.algorithm->ordered);
                for (int i = 0; i < chosen.count; i++)
                    assert_true(chosen.candidates[i].algorithm->ordered);
            }
        }
    }
}

static void test_rules_apply_if_prediction_is_impossible(void **state)
{
    (void)state;
    assert_int_equal(choose("core:1", &nothing, &usual, DIST_COLL_REDUCE, 9).reason,
                     DISTI_REASON_RULE_SINGLE);
    assert_int_equal(choose("node:65", &nothing, &usual, DIST_COLL_REDUCE, 9).reason,
                     DISTI_REASON_RULE_RANKS);
    assert_int_equal(choose("node:5", &nothing, &usual, DIST_COLL_GATHER_V, 9).reason,
                     DISTI_REASON_RULE_BLIND);
}

static void test_size_classes_are_powers_of_two(void **state)
{
    (void)state;
    assert_int_equal(disti_size_class(0), 0);
    assert_int_equal(disti_size_class_max(0), 0);
    for (int k = 0; k < 64; k++) {
        size_t edge = (size_t)1 << k;

        assert_int_equal(disti_size_class_max(disti_size_class(edge)), edge);
        if (k > 1)
            assert_int_equal(disti_size_class(edge - 1), disti_size_class(edge));
        if (k > 1)
            assert_int_equal(disti_size_class(edge + 1), disti_size_class(edge) + 1);
    }
    assert_true(disti_size_class(SIZE_MAX) < DISTI_SIZE_CLASSES);
    assert_true(disti_size_class_max(disti_size_class(SIZE_MAX)) == SIZE_MAX);
}

/* The first call of a size class is selected like disti_choose, and later calls of the class use
 * the same algorithm. */
static void test_a_size_class_keeps_its_selection(void **state)
{
    struct disti_chooser *chooser = calloc(1, sizeof(*chooser));
    struct disti_topology *topology = topology_of("node:4 core:4");

    (void)state;
    assert_non_null(chooser);
    chooser->choice = &nothing;
    chooser->tuning = &usual;
    chooser->topology = topology;
    for (size_t edge = 16; edge <= 16 * MIB; edge *= 16) {
        const struct disti_algorithm *first, *second;
        uint32_t segments, again;
        struct disti_chosen chosen;

        disti_chooser_pick(chooser, DIST_COLL_ALL_GATHER, edge - 1, &first, &segments);
        disti_chooser_pick(chooser, DIST_COLL_ALL_GATHER, edge, &second, &again);
        disti_choose(&nothing, &usual, topology, DIST_COLL_ALL_GATHER, edge, &chosen);
        assert_ptr_equal(first, second);
        assert_int_equal(segments, again);
        assert_ptr_equal(first, chosen.best.algorithm);
        assert_int_equal(segments, chosen.best.segments);
    }
    disti_topology_free(topology);
    free(chooser);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_selection_is_nearly_the_best),
        cmocka_unit_test(test_rules_are_kept_unless_a_tenth_is_gained),
        cmocka_unit_test(test_the_selection_depends_on_costs),
        cmocka_unit_test(test_without_prediction_the_rules_apply),
        cmocka_unit_test(test_a_prediction_can_select_an_algorithm_without_rule),
        cmocka_unit_test(test_fixed_and_forced_algorithms_are_used),
        cmocka_unit_test(test_reproducible_mode_selects_ordered_algorithms),
        cmocka_unit_test(test_rules_apply_if_prediction_is_impossible),
        cmocka_unit_test(test_size_classes_are_powers_of_two),
        cmocka_unit_test(test_a_size_class_keeps_its_selection),
    };

    disti_tuning_usual(&usual);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
