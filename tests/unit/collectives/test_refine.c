/* SPDX-License-Identifier: BSD-3-Clause */
/* Refined choices: ranks that post, start and end calls in any order switch at the same call. */
#include "tuning/refine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 4
#define CALLS 100
/* A rank posts so many calls before the first of them ends. */
#define AHEAD 60

static struct disti_candidate candidate(const char *name, double seconds)
{
    struct disti_candidate candidate = {.algorithm =
                                            disti_algorithm_find(DIST_COLL_ALL_REDUCE, name),
                                        .segments = 1,
                                        .seconds = seconds};

    assert_non_null(candidate.algorithm);
    return candidate;
}

static struct disti_chosen chosen_of(enum disti_reason reason)
{
    struct disti_chosen chosen = {.reason = reason, .count = 5};

    chosen.candidates[0] = candidate("ring", 12e-6);
    chosen.candidates[1] = candidate("direct", 21e-6); /* too far from the best */
    chosen.candidates[2] = candidate("tree", 10e-6);
    chosen.candidates[3] = candidate("recursive_doubling", 19e-6);
    chosen.candidates[4] = candidate("halving_doubling", -1); /* not predicted */
    chosen.best = chosen.candidates[2];
    chosen.rule = chosen.candidates[0];
    return chosen;
}

