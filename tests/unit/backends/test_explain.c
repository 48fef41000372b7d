/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_explain: its answer is the choice of an engine, and invalid questions are rejected. */
#include "topology/topology.h"
#include "tuning/choose.h"

#include <dist/backend.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CANDIDATES 80

static struct dist_candidate candidates[CANDIDATES];
static struct dist_explanation explanation;

static dist_status ask(dist_collective collective, size_t bytes, int ranks, const char *topology)
{
    const struct dist_question question = {.size = sizeof(question),
                                           .collective = collective,
                                           .bytes = bytes,
                                           .ranks = ranks,
                                           .topology = topology};

    memset(&explanation, 0, sizeof(explanation));
    explanation.size = sizeof(explanation);
    return dist_explain(&question, candidates, CANDIDATES, &explanation);
}

static const struct dist_candidate *chosen_one(void)
{
    const struct dist_candidate *chosen = NULL;

    for (int i = 0; i < explanation.candidates; i++) {
        if (!candidates[i].chosen)
            continue;
        assert_null(chosen);
        chosen = &candidates[i];
    }
    assert_non_null(chosen);
    return chosen;
}

/* With the default costs, the answer is the result of disti_choose. */
static void test_the_answer_is_the_selection(void **state)
{
    static const struct disti_choice nothing;
    struct disti_topology *topology = NULL;
    struct disti_tuning usual;

    (void)state;
    disti_tuning_usual(&usual);
    assert_int_equal(disti_topology_synthetic("node:3 core:2", &topology), DIST_OK);
    for (int c = 0; c < DIST_COLL_SEND; c++) {
        for (size_t bytes = 8; bytes <= 1 << 20; bytes *= 128) {
            struct disti_chosen chosen;

            disti_choose(&nothing, &usual, topology, (dist_collective)c, bytes, &chosen);
            assert_int_equal(ask((dist_collective)c, bytes, 0, "node:3 core:2"), DIST_OK);
            assert_int_equal(explanation.ranks, 6);
            assert_int_equal(explanation.nodes, 3);
            assert_string_equal(chosen_one()->algorithm, chosen.best.algorithm->name);
            assert_int_equal(chosen_one()->segments, chosen.best.segments);
            assert_string_equal(explanation.reason, disti_reason_string(chosen.reason));
        }
    }
    disti_topology_free(topology);
}

/* Sorted by time; candidates without a prediction are last. */
static void test_candidates_are_sorted_by_time(void **state)
{
    (void)state;
    assert_int_equal(ask(DIST_COLL_ALL_REDUCE, 1 << 20, 0, "node:16"), DIST_OK);
    assert_true(explanation.candidates >= 5);
    for (int i = 1; i < explanation.candidates; i++) {
        const struct dist_candidate *a = &candidates[i - 1], *b = &candidates[i];

        assert_true(b->seconds < 0 || (a->seconds >= 0 && a->seconds <= b->seconds));
    }
}

static void test_ranks_and_nodes_are_reported(void **state)
{
    (void)state;
    assert_int_equal(ask(DIST_COLL_BROADCAST, 64, 3, NULL), DIST_OK);
    assert_int_equal(explanation.ranks, 3);
    assert_int_equal(explanation.nodes, 1);
    assert_int_equal(ask(DIST_COLL_BROADCAST, SIZE_MAX, 1, NULL), DIST_OK);
    assert_int_equal(ask(DIST_COLL_ALL_REDUCE, 64, 0, "node:100 core:3"), DIST_OK);
    assert_int_equal(explanation.ranks, 300);
}

