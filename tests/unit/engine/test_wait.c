/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting: who spins, who yields, when sleep comes. */
#include "base/clock.h"
#include "engine/wait.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_with_its_own_cpu_spins_first),
        cmocka_unit_test(a_crowded_rank_never_spins),
        cmocka_unit_test(sleep_comes_in_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
