/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting: who spins, who yields, when sleep comes; fingerprints and their words. */
#include "base/clock.h"
#include "engine/state.h"
#include "engine/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void a_rank_with_its_own_cpu_spins_first(void **state)
{
    struct disti_wait_policy policy;
    struct disti_wait wait = {0};

    (void)state;
    disti_wait_policy_init(&policy, false);
    assert_true(policy.spins > 0);
    for (uint32_t i = 0; i < policy.spins; i++)
        assert_false(disti_wait_step(&policy, &wait));
    assert_int_equal(wait.since_ns, 0); /* no clock was read while it spun */
}

static void a_crowded_rank_never_spins(void **state)
{
    struct disti_wait_policy policy;
    struct disti_wait wait = {0};

    (void)state;
    disti_wait_policy_init(&policy, true);
    assert_int_equal(policy.spins, 0);
    assert_false(disti_wait_step(&policy, &wait));
    assert_true(wait.since_ns > 0);
}

static void sleep_comes_in_the_end(void **state)
{
    struct disti_wait_policy policy;
    struct disti_wait wait = {0};
    int64_t start = disti_now_ns();

    (void)state;
    disti_wait_policy_init(&policy, true);
    while (!disti_wait_step(&policy, &wait))
        assert_true(disti_now_ns() - start < 10LL * 1000 * 1000 * 1000);
    assert_true(disti_now_ns() - start >= policy.yield_ns);
    assert_true(policy.sleep_ms > 0);
}

static void calls_that_differ_have_other_fingerprints(void **state)
{
    const struct dist_call call = {
        .collective = DIST_COLL_ALL_REDUCE, .count = 1000, .dtype = DIST_FLOAT32, .op = DIST_SUM};
    struct dist_call others[5] = {call, call, call, call, call};

    (void)state;
    others[0].collective = DIST_COLL_BROADCAST;
    others[1].count = 1001;
    others[2].dtype = DIST_INT32;
    others[3].op = DIST_MAX;
    others[4].root = 1;
    for (int i = 0; i < 5; i++)
        assert_true(disti_fingerprint(&call) != disti_fingerprint(&others[i]));
}

static void a_fingerprint_reads_back(void **state)
{
    const struct dist_call call = {.collective = DIST_COLL_BROADCAST,
                                   .count = 77,
                                   .dtype = DIST_BFLOAT16,
                                   .op = DIST_MAX,
                                   .root = 5};
    char text[128];

    (void)state;
    disti_fingerprint_text(disti_fingerprint(&call), text, sizeof(text));
    assert_string_equal(text, "broadcast(count 77, bfloat16, max, root 5)");
}

static void nonsense_reads_back_without_harm(void **state)
{
    char text[128];

    (void)state;
    disti_fingerprint_text(UINT64_MAX, text, sizeof(text));
    assert_true(strlen(text) > 0);
}

static void overlapping_tasks_are_seen(void **state)
{
    static float memory[64];
    const struct disti_plan plan = {.ranks = 2};
    struct engine_task a = {
        .call = {.in = memory, .out = memory, .count = 16}, .plan = &plan, .element_bytes = 4};
    struct engine_task b = a;

    (void)state;
    assert_true(disti_task_overlaps(&a, &b));
    b.call.in = b.call.out = memory + 16;
    assert_false(disti_task_overlaps(&a, &b));
    b.call.in = memory + 15; /* reads what a writes */
    assert_true(disti_task_overlaps(&a, &b));
    a.call.in = b.call.in = memory; /* both only read it */
    a.call.out = memory + 32;
    b.call.out = memory + 48;
    assert_false(disti_task_overlaps(&a, &b));
    a.call.collective = DIST_COLL_ALL_GATHER; /* out is two blocks now */
    assert_true(disti_task_overlaps(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_its_own_cpu_spins_first),
        cmocka_unit_test(a_crowded_rank_never_spins),
        cmocka_unit_test(sleep_comes_in_the_end),
        cmocka_unit_test(calls_that_differ_have_other_fingerprints),
        cmocka_unit_test(a_fingerprint_reads_back),
        cmocka_unit_test(nonsense_reads_back_without_harm),
        cmocka_unit_test(overlapping_tasks_are_seen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
