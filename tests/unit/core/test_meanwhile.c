/* SPDX-License-Identifier: BSD-3-Clause */
/* A group's function for what else has to move while a call waits. */
#include "worlds.h"

#include "base/clock.h"

#define LATE_NS (100 * 1000 * 1000)
/* In so long a wait it is called some hundred times, on a loaded machine less often. */
#define LATE_CALLS 5

static void count_call(void *arg)
{
    ++*(int *)arg;
}

static dist_group *make_counted(dist_group *parent, int *calls)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *group = NULL;

    options.meanwhile = count_call;
    options.meanwhile_arg = calls;
    CHECK(dist_dup_group(parent, &options, &group) == DIST_OK);
    return group;
}

/* Rank 1 comes late; rank 0 returns how often its function was called until then. */
static int wait_for_late(dist_group *group, int rank, bool starts, int *calls)
{
    int before = *calls;
    dist_work *work;

    if (rank == 1)
        disti_sleep_ns(LATE_NS);
    if (starts) {
        CHECK(dist_barrier_async(group, &work) == DIST_OK);
        CHECK(dist_wait(work) == DIST_OK);
    } else {
        CHECK(dist_barrier(group) == DIST_OK);
    }
    return *calls - before;
}

static void rank_waits(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *counted, *child;
    int calls = 0;

    counted = make_counted(world, &calls);
    CHECK(dist_dup_group(counted, NULL, &child) == DIST_OK);
    for (int starts = 0; starts < 2; starts++) {
        int mine = wait_for_late(counted, rank, starts, &calls);

        CHECK(rank == 1 || mine >= LATE_CALLS);
        CHECK(rank == 1 || mine <= LATE_NS / 1000000 * 4); /* late itself, it may wait longer */
        CHECK(wait_for_late(child, rank, starts, &calls) == 0);
        CHECK(wait_for_late(world, rank, starts, &calls) == 0);
    }
    CHECK(dist_destroy_process_group(child) == DIST_OK);
    CHECK(dist_destroy_process_group(counted) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_waits(void **state)
{
    (void)state;
    world_run(2, rank_waits);
}

/* Options of a program that was built before there was such a function. */
static void rank_has_old_options(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *group = NULL;
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    int calls = 0;

    options.size = offsetof(struct dist_group_options, meanwhile);
    options.meanwhile = count_call;
    options.meanwhile_arg = &calls;
    CHECK(dist_dup_group(world, &options, &group) == DIST_OK);
    CHECK(wait_for_late(group, rank, false, &calls) == 0);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_old_options(void **state)
{
    (void)state;
    world_run(2, rank_has_old_options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_old_options),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
