/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks, places and names of groups in a simulated world of three nodes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/group.h"

/* The node of each rank: 0 0 1 2 1 2. */
static const int nodes[] = {0, 0, 1, 2, 1, 2};

static struct disti_world *simulate_world(int rank)
{
    struct disti_world *world = NULL;

    assert_int_equal(disti_world_new(&world), DIST_OK);
    world->rank = rank;
    world->size = 6;
    world->timeout_ms = 1000;
    strcpy(world->bootstrap.job, "a job");
    world->places = calloc(6, sizeof(*world->places));
    for (int r = 0; r < 6; r++)
        world->places[r] = (struct dist_place){.node = nodes[r], .core = 10 + r};
    return world;
}

static struct dist_group *make(struct disti_world *world, uint32_t number, const int *members,
                               int size)
{
    const struct disti_group_spec spec = {
        .number = number, .members = members, .size = size, .timeout_ms = 7};
    struct dist_group *group = NULL;

    assert_int_equal(disti_group_new(world, &spec, &group), DIST_OK);
    return group;
}

static void a_group_has_its_own_ranks_and_places(void **state)
{
    static const int members[] = {5, 4, 0, 2, 3};
    static const int expected_nodes[] = {0, 1, 2, 1, 0};
    struct disti_world *world = simulate_world(3);
    struct dist_group *group = make(world, 9, members, 5);
    struct disti_party party = disti_group_party(group);
    char name[GROUP_NAME];

    (void)state;
    assert_int_equal(dist_get_rank(group), 4);
    assert_int_equal(dist_get_world_size(group), 5);
    assert_int_equal(dist_get_local_rank(group), 1); /* after rank 5, which is on node 2 too */
    assert_int_equal(group->local_ranks, 2);
    for (int r = 0; r < 5; r++) {
        assert_int_equal(group->places[r].node, expected_nodes[r]);
        assert_int_equal(group->places[r].core, 10 + members[r]);
        assert_int_equal(dist_get_global_rank(group, r), members[r]);
        assert_int_equal(dist_get_group_rank(group, members[r]), r);
    }
    assert_int_equal(dist_get_group_rank(group, 1), -1);
    assert_string_equal(group->job, "a job/9");
    assert_int_equal(party.group, 9);
    assert_int_equal(party.count, 5);
    assert_memory_equal(party.ranks, members, sizeof(members));
    assert_string_equal(disti_group_name(group, name), "rank 4 of group 9 (world rank 3)");
    disti_group_free(group);
    disti_world_close(world, 0);
}

static void the_world_has_all_ranks_in_order(void **state)
{
    static const int turned[] = {5, 4, 3, 2, 1, 0};
    struct disti_world *world = simulate_world(4);
    struct dist_group *whole = make(world, 0, NULL, 6), *other = make(world, 1, turned, 6);
    char name[GROUP_NAME];

    (void)state;
    assert_int_equal(dist_get_rank(whole), 4);
    assert_int_equal(dist_get_rank(other), 1);
    assert_string_equal(whole->job, "a job");
    assert_string_equal(disti_group_name(whole, name), "rank 4");
    assert_null(disti_group_party(whole).ranks);
    assert_non_null(disti_group_party(other).ranks);
    for (int r = 0; r < 6; r++) {
        assert_int_equal(dist_get_global_rank(whole, r), r);
        assert_int_equal(dist_get_group_rank(whole, r), r);
        assert_int_equal(whole->places[r].node, nodes[r]);
    }
    assert_int_equal(dist_get_group_rank(whole, 6), -1);
    disti_group_free(whole);
    disti_group_free(other);
    disti_world_close(world, 0);
}

/* Groups are closed in the order of their numbers, whatever the order in which they were made. */
static void groups_are_listed_in_order_of_their_numbers(void **state)
{
    static const uint32_t numbers[] = {5, 2, 9, 0, 7};
    struct disti_world *world = simulate_world(0);
    struct dist_group *groups[5];
    uint32_t last = 0;
    int count = 0;

    (void)state;
    for (int i = 0; i < 5; i++)
        groups[i] = make(world, numbers[i], NULL, 6);
    for (const struct dist_group *group = world->groups; group; group = group->next) {
        assert_true(group->number >= last);
        last = group->number;
        count++;
    }
    assert_int_equal(count, 5);
    for (int i = 0; i < 5; i++)
        disti_group_free(groups[i]);
    assert_null(world->groups);
    disti_world_close(world, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_has_its_own_ranks_and_places),
        cmocka_unit_test(the_world_has_all_ranks_in_order),
        cmocka_unit_test(groups_are_listed_in_order_of_their_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
