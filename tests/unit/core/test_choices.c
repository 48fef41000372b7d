/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings that must be the same on all ranks, checked when they join and when they make a
 * group. */
#include "worlds.h"

/* A setting that changes the order of additions must be the same on all ranks. */
static void rank_wants_reproducible(int rank, void *arg)
{
    const struct world *world = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;

    options.backend = "gloo";
    options.init_method = world->url;
    options.rank = rank;
    options.world_size = world->ranks;
    options.reproducible = rank == 1;
    if (rank == 2)
        setenv("DIST_REPRODUCIBLE", "1", 1);
    CHECK(dist_init_process_group(&options, &group) == DIST_ERR_MISMATCH);
    CHECK_SAYS("DIST_REPRODUCIBLE=0", "DIST_REPRODUCIBLE=1", "host ");
    CHECK(!group);
}

static void test_reproducibility_must_be_the_same(void **state)
{
    (void)state;
    world_run(3, rank_wants_reproducible);
}

/* One rank forces another algorithm, which is detected even in a long list. */
static void rank_forces_another_algorithm(int rank, void *arg)
{
    const struct world *world = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    char algorithms[1024] = "";
    dist_group *group = NULL;

    for (int i = 0; i < 30; i++)
        strcat(algorithms, "broadcast:chain,");
    strcat(algorithms, rank ? "all_reduce:tree" : "all_reduce:ring");
    setenv("DIST_ALGO", algorithms, 1);
    options.backend = "gloo";
    options.init_method = world->url;
    options.rank = rank;
    options.world_size = world->ranks;
    CHECK(dist_init_process_group(&options, &group) == DIST_ERR_MISMATCH);
    CHECK_SAYS("DIST_ALGO", "rank 0", "rank 1");
    CHECK(!group);
}

static void test_forced_algorithms_must_be_the_same(void **state)
{
    (void)state;
    world_run(2, rank_forces_another_algorithm);
}

/* One rank uses MPI's own collectives and another uses plans, which must be detected. */
static void rank_wants_native(int rank, void *arg)
{
    const struct world *world = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;

    setenv("DIST_MPI_COLL", rank ? "native" : "plan", 1);
    options.backend = "gloo"; /* gloo ignores the variable, but the ranks must agree on it anyway */
    options.init_method = world->url;
    options.rank = rank;
    options.world_size = world->ranks;
    CHECK(dist_init_process_group(&options, &group) == DIST_ERR_MISMATCH);
    CHECK_SAYS("DIST_MPI_COLL=native", "DIST_MPI_COLL=plan");
    CHECK(!group);
}

static void test_native_MPI_collectives_must_be_the_same(void **state)
{
    (void)state;
    world_run(2, rank_wants_native);
}

/* A rank whose setting has changed since it joined cannot make a group; existing groups
 * continue. */
static void rank_changes_a_setting(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *group = NULL;
    int32_t one = 1, sum = 0;

    if (rank == 1)
        setenv("DIST_ALGO", "all_reduce:ring", 1);
    CHECK(dist_dup_group(world, NULL, &group) == DIST_ERR_MISMATCH);
    CHECK_SAYS("new group", "DIST_ALGO=", rank == 1 ? "(world rank 0" : "(world rank 1");
    CHECK(!group);
    setenv("DIST_ALGO", "all_reduce:ring", 1);
    CHECK(dist_dup_group(world, NULL, &group) == DIST_OK);
    CHECK(dist_all_reduce(group, &one, &sum, 1, DIST_INT32, DIST_SUM) == DIST_OK);
    CHECK(sum == 3);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_a_changed_setting_is_detected(void **state)
{
    (void)state;
    world_run(3, rank_changes_a_setting);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reproducibility_must_be_the_same),
        cmocka_unit_test(test_forced_algorithms_must_be_the_same),
        cmocka_unit_test(test_native_MPI_collectives_must_be_the_same),
        cmocka_unit_test(test_a_changed_setting_is_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
