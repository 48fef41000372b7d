/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups of some ranks: their members, independence and arguments. */
#include "worlds.h"

static dist_group *make(dist_group *parent, const int *ranks, int count)
{
    dist_group *group = NULL;

    CHECK(dist_new_group(parent, ranks, count, NULL, &group) == DIST_OK);
    return group;
}

static bool is_listed(const int *ranks, int count, int rank)
{
    for (int i = 0; i < count; i++) {
        if (ranks[i] == rank)
            return true;
    }
    return false;
}

/* ---- overlapping groups with interleaved operations ---- */

#define BULK 5000

struct bulk {
    dist_group *group;
    int64_t set;
    int32_t *in, *out;
    dist_work *work;
};

static void bulk_start(struct bulk *bulk, int rank, int round)
{
    for (int i = 0; i < BULK; i++)
        bulk->in[i] = (1 << rank) * (i % 100 + round);
    CHECK(dist_all_reduce_async(bulk->group, bulk->in, bulk->out, BULK, DIST_INT32, DIST_SUM,
                                &bulk->work) == DIST_OK);
}

static void bulk_finish(struct bulk *bulk, int round)
{
    CHECK(dist_wait(bulk->work) == DIST_OK);
    for (int i = 0; i < BULK; i++)
        CHECK(bulk->out[i] == bulk->set * (i % 100 + round));
}

/* Ranks 1 and 2 are in all three groups, and start and wait in different orders, so the progress
 * thread must make progress on groups for which no thread waits. */
static void rank_interleaves(int rank, void *arg)
{
    static const int a[] = {0, 1, 2}, b[] = {3, 2, 1};
    dist_group *world = world_join(arg, rank);
    struct bulk bulks[3] = {{.group = world, .set = 15}};
    int count = 1;

    if (is_listed(a, 3, rank))
        bulks[count++] = (struct bulk){.group = make(world, a, 3), .set = 7};
    if (is_listed(b, 3, rank))
        bulks[count++] = (struct bulk){.group = make(world, b, 3), .set = 14};
    for (int i = 0; i < count; i++) {
        bulks[i].in = malloc(2 * BULK * sizeof(int32_t));
        bulks[i].out = bulks[i].in + BULK;
    }
    for (int round = 0; round < 30; round++) {
        for (int i = 0; i < count; i++)
            bulk_start(&bulks[(i + rank + round) % count], rank, round);
        for (int i = 0; i < count; i++)
            bulk_finish(&bulks[(i + rank) % count], round);
    }
    for (int i = count - 1; i >= 0; i--) {
        CHECK(dist_destroy_process_group(bulks[i].group) == DIST_OK);
        free(bulks[i].in);
    }
}

static void test_overlapping_groups_are_independent(void **state)
{
    (void)state;
    setenv("DIST_TRANSPORT", "tcp", 1);
    world_run(4, rank_interleaves);
    unsetenv("DIST_TRANSPORT");
    world_run(4, rank_interleaves);
}

/* ---- ranks and their numbers ---- */

static void check_numbers(dist_group *group, const int *world_ranks, int count, int rank)
{
    CHECK(dist_get_world_size(group) == count);
    for (int i = 0; i < count; i++) {
        CHECK(dist_get_global_rank(group, i) == world_ranks[i]);
        CHECK(dist_get_group_rank(group, world_ranks[i]) == i);
        CHECK(world_ranks[i] != rank || dist_get_rank(group) == i);
        CHECK(world_ranks[i] != rank || dist_get_local_rank(group) == i);
    }
    CHECK(dist_get_global_rank(group, count) == -1 && dist_get_global_rank(group, -1) == -1);
    CHECK(dist_get_group_rank(group, 99) == -1 && dist_get_group_rank(group, -1) == -1);
}

/* A group of a group: its list contains ranks of the parent. Ranks that are not in the list need
 * not call dist_new_group. */
