/* SPDX-License-Identifier: BSD-3-Clause */
/* Many groups, in sequence and by several threads at once. */
#include "worlds.h"

#include "base/clock.h"
#include "base/descriptor.h"

#include <dirent.h>
#include <pthread.h>

static dist_group *make(dist_group *parent, const int *ranks, int count)
{
    dist_group *group = NULL;

    CHECK(dist_new_group(parent, ranks, count, NULL, &group) == DIST_OK);
    return group;
}

static int count_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    CHECK(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* The store's thread closes descriptors asynchronously, so this waits until there are no more than
 * `before`. */
static bool descriptors_return_to(int before)
{
    for (int tries = 0; tries < 500; tries++) {
        if (count_descriptors() <= before)
            return true;
        disti_sleep_ns(10 * 1000 * 1000);
    }
    return false;
}

static void rank_makes_many(int rank, void *arg)
{
    static const int lists[3][3] = {{0, 1, 2}, {2, 0, 1}, {1, 0, 2}};
    dist_group *world = world_join(arg, rank), *group;
    int before = 0;

    CHECK(disti_doorbell() >= 0); /* opens the descriptor that a thread needs when it sleeps */
    for (int i = 0; i < 51; i++) {
        if (i == 3) /* each rank has allocated the memory for its mailboxes */
            before = count_descriptors();
        group = make(world, lists[i % 3], 2 + i % 2);
        if (!group)
            continue;
        CHECK(dist_barrier(group) == DIST_OK);
        CHECK(dist_destroy_process_group(group) == DIST_OK);
    }
    CHECK(descriptors_return_to(before));
    CHECK(world_meet(world, rank, 7) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_many_groups_do_not_leak_descriptors(void **state)
{
    (void)state;
    world_run(3, rank_makes_many);
}

/* After enough groups, the structure of the first group is reused, here for a group that cannot be
 * made. The old handle must remain invalid. */
static void rank_reuses_handles(int rank, void *arg)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *first = NULL, *group = NULL;
    const int alone[] = {0};

    options.backend = "none-such";
    for (int i = 0; i < 1025; i++) {
        group = make(world, alone, 1);
        first = first ? first : group;
        CHECK(dist_destroy_process_group(group) == DIST_OK);
    }
    CHECK(dist_new_group(world, alone, 1, &options, &group) != DIST_OK);
    CHECK(dist_barrier(first) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_destroyed_handles_stay_invalid(void **state)
{
    (void)state;
    world_run(1, rank_reuses_handles);
}

struct maker {
    pthread_t thread;
    dist_group *world, *group;
    const int *ranks;
    int count, rank;
    int64_t set;
};

static void *maker_run(void *arg)
{
    struct maker *maker = arg;

    maker->group = make(maker->world, maker->ranks, maker->count);
    for (int i = 0; maker->group && i < 100; i++)
        CHECK(world_meet(maker->group, maker->rank, maker->set) == DIST_OK);
    return NULL;
}

/* Makes four groups at once: two of the same ranks, begun in the same order, and two in any order.
 * */
static void rank_makes_with_threads(int rank, void *arg)
{
    static const int all[] = {0, 1, 2}, two[] = {0, 1}, others[] = {2, 1};
    dist_group *world = world_join(arg, rank);
    struct maker makers[4] = {
        {.ranks = all, .count = 3, .set = 7},
        {.ranks = two, .count = 2, .set = 3},
        {.ranks = others, .count = 2, .set = 6},
        {.ranks = all, .count = 3, .set = 7},
    };

    for (int i = 0; i < 4; i++) {
        struct maker *maker = &makers[i % 3 == 0 ? i : (i + rank) % 2 + 1];

        maker->world = world;
        maker->rank = rank;
        CHECK(pthread_create(&maker->thread, NULL, maker_run, maker) == 0);
        disti_sleep_ns(i == 0 ? 300000000 : 0); /* the first call has begun */
    }
    for (int i = 0; i < 4; i++)
        pthread_join(makers[i].thread, NULL);
    CHECK(makers[0].group != makers[3].group);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_threads_make_groups_concurrently(void **state)
{
    (void)state;
    world_run(3, rank_makes_with_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_groups_do_not_leak_descriptors),
        cmocka_unit_test(test_destroyed_handles_stay_invalid),
        cmocka_unit_test(test_threads_make_groups_concurrently),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
