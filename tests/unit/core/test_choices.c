/* SPDX-License-Identifier: BSD-3-Clause */
/* Settings that must be the same on all ranks: when they join, and whenever they make a group. */
#include "worlds.h"

/* A setting that changes the order of additions must be the same everywhere. */
static void rank_wants_other_bits(int rank, void *arg)
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

static void test_reproducible(void **state)
{
    (void)state;
    world_run(3, rank_wants_other_bits);
}

/* Different algorithms never meet, be the list of them ever so long. */
static void rank_forces_others(int rank, void *arg)
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

static void test_algorithms(void **state)
{
    (void)state;
    world_run(2, rank_forces_others);
}

/* What MPI does by itself and what plans do never meet either. */
static void rank_wants_native(int rank, void *arg)
{
    const struct world *world = arg;
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;

    setenv("DIST_MPI_COLL", rank ? "native" : "plan", 1);
    options.backend = "gloo"; /* which does not look at it: the ranks must agree all the same */
    options.init_method = world->url;
    options.rank = rank;
    options.world_size = world->ranks;
    CHECK(dist_init_process_group(&options, &group) == DIST_ERR_MISMATCH);
    CHECK_SAYS("DIST_MPI_COLL=native", "DIST_MPI_COLL=plan");
    CHECK(!group);
}

static void test_native(void **state)
{
    (void)state;
    world_run(2, rank_wants_native);
}

/* A rank that changes a setting later cannot make a group with others, which keep working. */
static void rank_changes_its_mind(int rank, void *arg)
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

static void test_changed(void **state)
{
    (void)state;
    world_run(3, rank_changes_its_mind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reproducible),
        cmocka_unit_test(test_algorithms),
        cmocka_unit_test(test_native),
        cmocka_unit_test(test_changed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