static void test_candidates(void **state)
{
    static const char *const names[] = {"tree", "ring", "recursive_doubling"};
    static const enum disti_reason said[] = {DISTI_REASON_FORCED, DISTI_REASON_FIXED,
                                             DISTI_REASON_RULE_OFF, DISTI_REASON_RULE_BLIND};
    struct disti_chosen chosen = chosen_of(DISTI_REASON_PREDICTED);
    struct disti_refine refine;

    (void)state;
    disti_refine_init(&chosen, &refine);
    assert_int_equal(refine.count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(refine.candidates[i].algorithm->name, names[i]);
    /* The rules' choice stays the first, though another is predicted to be a little faster. */
    chosen.reason = DISTI_REASON_RULE_NEAR;
    chosen.best = chosen.candidates[0];
    disti_refine_init(&chosen, &refine);
    assert_string_equal(refine.candidates[0].algorithm->name, "ring");
    assert_string_equal(refine.candidates[1].algorithm->name, "tree");
    for (int i = 0; i < 4; i++) {
        chosen = chosen_of(said[i]);
        disti_refine_init(&chosen, &refine);
        assert_null(disti_refine_post(&refine).refine);
    }
}

/* With one candidate there is nothing to try. */
static void test_alone(void **state)
{
    struct disti_chosen chosen = chosen_of(DISTI_REASON_PREDICTED);
    struct disti_refine refine;

    (void)state;
    chosen.count = 1;
    chosen.candidates[0] = chosen.best;
    disti_refine_init(&chosen, &refine);
    for (int i = 0; i < CALLS; i++) {
        struct disti_refine_turn turn = disti_refine_post(&refine);

        assert_null(turn.refine);
        assert_true(disti_refine_knows(&turn));
    }
}

/* ---- ranks, without anything between them ---- */

enum call_state { CALL_NOT_POSTED, CALL_POSTED, CALL_RUNNING, CALL_ENDED };

struct rank {
    struct disti_refine refine;
    struct disti_refine_turn turns[CALLS];
    enum call_state states[CALLS];
    int used[CALLS]; /* candidates */
    int posted, ended, decides;
    bool gave, took; /* its part of the agreement; the result */
};

static struct rank ranks[RANKS];
static double greatest[DISTI_REFINE_MOST];
static int gave;
static uint32_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

/* By candidate and rank: the first is the fastest for most, the last for the slowest rank. */
static const double planted[DISTI_REFINE_MOST][RANKS] = {{1, 1, 1, 9}, {6, 6, 6, 6}, {4, 5, 4, 3}};

/* Four of nine times are far off, and so is each that follows another candidate's. */
static double planted_time(const struct rank *rank, int call)
{
    int number = call % DISTI_REFINE_RUN;
    double time = planted[rank->used[call]][rank - ranks];

    if (number == 0)
        return 1e6;
    if (number == 1 || (number == 2 && call < DISTI_REFINE_RUN * DISTI_REFINE_MOST))
        return 1000 * time;
    return time;
}

static void rank_post(struct rank *rank)
{
    int call = rank->posted;

    if (call == CALLS || call - rank->ended >= AHEAD)
        return;
    rank->turns[call] = disti_refine_post(&rank->refine);
    rank->states[call] = CALL_POSTED;
    if (rank->turns[call].decides) {
        assert_int_equal(rank->decides, 0);
        rank->decides = call;
    }
    rank->posted++;
}

static void rank_move(struct rank *rank, int call)
{
    const struct disti_refine_turn *turn = &rank->turns[call];

    if (rank->states[call] == CALL_POSTED && disti_refine_knows(turn)) {
        rank->used[call] = disti_refine_candidate(turn);
        rank->states[call] = CALL_RUNNING;
    } else if (rank->states[call] == CALL_RUNNING) {
        disti_refine_ended(turn, planted_time(rank, call));
        rank->states[call] = CALL_ENDED;
        rank->ended++;
    }
}

/* Its part of the all-reduce; and the result, some time after all have given theirs. */
static void rank_agree(struct rank *rank)
{
    if (rank->decides && !rank->gave && disti_refine_ready(&rank->refine)) {
        disti_refine_sum(&rank->refine);
        for (int i = 0; i < DISTI_REFINE_MOST; i++)
            greatest[i] =
                rank->refine.medians[i] > greatest[i] ? rank->refine.medians[i] : greatest[i];
        rank->gave = true;
        gave++;
    } else if (gave == RANKS && !rank->took) {
        memcpy(rank->refine.medians, greatest, sizeof(greatest));
        disti_refine_agree(&rank->refine);
        rank->took = true;
    }
}

static bool ranks_done(void)
{
    for (int r = 0; r < RANKS; r++) {
        if (ranks[r].ended < CALLS)
            return false;
    }
    return true;
}

static void ranks_run(uint32_t number)
{
    const struct disti_chosen chosen = chosen_of(DISTI_REASON_PREDICTED);

    memset(ranks, 0, sizeof(ranks));
    memset(greatest, 0, sizeof(greatest));
    gave = 0;
    seed = number;
    for (int r = 0; r < RANKS; r++)
        disti_refine_init(&chosen, &ranks[r].refine);
    for (int steps = 0; !ranks_done(); steps++) {
        struct rank *rank = &ranks[draw(RANKS)];

        assert_true(steps < 1000 * 1000);
        switch (draw(4)) {
        case 0:
            rank_post(rank);
            break;
        case 1:
            rank_agree(rank);
            break;
        default: /* in any order: they run side by side */
            if (rank->posted)
                rank_move(rank, (int)draw((uint32_t)rank->posted));
        }
    }
}

/* Every call is done by one candidate on all ranks; the trials are shared out; then the best. */
static void test_switch(void **state)
{
    int trials = DISTI_REFINE_MOST * DISTI_REFINE_RUN * DISTI_REFINE_ROUNDS;

    (void)state;
    for (uint32_t number = 1; number <= 200; number++) {
        int used[DISTI_REFINE_MOST] = {0};

        ranks_run(number);
        for (int call = 0; call < CALLS; call++) {
            int mine = ranks[0].used[call];

            for (int r = 1; r < RANKS; r++)
                assert_int_equal(ranks[r].used[call], mine);
            if (call >= trials)
                assert_int_equal(mine, 2);
            else
                used[mine]++;
        }
        for (int i = 0; i < DISTI_REFINE_MOST; i++)
            assert_int_equal(used[i], trials / DISTI_REFINE_MOST);
        for (int r = 0; r < RANKS; r++) {
            assert_int_equal(ranks[r].decides, trials);
            assert_true(ranks[r].refine.medians[0] == 9);
            assert_true(ranks[r].refine.medians[1] == 6);
            assert_true(ranks[r].refine.medians[2] == 5);
        }
    }
}

/* Nothing is ready while a single call that tries is under way. */
static void test_waits(void **state)
{
    const struct disti_chosen chosen = chosen_of(DISTI_REASON_PREDICTED);
    int trials = DISTI_REFINE_MOST * DISTI_REFINE_RUN * DISTI_REFINE_ROUNDS;
    struct disti_refine refine;
    struct disti_refine_turn first, turn;

    (void)state;
    disti_refine_init(&chosen, &refine);
    first = disti_refine_post(&refine);
    for (int i = 1; i < trials; i++) {
        turn = disti_refine_post(&refine);
        disti_refine_ended(&turn, 1);
    }
    turn = disti_refine_post(&refine);
    assert_true(turn.decides);
    assert_false(disti_refine_ready(&refine));
    assert_false(disti_refine_knows(&turn));
    disti_refine_ended(&first, 1);
    assert_true(disti_refine_ready(&refine));
    assert_false(disti_refine_knows(&turn));
    disti_refine_sum(&refine);
    disti_refine_agree(&refine);
    assert_true(disti_refine_knows(&turn));
    assert_int_equal(disti_refine_candidate(&turn), 0); /* all alike: the predicted one stays */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_switch),
        cmocka_unit_test(test_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