/* On one node, calls use shared memory and no algorithm, unless a setting prevents that. */
static void test_calls_on_one_node_use_shared_memory(void **state)
{
    (void)state;
    assert_int_equal(ask(DIST_COLL_ALL_REDUCE, 64, 3, NULL), DIST_OK);
    assert_string_equal(chosen_one()->algorithm, "shared memory");
    assert_int_equal(chosen_one()->segments, 0);
    assert_int_equal(ask(DIST_COLL_ALL_REDUCE, 64, 0, "node:2 core:2"), DIST_OK);
    assert_true(chosen_one()->segments > 0);
    assert_int_equal(ask(DIST_COLL_ALL_GATHER_V, 64, 3, NULL), DIST_OK);
    assert_string_equal(chosen_one()->algorithm, "shared memory");
    setenv("DIST_NODE_MEMORY", "0", 1);
    assert_int_equal(ask(DIST_COLL_ALL_REDUCE, 64, 3, NULL), DIST_OK);
    assert_true(chosen_one()->segments > 0);
    unsetenv("DIST_NODE_MEMORY");
    setenv("DIST_TRANSPORT", "tcp", 1);
    assert_int_equal(ask(DIST_COLL_ALL_REDUCE, 64, 3, NULL), DIST_OK);
    assert_true(chosen_one()->segments > 0);
    unsetenv("DIST_TRANSPORT");
    setenv("DIST_ALGO", "all_reduce:tree", 1);
    assert_int_equal(ask(DIST_COLL_ALL_REDUCE, 64, 3, NULL), DIST_OK);
    assert_string_equal(chosen_one()->algorithm, "tree");
    assert_int_equal(ask(DIST_COLL_REDUCE, 64, 3, NULL), DIST_OK);
    assert_int_equal(chosen_one()->segments, 0);
    unsetenv("DIST_ALGO");
}

static void test_candidates_are_limited_to_the_array(void **state)
{
    const struct dist_question question = {
        .size = sizeof(question), .collective = DIST_COLL_ALL_REDUCE, .bytes = 9, .ranks = 4};
    struct dist_candidate two[3] = {{.segments = 77}, {.segments = 77}, {.segments = 77}};

    (void)state;
    explanation.size = sizeof(explanation);
    assert_int_equal(dist_explain(&question, two, 2, &explanation), DIST_OK);
    assert_true(explanation.candidates > 2);
    assert_int_not_equal(two[1].segments, 77);
    assert_int_equal(two[2].segments, 77);
    assert_int_equal(dist_explain(&question, NULL, 0, &explanation), DIST_OK);
}

static void test_invalid_questions_are_rejected(void **state)
{
    struct dist_question question = {.size = sizeof(question), .ranks = 2};

    (void)state;
    assert_int_equal(ask(DIST_COLL_SEND, 8, 2, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(ask((dist_collective)99, 8, 2, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(ask(DIST_COLL_REDUCE, 8, 0, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(ask(DIST_COLL_REDUCE, 8, -1, NULL), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(ask(DIST_COLL_REDUCE, 8, 0, "nodes:2"), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(ask(DIST_COLL_REDUCE, 8, 3, "node:2"), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "has 2 ranks, not 3"));
    assert_int_equal(dist_explain(NULL, candidates, CANDIDATES, &explanation),
                     DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_explain(&question, NULL, 1, &explanation), DIST_ERR_INVALID_ARGUMENT);
    assert_int_equal(dist_explain(&question, candidates, -1, &explanation),
                     DIST_ERR_INVALID_ARGUMENT);
    question.size--;
    assert_int_equal(dist_explain(&question, candidates, CANDIDATES, &explanation),
                     DIST_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_answer_is_the_selection),
        cmocka_unit_test(test_candidates_are_sorted_by_time),
        cmocka_unit_test(test_ranks_and_nodes_are_reported),
        cmocka_unit_test(test_calls_on_one_node_use_shared_memory),
        cmocka_unit_test(test_candidates_are_limited_to_the_array),
        cmocka_unit_test(test_invalid_questions_are_rejected),
    };

    setenv("XDG_CACHE_HOME", "/proc/self/nowhere", 1); /* an empty cache */
    unsetenv("DIST_TUNING");
    unsetenv("DIST_ALGO");
    unsetenv("DIST_SEGMENTS");
    unsetenv("DIST_TRANSPORT");
    unsetenv("DIST_NODE_MEMORY");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
