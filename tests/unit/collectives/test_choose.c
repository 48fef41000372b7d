/* SPDX-License-Identifier: BSD-3-Clause */
/* Choices by predicted time: held against a search of everything, and against the rules. */
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

/* What is chosen takes at most a tenth more than the best of all algorithms and cuts. */
static void test_near_the_best(void **state)
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
        /* A climb may end on a lower hill, a kept rule a tenth above it. */
        assert_true(mine <= best / 0.9 * 1.15);
        assert_true(mine <= chosen.rule.seconds);
        disti_topology_free(topology);
    }
}

/* The rules stay unless a tenth is gained, and the reason tells which it was. */
static void test_rules_stay(void **state)
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

/* It depends on the costs: where a message costs much, few are sent. */
static void test_costs_decide(void **state)
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

/* It has no rule: only what is predicted speaks for it. */
static void test_neighbour_exchange_is_predicted(void **state)
{
    (void)state;
    struct disti_tuning dear = usual; /* a message costs its ranks more than its way */
    dear.cost.links[DISTI_OTHER_NODE].latency_s = 1e-6;
    dear.cost.links[DISTI_OTHER_NODE].overhead_s = 10e-6;
    struct disti_chosen chosen = choose("node:6", &nothing, &dear, DIST_COLL_ALL_GATHER, 16 * KIB);
    assert_string_equal(chosen.best.algorithm->name, "neighbour_exchange");
    assert_int_equal(chosen.reason, DISTI_REASON_PREDICTED);
    assert_true(chosen.best.seconds < 0.9 * chosen.rule.seconds);
    chosen = choose("node:6", &nothing, &usual, DIST_COLL_ALL_GATHER, 16 * KIB);
    assert_string_not_equal(chosen.best.algorithm->name, "neighbour_exchange");
}

static void test_off(void **state)
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

static void test_said(void **state)
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
    /* It adds in an order of its own: not where results are reproducible. */
    chosen = choose("node:8", &ordered, &fixed, DIST_COLL_ALL_REDUCE, MIB);
    assert_true(chosen.best.algorithm->ordered);
    forced.forced[DIST_COLL_ALL_REDUCE] = disti_algorithm_find(DIST_COLL_ALL_REDUCE, "ring");
    chosen = choose("node:8", &forced, &fixed, DIST_COLL_ALL_REDUCE, MIB);
    assert_int_equal(chosen.reason, DISTI_REASON_FORCED);
    assert_string_equal(chosen.best.algorithm->name, "ring");
    assert_int_equal(chosen.best.segments, 7);
}

/* Whatever is predicted: in reproducible mode all that adds is ordered. */
static void test_reproducible(void **state)
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

static void test_hindrances(void **state)
{
    (void)state;
    assert_int_equal(choose("core:1", &nothing, &usual, DIST_COLL_REDUCE, 9).reason,
                     DISTI_REASON_RULE_SINGLE);
    assert_int_equal(choose("node:65", &nothing, &usual, DIST_COLL_REDUCE, 9).reason,
                     DISTI_REASON_RULE_RANKS);
    assert_int_equal(choose("node:5", &nothing, &usual, DIST_COLL_GATHER_V, 9).reason,
                     DISTI_REASON_RULE_BLIND);
}

static void test_classes(void **state)
{
    (void)state;
    assert_int_equal(disti_size_class(0), 0);
    assert_int_equal(disti_size_class_most(0), 0);
    for (int k = 0; k < 64; k++) {
        size_t edge = (size_t)1 << k;

        assert_int_equal(disti_size_class_most(disti_size_class(edge)), edge);
        if (k > 1)
            assert_int_equal(disti_size_class(edge - 1), disti_size_class(edge));
        if (k > 1)
            assert_int_equal(disti_size_class(edge + 1), disti_size_class(edge) + 1);
    }
    assert_true(disti_size_class(SIZE_MAX) < DISTI_SIZE_CLASSES);
    assert_true(disti_size_class_most(disti_size_class(SIZE_MAX)) == SIZE_MAX);
}

/* The first call of a class chooses as disti_choose does, and all others alike. */
static void test_remembers(void **state)
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
        cmocka_unit_test(test_near_the_best),
        cmocka_unit_test(test_rules_stay),
        cmocka_unit_test(test_costs_decide),
        cmocka_unit_test(test_off),
        cmocka_unit_test(test_neighbour_exchange_is_predicted),
        cmocka_unit_test(test_said),
        cmocka_unit_test(test_reproducible),
        cmocka_unit_test(test_hindrances),
        cmocka_unit_test(test_classes),
        cmocka_unit_test(test_remembers),
    };

    disti_tuning_usual(&usual);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
