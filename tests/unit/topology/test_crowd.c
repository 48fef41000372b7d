/* SPDX-License-Identifier: BSD-3-Clause */
/* Which ranks are crowded: this depends on the CPUs that they share, not on the number that each
 * may use. */
#include "topology/discover.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define RANKS 8

/* Places all ranks on one node, where rank r may use the CPUs of masks[r]. */
static void bind_to(struct disti_locality *all, const uint64_t *masks, int ranks)
{
    for (int r = 0; r < ranks; r++)
        all[r] = (struct disti_locality){
            .machine = 1, .kernel = 1, .usable_cpus = 1, .cpus = {masks[r]}};
}

static void ranks_with_a_core_each_are_not_crowded(void **state)
{
    struct disti_locality all[RANKS];

    (void)state;
    bind_to(all, (const uint64_t[]){1, 2}, 2);
    assert_false(disti_crowded(all, 2, 0));
    assert_false(disti_crowded(all, 2, 1));
}

static void unbound_ranks_share_all_cpus(void **state)
{
    struct disti_locality all[RANKS];

    (void)state;
    bind_to(all, (const uint64_t[]){3, 3}, 2);
    assert_false(disti_crowded(all, 2, 0));
    bind_to(all, (const uint64_t[]){3, 3, 3}, 3);
    assert_true(disti_crowded(all, 3, 2));
}

static void two_on_one_core_are_crowded_and_their_neighbour_is_not(void **state)
{
    struct disti_locality all[RANKS];

    (void)state;
    bind_to(all, (const uint64_t[]){1, 1, 2}, 3);
    assert_true(disti_crowded(all, 3, 0));
    assert_true(disti_crowded(all, 3, 1));
    assert_false(disti_crowded(all, 3, 2));
}

/* 0-1, 1-2, 2-3: a chain of four CPUs, for three ranks and then for five. */
static void overlapping_CPU_sets_are_merged(void **state)
{
    struct disti_locality all[RANKS];

    (void)state;
    bind_to(all, (const uint64_t[]){3, 6, 12}, 3);
    assert_false(disti_crowded(all, 3, 0));
    bind_to(all, (const uint64_t[]){3, 6, 12, 12, 12}, 5);
    assert_true(disti_crowded(all, 5, 0));
}

static void ranks_of_other_nodes_do_not_count(void **state)
{
    struct disti_locality all[RANKS];

    (void)state;
    bind_to(all, (const uint64_t[]){1, 1}, 2);
    all[1].machine = all[1].kernel = 2;
    assert_false(disti_crowded(all, 2, 0));
}

static void containers_of_one_kernel_share_its_cpus(void **state)
{
    struct disti_locality all[RANKS];

    (void)state;
    bind_to(all, (const uint64_t[]){1, 1}, 2);
    all[1].machine = 2;
    assert_true(disti_crowded(all, 2, 0));
    bind_to(all, (const uint64_t[]){1, 2}, 2);
    all[1].machine = 2;
    assert_false(disti_crowded(all, 2, 0));
}

static void a_quota_limits_the_whole_node(void **state)
{
    struct disti_locality all[RANKS];

    (void)state;
    bind_to(all, (const uint64_t[]){1, 2, 4}, 3);
    for (int r = 0; r < 3; r++)
        all[r].quota_cpus = 2;
    assert_true(disti_crowded(all, 3, 1));
}

static void without_affinities_CPUs_and_ranks_are_counted(void **state)
{
    struct disti_locality all[RANKS];

    (void)state;
    bind_to(all, (const uint64_t[]){0, 0, 0}, 3);
    for (int r = 0; r < 3; r++)
        all[r].usable_cpus = 3;
    assert_false(disti_crowded(all, 3, 0));
    all[0].usable_cpus = 2;
    assert_true(disti_crowded(all, 3, 0));
}

static void nodes_of_one_kernel_share_CPUs(void **state)
{
    struct disti_locality all[RANKS];

    (void)state;
    bind_to(all, (const uint64_t[]){3, 6, 6}, 3);
    assert_int_equal(disti_shared_cpus(all, 3), 0); /* one node */
    all[2].machine = 2;
    assert_int_equal(disti_shared_cpus(all, 3), 3);
    all[2].kernel = 2;
    assert_int_equal(disti_shared_cpus(all, 3), 0);
    all[1].machine = 3;
    assert_int_equal(disti_shared_cpus(all, 2), 3);
    assert_int_equal(disti_shared_cpus(all, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_a_core_each_are_not_crowded),
        cmocka_unit_test(unbound_ranks_share_all_cpus),
        cmocka_unit_test(two_on_one_core_are_crowded_and_their_neighbour_is_not),
        cmocka_unit_test(overlapping_CPU_sets_are_merged),
        cmocka_unit_test(ranks_of_other_nodes_do_not_count),
        cmocka_unit_test(containers_of_one_kernel_share_its_cpus),
        cmocka_unit_test(nodes_of_one_kernel_share_CPUs),
        cmocka_unit_test(a_quota_limits_the_whole_node),
        cmocka_unit_test(without_affinities_CPUs_and_ranks_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
