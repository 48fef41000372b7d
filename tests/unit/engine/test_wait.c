/* SPDX-License-Identifier: BSD-3-Clause */
/* Wait policies: when a waiting rank spins, yields and sleeps. */
#include "base/clock.h"
#include "engine/engine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define MS (1000 * 1000)

static void a_rank_with_its_own_cpu_spins_first(void **state)
{
    struct disti_wait_policy policy;
    struct disti_wait wait = {0};

    (void)state;
    disti_wait_policy_init(&policy, false);
    assert_true(policy.spins > 0 && policy.spin_ns > 0);
    policy.spin_ns = INT64_MAX; /* regardless of the load of the machine */
    for (uint32_t i = 0; i < policy.spins; i++)
        assert_false(disti_wait_step(&policy, &wait));
    assert_int_equal(wait.since_ns, 0); /* the clock was not read while it spun */
}

static void slow_polls_end_the_spinning_early(void **state)
{
    const struct disti_wait_policy policy = {.spins = UINT32_MAX, .spin_ns = MS};
    struct disti_wait wait = {0};
    int64_t start = disti_now_ns();

    (void)state;
    while (!disti_wait_step(&policy, &wait))
        assert_true(disti_now_ns() - start < 10000LL * MS);
    assert_true(disti_now_ns() - start >= MS);
    assert_int_equal(wait.polls, policy.spins);
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

static void a_crowded_rank_finally_sleeps(void **state)
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

#define QUICK_NS 2000
#define SLOW_NS (3 * MS)

/* Reports `count` yields of took_ns each. Returns true if the last one says that the policy is due
 * for a decision. */
static bool yields(struct disti_wait_policy *policy, int count, int64_t *now, int64_t took_ns)
{
    bool due = false;

    for (int i = 0; i < count; i++)
        due = disti_wait_yielded(policy, *now += took_ns, took_ns);
    return due;
}

static void after_a_slow_yield_the_rank_yields_no_more(void **state)
{
    struct disti_wait_policy policy;
    struct disti_wait wait = {0};
    int64_t now = MS;

    (void)state;
    disti_wait_policy_init(&policy, false);
    assert_false(yields(&policy, 3, &now, QUICK_NS));
    assert_int_equal(policy.manner, DISTI_WAIT_EXCLUSIVE);
    assert_false(yields(&policy, 1, &now, SLOW_NS));
    assert_int_equal(policy.manner, DISTI_WAIT_BESIDE);
    policy.spin_ns = INT64_MAX;
    for (uint32_t i = 0; i < policy.spins; i++)
        assert_false(disti_wait_step(&policy, &wait));
    assert_true(disti_wait_step(&policy, &wait)); /* sleeps immediately after spinning */
}

static void yielding_is_retried_after_a_while(void **state)
{
    struct disti_wait_policy policy;
    int64_t now = MS;

    (void)state;
    disti_wait_policy_init(&policy, false);
    yields(&policy, 1, &now, SLOW_NS);
    disti_wait_tire(&policy, now + 100 * MS);
    assert_int_equal(policy.manner, DISTI_WAIT_BESIDE);
    disti_wait_tire(&policy, now += 1000 * MS);
    assert_int_equal(policy.manner, DISTI_WAIT_CROWDED);
    yields(&policy, 1, &now, SLOW_NS); /* the other process still runs */
    assert_int_equal(policy.manner, DISTI_WAIT_BESIDE);
    disti_wait_tire(&policy, now += 1000 * MS);
    assert_true(yields(&policy, DISTI_WAIT_WINDOW + 1, &now, QUICK_NS));
    disti_wait_adapt(&policy, 0); /* no involuntary switches: the other process has ended */
    assert_int_equal(policy.manner, DISTI_WAIT_EXCLUSIVE);
    assert_true(policy.spins > 0);
}

static void a_rank_whose_yields_switch_is_crowded(void **state)
{
    struct disti_wait_policy policy;
    int64_t now = MS;

    (void)state;
    disti_wait_policy_init(&policy, false);
    assert_false(yields(&policy, DISTI_WAIT_WINDOW, &now, QUICK_NS));
    assert_true(yields(&policy, 1, &now, QUICK_NS));
    disti_wait_adapt(&policy, DISTI_WAIT_WINDOW);
    assert_int_equal(policy.manner, DISTI_WAIT_CROWDED);
    assert_int_equal(policy.spins, 0);
    assert_true(yields(&policy, DISTI_WAIT_WINDOW + 1, &now, QUICK_NS));
    disti_wait_adapt(&policy, 1);
    assert_int_equal(policy.manner, DISTI_WAIT_EXCLUSIVE);
}

/* The naps lengthen a wait by about a tenth, and there are few per second. */
static void naps_grow_with_the_wait(void **state)
{
    struct disti_wait wait = {0};
    int64_t slept = 0, nap;
    int naps = 0;

    (void)state;
    assert_true(disti_wait_nap(&wait) <= 100 * 1000);
    for (; slept < 1000 * MS; slept += nap, naps++) {
        nap = disti_wait_nap(&wait);
        assert_true(nap <= 100 * 1000 + slept / 6);
    }
    assert_in_range(naps, 10, 200);
    wait = (struct disti_wait){0};
    assert_true(disti_wait_nap(&wait) <= 100 * 1000);
}

/* Learns from the real clock and the thread's real context switches. */
static void learning_changes_only_revisable_policies(void **state)
{
    const struct disti_wait slow = {.last_ns = disti_now_ns(), .took_ns = SLOW_NS};
    const struct disti_wait quick = {.last_ns = disti_now_ns(), .took_ns = QUICK_NS};
    struct disti_wait_policy policy;

    (void)state;
    disti_wait_policy_init(&policy, true);
    disti_wait_learn(&policy, &slow, false);
    assert_int_equal(policy.manner, DISTI_WAIT_CROWDED);
    disti_wait_policy_init(&policy, false);
    for (int i = 0; i < 3 * DISTI_WAIT_WINDOW; i++)
        disti_wait_learn(&policy, &quick, false);
    assert_int_equal(policy.manner, DISTI_WAIT_EXCLUSIVE); /* no other process ran in between */
    disti_wait_learn(&policy, &slow, false);
    assert_int_equal(policy.manner, DISTI_WAIT_BESIDE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_its_own_cpu_spins_first),
        cmocka_unit_test(slow_polls_end_the_spinning_early),
        cmocka_unit_test(a_crowded_rank_never_spins),
        cmocka_unit_test(a_crowded_rank_finally_sleeps),
        cmocka_unit_test(after_a_slow_yield_the_rank_yields_no_more),
        cmocka_unit_test(yielding_is_retried_after_a_while),
        cmocka_unit_test(a_rank_whose_yields_switch_is_crowded),
        cmocka_unit_test(naps_grow_with_the_wait),
        cmocka_unit_test(learning_changes_only_revisable_policies),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
