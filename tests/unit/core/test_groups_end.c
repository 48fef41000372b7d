/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups fail independently of each other, and are destroyed. */
#include "worlds.h"

#include <pthread.h>

static dist_group *make(dist_group *parent, const int *ranks, int count)
{
    dist_group *group = NULL;

    CHECK(dist_new_group(parent, ranks, count, NULL, &group) == DIST_OK);
    return group;
}

/* ---- failures ---- */

/* Rank 3 is killed: its groups fail, other groups continue, and new groups can be made. */
static void rank_loses_another(int rank, void *arg)
{
    static const int with[] = {2, 3}, without[] = {0, 1, 2};
    dist_group *world = world_join(arg, rank), *a = make(world, with, 2), *b, *c;

    b = make(world, without, 3);
    CHECK(world_meet(world, rank, 15) == DIST_OK);
    if (rank == 3)
        kill(getpid(), SIGKILL);
    CHECK(world_meet(world, rank, 15) == DIST_ERR_PEER_LOST);
    CHECK_SAYS("rank 3 (host ", "; ranks 0-2 are alive");
    CHECK(strstr(dist_last_error(), "was killed by signal 9 (SIGKILL)") ||
          strstr(dist_last_error(), "without leaving the job")); /* if its parent has reaped it */
    if (rank == 2) {
        CHECK(world_meet(a, rank, 12) == DIST_ERR_PEER_LOST);
        CHECK_SAYS("world rank 3, host ");
    }
    for (int i = 0; i < 50; i++)
        CHECK(world_meet(b, rank, 7) == DIST_OK);
    c = make(world, without, 3);
    CHECK(world_meet(c, rank, 7) == DIST_OK);
    CHECK(dist_new_group(world, with, 2, NULL, &a) == (rank == 2 ? DIST_ERR_PEER_LOST : DIST_OK));
    CHECK(dist_destroy_process_group(b) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_a_killed_rank_fails_only_its_groups(void **state)
{
    static const int codes[] = {0, 0, 0, 128 + SIGKILL};

    (void)state;
    world_run_codes(4, rank_loses_another, codes);
    setenv("DIST_TRANSPORT", "tcp", 1);
    world_run_codes(4, rank_loses_another, codes);
    unsetenv("DIST_TRANSPORT");
}

/* Large groups are opened with another algorithm, which must work without a lost rank too. */
#define MANY 48
#define MANY_SET ((INT64_C(1) << MANY) - 1)

static void rank_of_many_loses_another(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *rest;
    int ranks[MANY - 1];

    for (int i = 0; i < MANY - 1; i++)
        ranks[i] = i + 1 < MANY - 1 ? i : MANY - 1;
    CHECK(world_meet(world, rank, MANY_SET) == DIST_OK);
    if (rank == MANY - 2)
        kill(getpid(), SIGKILL);
    CHECK(world_meet(world, rank, 0) == DIST_ERR_PEER_LOST);
    for (int i = 0; i < 4; i++) { /* whatever the order in which ranks arrive */
        rest = make(world, ranks, MANY - 1);
        CHECK(world_meet(rest, rank, MANY_SET - (INT64_C(1) << (MANY - 2))) == DIST_OK);
        CHECK(dist_destroy_process_group(rest) == DIST_OK);
    }
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_many_survivors_make_new_groups(void **state)
{
    int codes[MANY] = {[MANY - 2] = 128 + SIGKILL};

    (void)state;
    world_run_codes(MANY, rank_of_many_loses_another, codes);
}

/* Rank 0 holds the store and is killed: groups without it continue. */
static void rank_loses_the_store(int rank, void *arg)
{
    static const int rest[] = {1, 2};
    dist_group *world = world_join(arg, rank), *b = make(world, rest, 2);

    CHECK(world_meet(world, rank, 7) == DIST_OK);
    if (rank == 0)
        kill(getpid(), SIGKILL);
    CHECK(world_meet(world, rank, 7) == DIST_ERR_PEER_LOST);
    CHECK_SAYS("rank 0 (host ");
    for (int i = 0; i < 50; i++)
        CHECK(world_meet(b, rank, 6) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_ERR_PEER_LOST); /* unconfirmed by the store */
}

static void test_groups_continue_without_the_store(void **state)
{
    static const int codes[] = {128 + SIGKILL, 0, 0};

    (void)state;
    world_run_codes(3, rank_loses_the_store, codes);
}

/* In a group, a lost rank is named by its rank in the group, like the other ranks in the
 * message. */
static void rank_is_named_in_a_group(int rank, void *arg)
{
    static const int turned[] = {2, 0, 1};
    dist_group *world = world_join(arg, rank), *group = make(world, turned, 3);

    CHECK(world_meet(group, rank, 7) == DIST_OK);
    if (rank == 0)
        _exit(0);
    CHECK(world_meet(group, rank, 7) == DIST_ERR_PEER_LOST);
    CHECK_SAYS("rank 1 (world rank 0, host ");
    (void)dist_destroy_process_group(world);
}

static void test_a_lost_rank_is_named_by_its_rank_in_the_group(void **state)
{
    (void)state;
    world_run(3, rank_is_named_in_a_group);
}

/* Makes different calls in one group: that group fails on its ranks, and no other group does. */
static void rank_mismatches(int rank, void *arg)
{
    static const int pair[] = {1, 0}, others[] = {2, 1};
    dist_group *world = world_join(arg, rank), *a = make(world, pair, 2), *b, *repeat;
    int32_t in[8] = {0}, out[8];
    dist_status status;

    b = make(world, others, 2);
    if (rank < 2) {
        status = dist_all_reduce(a, in, out, rank ? 8 : 5, DIST_INT32, DIST_SUM);
        CHECK(status == DIST_ERR_MISMATCH || status == DIST_ERR_PEER_LOST);
        CHECK(dist_barrier(a) == DIST_ERR_ABORTED);
        CHECK_SAYS("of group ", "world rank");
    }
    if (rank > 0)
        CHECK(world_meet(b, rank, 6) == DIST_OK);
    CHECK(world_meet(world, rank, 7) == DIST_OK);
    repeat = make(world, pair, 2);
    if (rank < 2)
        CHECK(world_meet(repeat, rank, 3) == DIST_OK);
    CHECK(dist_destroy_process_group(a) == DIST_OK); /* NULL on rank 2 */
    CHECK(world_meet(world, rank, 7) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_a_mismatch_fails_only_its_group(void **state)
{
    (void)state;
    world_run(3, rank_mismatches);
}

/* Rank 1 makes no call: the timeout of that group fails it on both ranks, and no other group. */
static void rank_is_silent(int rank, void *arg)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *twin;

    options.timeout_ms = 1000;
    CHECK(dist_dup_group(world, &options, &twin) == DIST_OK);
    if (rank == 0) {
        CHECK(world_meet(twin, rank, 3) == DIST_ERR_TIMEOUT);
        CHECK_SAYS("all_reduce #", "waited 1.", "of group ", "rank 1 (world rank 1, host ",
                   "silent");
    }
    CHECK(world_meet(world, rank, 3) == DIST_OK);
    if (rank == 1) {
        CHECK(world_meet(twin, rank, 3) == DIST_ERR_TIMEOUT);
        CHECK_SAYS("rank 0 (world rank 0, host ", "waited 1.");
    }
    /* A failure of the world does not fail its other groups. */
    CHECK(dist_dup_group(world, NULL, &twin) == DIST_OK);
    CHECK(rank == 0 ? dist_barrier(world) != DIST_OK
                    : dist_all_gather(world, &rank, &(int[2]){0}, 1, DIST_INT32) != DIST_OK);
    CHECK(world_meet(twin, rank, 3) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_a_timeout_fails_only_its_group(void **state)
{
    (void)state;
    world_run(2, rank_is_silent);
}

/* ---- the end ---- */

static void check_destroyed(dist_group *group)
{
    int32_t value = 1;
    dist_group *child = NULL;
    dist_work *work = NULL;

    CHECK(dist_get_rank(group) == -1 && dist_get_world_size(group) == -1);
    CHECK(dist_get_local_rank(group) == -1 && strcmp(dist_get_backend(group), "") == 0);
    CHECK(dist_get_global_rank(group, 0) == -1 && dist_get_group_rank(group, 0) == -1);
    CHECK(dist_all_reduce(group, &value, &value, 1, DIST_INT32, DIST_SUM) ==
          DIST_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("all_reduce", "was destroyed");
    CHECK(dist_barrier_async(group, &work) == DIST_ERR_INVALID_ARGUMENT && !work);
    CHECK(dist_send(group, &value, 1, DIST_INT32, 0, 0) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(dist_monitored_barrier(group, 0) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(dist_dup_group(group, NULL, &child) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(dist_split_group(group, 0, 0, NULL, &child) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(dist_new_group(group, &value, 1, NULL, &child) == DIST_ERR_INVALID_ARGUMENT && !child);
    CHECK(dist_destroy_process_group(group) == DIST_ERR_INVALID_ARGUMENT);
    CHECK_SAYS("was destroyed");
}

static void rank_uses_destroyed_groups(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *a, *b, *next;

    CHECK(dist_dup_group(world, NULL, &a) == DIST_OK);
    CHECK(dist_dup_group(a, NULL, &b) == DIST_OK);
    CHECK(dist_destroy_process_group(a) == DIST_OK);
    check_destroyed(a);
    CHECK(world_meet(b, rank, 3) == DIST_OK); /* a child does not need its parent */
    CHECK(dist_dup_group(world, NULL, &next) == DIST_OK);
    CHECK(next != a);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
    check_destroyed(world);
    check_destroyed(a);
    check_destroyed(b);
    check_destroyed(next);
}

static void test_destroyed_groups_are_rejected(void **state)
{
    (void)state;
    world_run(2, rank_uses_destroyed_groups);
}

/* The world is destroyed first: pending requests of its groups end before that, and can still be
 * waited for. */
static void rank_leaves_works(int rank, void *arg)
{
    static const int a[] = {0, 1}, b[] = {2, 1};
    dist_group *world = world_join(arg, rank), *group[2] = {make(world, a, 2), NULL};
    int64_t in = rank, out[2] = {-1, -1};
    dist_work *works[2] = {NULL};

    group[1] = make(world, b, 2);
    for (int i = 0; i < 2; i++) {
        if (group[i])
            CHECK(dist_all_reduce_async(group[i], &in, &out[i], 1, DIST_INT64, DIST_SUM,
                                        &works[i]) == DIST_OK);
    }
    CHECK(dist_destroy_process_group(world) == DIST_OK);
    for (int i = 0; i < 2; i++) {
        if (group[i]) {
            CHECK(dist_wait(works[i]) == DIST_OK);
            CHECK(out[i] == (i ? 3 : 1));
            check_destroyed(group[i]);
        }
    }
}

static void test_destroying_the_world_completes_requests(void **state)
{
    (void)state;
    world_run(3, rank_leaves_works);
}

/* Rank 1 does not leave the group: rank 0 waits until the timeout, and the group fails on both. */
static void rank_does_not_leave(int rank, void *arg)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *twin;

    options.timeout_ms = 500;
    CHECK(dist_dup_group(world, &options, &twin) == DIST_OK);
    if (rank == 0) {
        CHECK(dist_destroy_process_group(twin) == DIST_ERR_TIMEOUT);
        CHECK_SAYS("rank 1 (host ", "did not arrive");
        check_destroyed(twin);
    }
    CHECK(dist_barrier(world) == DIST_OK);
    if (rank == 1) {
        CHECK(world_meet(twin, rank, 3) == DIST_ERR_TIMEOUT);
        CHECK(dist_destroy_process_group(twin) == DIST_OK);
    }
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_leaving_alone_times_out(void **state)
{
    (void)state;
    world_run(2, rank_does_not_leave);
}

/* ---- the monitored barrier ---- */

/* Ranks 1 and 2 are late: ranks 0 and 3 get an error that names them, and the group remains
 * usable. */
static void rank_is_monitored(int rank, void *arg)
{
    static const int list[] = {3, 2, 0};
    dist_group *world = world_join(arg, rank), *group = make(world, list, 3);

    CHECK(dist_monitored_barrier(world, 0) == DIST_OK);
    if (rank == 1 || rank == 2)
        disti_sleep_ns(900000000);
    if (rank == 0 || rank == 3) {
        CHECK(dist_monitored_barrier(world, 300) == DIST_ERR_TIMEOUT);
        CHECK_SAYS(" 1 (host ", " 2 (host ", "did not arrive");
        CHECK(dist_monitored_barrier(group, 100) == DIST_ERR_TIMEOUT);
        CHECK_SAYS("1 (world rank 2, host ");
    } else {
        CHECK(dist_monitored_barrier(world, 0) == DIST_OK);
        if (group)
            CHECK(dist_monitored_barrier(group, 0) == DIST_OK);
    }
    CHECK(dist_monitored_barrier(world, -1) == DIST_ERR_INVALID_ARGUMENT);
    CHECK(world_meet(world, rank, 15) == DIST_OK);
    CHECK(dist_monitored_barrier(world, 0) == DIST_OK);
    if (group)
        CHECK(world_meet(group, rank, 13) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_a_monitored_barrier_names_late_ranks(void **state)
{
    (void)state;
    world_run(4, rank_is_monitored);
}

static void *receive_forever(void *group)
{
    int32_t value;

    dist_recv(group, &value, 1, DIST_INT32, 0, 7, NULL);
    return NULL;
}

/* A waiting thread is cancelled: it ends after its call has ended, and other threads can use the
 * group. */
static void rank_cancels_a_thread(int rank, void *arg)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *group;
    int32_t one = 1, sum;
    pthread_t thread;

    options.timeout_ms = 5000 * unit_patience();
    CHECK(dist_dup_group(world, &options, &group) == DIST_OK);
    if (rank == 1) {
        CHECK(pthread_create(&thread, NULL, receive_forever, group) == 0);
        disti_sleep_ns(300000000);
        CHECK(pthread_cancel(thread) == 0);
    }
    CHECK(dist_all_reduce(group, &one, &sum, 1, DIST_INT32, DIST_SUM) == DIST_OK);
    CHECK(sum == 2);
    if (rank == 1)
        CHECK(pthread_join(thread, NULL) == 0);
    dist_destroy_process_group(group); /* the group has failed on the rank that receives */
    CHECK(world_meet(world, rank, 3) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_a_cancelled_thread_leaves_the_group_usable(void **state)
{
    (void)state;
    world_run(2, rank_cancels_a_thread);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_rank_fails_only_its_groups),
        cmocka_unit_test(test_groups_continue_without_the_store),
        cmocka_unit_test(test_a_lost_rank_is_named_by_its_rank_in_the_group),
        cmocka_unit_test(test_a_mismatch_fails_only_its_group),
        cmocka_unit_test(test_a_timeout_fails_only_its_group),
        cmocka_unit_test(test_destroyed_groups_are_rejected),
        cmocka_unit_test(test_destroying_the_world_completes_requests),
        cmocka_unit_test(test_leaving_alone_times_out),
        cmocka_unit_test(test_a_monitored_barrier_names_late_ranks),
        cmocka_unit_test(test_many_survivors_make_new_groups),
        cmocka_unit_test(test_a_cancelled_thread_leaves_the_group_usable),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
