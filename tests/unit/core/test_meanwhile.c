/* SPDX-License-Identifier: BSD-3-Clause */
/* The group option `meanwhile`: a function that is called while a call waits. */
#include "worlds.h"

#include "base/clock.h"

#include <stdatomic.h>
#include <sys/mman.h>

#define LATE_NS (50 * 1000 * 1000)
/* Minimum number of calls of the function while rank 0 waits for rank 1. */
#define LATE_CALLS 50

/* Number of calls on rank 0, in memory shared with rank 1. */
static atomic_int *calls;

static void count_call(void *arg)
{
    atomic_fetch_add((atomic_int *)arg, 1);
}

static void count_nothing(void *arg)
{
    (void)arg;
}

static dist_group *make_counted(dist_group *parent, int rank)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *group = NULL;

    options.meanwhile = rank == 0 ? count_call : count_nothing;
    options.meanwhile_arg = calls;
    CHECK(dist_dup_group(parent, &options, &group) == DIST_OK);
    return group;
}

/* Rank 1 waits until `least` calls have been made and some time has passed. */
static void come_late(int least)
{
    int64_t soon = disti_deadline_ms(UNIT_SOON_MS);
    int before = atomic_load(calls);

    disti_sleep_ns(LATE_NS);
    while (atomic_load(calls) - before < least && !disti_expired(soon))
        disti_sleep_ns(1000 * 1000);
}

/* Rank 1 is late. Returns on rank 0 the number of calls of its function until then. */
static int wait_for_late(dist_group *group, int rank, bool starts, int least)
{
    int before = atomic_load(calls);
    dist_work *work;

    if (rank == 1)
        come_late(least);
    if (starts) {
        CHECK(dist_barrier_async(group, &work) == DIST_OK);
        CHECK(dist_wait(work) == DIST_OK);
    } else {
        CHECK(dist_barrier(group) == DIST_OK);
    }
    return rank == 0 ? atomic_load(calls) - before : 0;
}

static void rank_waits(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *counted, *child;

    counted = make_counted(world, rank);
    CHECK(dist_dup_group(counted, NULL, &child) == DIST_OK);
    for (int starts = 0; starts < 2; starts++) {
        int64_t began = disti_now_ns();
        int mine = wait_for_late(counted, rank, starts, LATE_CALLS);

        CHECK(rank == 1 || mine >= LATE_CALLS);
        CHECK(rank == 1 || mine <= (disti_now_ns() - began) / 1000000 * 4);
        CHECK(wait_for_late(child, rank, starts, 0) == 0);
        CHECK(wait_for_late(world, rank, starts, 0) == 0);
    }
    CHECK(dist_destroy_process_group(child) == DIST_OK);
    CHECK(dist_destroy_process_group(counted) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_the_function_is_called_while_waiting(void **state)
{
    (void)state;
    world_run(2, rank_waits);
}

/* Options of a program that was built before the option existed. */
static void rank_has_old_options(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *group = NULL;
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;

    options.size = offsetof(struct dist_group_options, meanwhile);
    options.meanwhile = count_call;
    options.meanwhile_arg = calls;
    CHECK(dist_dup_group(world, &options, &group) == DIST_OK);
    CHECK(wait_for_late(group, rank, false, 0) == 0);
    CHECK(dist_destroy_process_group(group) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_older_options_have_no_function(void **state)
{
    (void)state;
    world_run(2, rank_has_old_options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_function_is_called_while_waiting),
        cmocka_unit_test(test_older_options_have_no_function),
    };

    calls = mmap(NULL, sizeof(*calls), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (calls == MAP_FAILED)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