static void rank_numbers(int rank, void *arg)
{
    static const int outer[] = {3, 1, 0}, inner[] = {2, 0}, all[] = {0, 1, 2, 3};
    static const int inner_world[] = {0, 3};
    dist_group *world = world_join(arg, rank), *a, *b;

    check_numbers(world, all, 4, rank);
    if (rank != 2) {
        a = make(world, outer, 3);
        check_numbers(a, outer, 3, rank);
        CHECK(dist_get_group_rank(a, 2) == -1);
        b = make(a, inner, 2);
        CHECK((b == NULL) == (rank == 1));
        if (b) {
            check_numbers(b, inner_world, 2, rank);
            CHECK(world_meet(b, rank, 9) == DIST_OK);
        }
        CHECK(world_meet(a, rank, 11) == DIST_OK);
    }
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_ranks_are_translated_between_groups(void **state)
{
    (void)state;
    world_run(4, rank_numbers);
}

/* The keys reverse the order; rank 4 is in no group. */
static void rank_splits(int rank, void *arg)
{
    static const int even[] = {2, 0}, odd[] = {3, 1};
    dist_group *world = world_join(arg, rank), *group = (dist_group *)arg;
    int color = rank == 4 ? DIST_NO_COLOR : rank % 2;

    for (int i = 0; i < 3; i++) {
        CHECK(dist_split_group(world, color, -rank, NULL, &group) == DIST_OK);
        CHECK((group == NULL) == (rank == 4));
        if (group) {
            check_numbers(group, rank % 2 ? odd : even, 2, rank);
            CHECK(world_meet(group, rank, rank % 2 ? 10 : 5) == DIST_OK);
        }
        CHECK(world_meet(world, rank, 31) == DIST_OK);
    }
    /* With equal keys, the order is the parent's. */
    CHECK(dist_split_group(world, 7, 0, NULL, &group) == DIST_OK);
    CHECK(dist_get_rank(group) == rank && dist_get_world_size(group) == 5);
    CHECK(dist_split_group(world, -2, 0, NULL, &group) == DIST_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("color", "-2");
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_split_groups_by_color_and_key(void **state)
{
    (void)state;
    world_run(5, rank_splits);
}

/* A pending request of the parent continues meanwhile and ends later. */
static void rank_dups(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *twin;
    int64_t in = rank, out = -1;
    dist_work *work = NULL;

    if (rank != 2)
        CHECK(dist_all_reduce_async(world, &in, &out, 1, DIST_INT64, DIST_SUM, &work) == DIST_OK);
    CHECK(dist_dup_group(world, NULL, &twin) == DIST_OK);
    CHECK(dist_get_rank(twin) == rank && dist_get_world_size(twin) == 3);
    CHECK(world_meet(twin, rank, 7) == DIST_OK);
    if (rank == 2)
        CHECK(dist_all_reduce_async(world, &in, &out, 1, DIST_INT64, DIST_SUM, &work) == DIST_OK);
    CHECK(dist_wait(work) == DIST_OK && out == 3);
    CHECK(dist_destroy_process_group(twin) == DIST_OK);
    CHECK(world_meet(world, rank, 7) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_a_group_is_duplicated(void **state)
{
    (void)state;
    world_run(3, rank_dups);
}

/* ---- options and invalid arguments ---- */

static void rank_makes_single_groups(int rank, void *arg)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *group;

    group = make(world, &rank, 1);
    CHECK(strcmp(dist_get_backend(group), "self") == 0);
    CHECK(dist_get_rank(group) == 0 && dist_get_global_rank(group, 0) == rank);
    CHECK(world_meet(group, rank, (int64_t)1 << rank) == DIST_OK);
    CHECK(dist_monitored_barrier(group, 1) == DIST_OK);
    options.backend = "gloo";
    CHECK(dist_new_group(world, &rank, 1, &options, &group) == DIST_OK);
    CHECK(strcmp(dist_get_backend(group), "gloo") == 0);
    CHECK(world_meet(group, rank, (int64_t)1 << rank) == DIST_OK);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_groups_of_one_rank(void **state)
{
    (void)state;
    world_run(2, rank_makes_single_groups);
    world_run(1, rank_makes_single_groups);
}

/* An error while a group is made does no harm, and all ranks get it. */
static void rank_wants_another_backend(int rank, void *arg)
{
    static const int both[] = {1, 0};
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *group = (dist_group *)arg;

    options.backend = rank == 0 ? "gloo" : "self";
    CHECK(dist_new_group(world, both, 2, &options, &group) == DIST_ERR_MISMATCH);
    CHECK_SAYS("requests backend gloo", "requests self", "world rank 0", "host ");
    options.backend = "glue";
    CHECK(dist_dup_group(world, &options, &group) == DIST_ERR_NO_BACKEND);
    options.backend = "self"; /* a backend for one rank */
    CHECK(dist_dup_group(world, &options, &group) == DIST_ERR_UNSUPPORTED);
    CHECK(group == arg);
    options.backend = "auto";
    CHECK(dist_new_group(world, both, 2, &options, &group) == DIST_OK);
    CHECK(strcmp(dist_get_backend(group), "gloo") == 0);
    CHECK(world_meet(group, rank, 3) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_ranks_must_agree_on_the_backend(void **state)
{
    (void)state;
    world_run(2, rank_wants_another_backend);
}

static void refused(dist_group *world, const int *ranks, int count, const char *word)
{
    dist_group *group = world;

    CHECK(dist_new_group(world, ranks, count, NULL, &group) == DIST_ERR_INVALID_ARGUMENT);
    CHECK_SAYS(word);
    CHECK(group == world);
}

static void rank_lists_bad_ranks(int rank, void *arg)
{
    static const int twice[] = {0, 1, 0}, outside[] = {1, 2}, negative[] = {0, -1};
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *group = NULL;

    refused(world, twice, 3, "ranks[0] and ranks[2] are both 0");
    refused(world, outside, 2, "ranks[1] is 2");
    refused(world, negative, 2, "ranks[1] is -1");
    refused(world, outside, 0, "count is 0");
    refused(world, outside, -3, "count is -3");
    refused(world, NULL, 2, "ranks is NULL");
    CHECK(dist_new_group(world, twice, 2, NULL, NULL) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(dist_new_group(NULL, twice, 2, NULL, &group) == DIST_ERR_INVALID_ARGUMENT);
    options.timeout_ms = -1;
    CHECK(dist_dup_group(world, &options, &group) == DIST_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("timeout_ms is -1");
    options.size = 3;
    CHECK(dist_dup_group(world, &options, &group) == DIST_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("DIST_GROUP_OPTIONS_INIT");
    CHECK(world_meet(world, rank, 3) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_bad_arguments_are_rejected(void **state)
{
    (void)state;
    world_run(2, rank_lists_bad_ranks);
}

/* Rank 1 is late, and is named. Later it joins the next attempt. */
static void rank_comes_late(int rank, void *arg)
{
    static const int both[] = {2, 1};
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *group = NULL;

    options.timeout_ms = 300;
    if (rank == 2) {
        CHECK(dist_new_group(world, both, 2, &options, &group) == DIST_ERR_TIMEOUT);
        CHECK_SAYS("rank 1 (world rank 1, host ", "did not arrive");
    }
    CHECK(dist_barrier(world) == DIST_OK);
    if (rank > 0) {
        group = make(world, both, 2);
        CHECK(world_meet(group, rank, 6) == DIST_OK);
    }
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_a_missing_rank_is_named(void **state)
{
    (void)state;
    world_run(3, rank_comes_late);
}

/* Rank 0 waits for its own timeout only; a group that is created later inherits it. */
static void rank_sets_the_timeout(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *group;

    CHECK(dist_set_timeout(world, 0) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(dist_set_timeout(world, -1) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(rank != 0 || dist_set_timeout(world, 100) == DIST_OK);
    CHECK(dist_dup_group(world, NULL, &group) == DIST_OK);
    if (rank == 0) {
        CHECK(dist_barrier(group) == DIST_ERR_TIMEOUT);
        CHECK(dist_set_timeout(world, 60000) == DIST_OK);
    }
    CHECK(dist_barrier(world) == DIST_OK);
    CHECK(rank == 0 || dist_barrier(group) != DIST_OK);
    dist_destroy_process_group(group);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_a_rank_sets_its_timeout(void **state)
{
    (void)state;
    world_run(2, rank_sets_the_timeout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overlapping_groups_are_independent),
        cmocka_unit_test(test_ranks_are_translated_between_groups),
        cmocka_unit_test(test_split_groups_by_color_and_key),
        cmocka_unit_test(test_a_group_is_duplicated),
        cmocka_unit_test(test_groups_of_one_rank),
        cmocka_unit_test(test_ranks_must_agree_on_the_backend),
        cmocka_unit_test(test_bad_arguments_are_rejected),
        cmocka_unit_test(test_a_missing_rank_is_named),
        cmocka_unit_test(test_a_rank_sets_its_timeout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
