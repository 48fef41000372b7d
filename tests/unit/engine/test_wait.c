/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting: who spins, who yields, when sleep comes. */
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
    policy.spin_ns = INT64_MAX; /* whatever else the machine does */
    for (uint32_t i = 0; i < policy.spins; i++)
        assert_false(disti_wait_step(&policy, &wait));
    assert_int_equal(wait.since_ns, 0); /* no clock was read while it spun */
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

#define QUICK_NS 2000
#define SLOW_NS (3 * MS)

/* So many yields of a window, of which each took so long. */
static bool yields(struct disti_wait_policy *policy, int count, int64_t *now, int64_t took_ns)
{
    bool due = false;

    for (int i = 0; i < count; i++)
        due = disti_wait_yielded(policy, *now += took_ns, took_ns);
    return due;
}

static void a_slow_yield_is_the_last_one(void **state)
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
    assert_true(disti_wait_step(&policy, &wait)); /* sleeps at once after it has spun */
}

static void strangers_are_asked_again_after_a_while(void **state)
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
    yields(&policy, 1, &now, SLOW_NS); /* still there */
    assert_int_equal(policy.manner, DISTI_WAIT_BESIDE);
    disti_wait_tire(&policy, now += 1000 * MS);
    assert_true(yields(&policy, DISTI_WAIT_WINDOW + 1, &now, QUICK_NS));
    disti_wait_adapt(&policy, 0); /* gone */
    assert_int_equal(policy.manner, DISTI_WAIT_EXCLUSIVE);
    assert_true(policy.spins > 0);
}

static void whoever_lets_others_run_is_crowded(void **state)
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

/* Naps add some tenth to a wait, however long, and are not many in a second. */
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

/* By the real clock and the thread's real switches. */
static void learning_changes_a_policy_that_may_be_revised_only(void **state)
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
    assert_int_equal(policy.manner, DISTI_WAIT_EXCLUSIVE); /* nobody else was let run */
    disti_wait_learn(&policy, &slow, false);
    assert_int_equal(policy.manner, DISTI_WAIT_BESIDE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_its_own_cpu_spins_first),
        cmocka_unit_test(slow_polls_end_the_spinning_early),
        cmocka_unit_test(a_crowded_rank_never_spins),
        cmocka_unit_test(sleep_comes_in_the_end),
        cmocka_unit_test(a_slow_yield_is_the_last_one),
        cmocka_unit_test(strangers_are_asked_again_after_a_while),
        cmocka_unit_test(whoever_lets_others_run_is_crowded),
        cmocka_unit_test(naps_grow_with_the_wait),
        cmocka_unit_test(learning_changes_a_policy_that_may_be_revised_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
