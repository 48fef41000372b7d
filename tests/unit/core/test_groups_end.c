/* SPDX-License-Identifier: BSD-3-Clause */
/* How groups fail, each for itself, and how they are left. */
#include "worlds.h"

#include <pthread.h>

static dist_group *make(dist_group *parent, const int *ranks, int count)
{
    dist_group *group = NULL;

    CHECK(dist_new_group(parent, ranks, count, NULL, &group) == DIST_OK);
    return group;
}

/* ---- failures ---- */

/* Rank 3 is killed: what it was in ends, what it was not in goes on, and new groups can be made. */
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
          strstr(dist_last_error(), "without leaving the job")); /* its parent has waited for it */
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

static void test_killed_rank(void **state)
{
    static const int codes[] = {0, 0, 0, 128 + SIGKILL};

    (void)state;
    world_run_codes(4, rank_loses_another, codes);
    setenv("DIST_TRANSPORT", "tcp", 1);
    world_run_codes(4, rank_loses_another, codes);
    unsetenv("DIST_TRANSPORT");
}

/* With so many ranks a group is opened by other means: it must be made without the lost one too. */
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
    for (int i = 0; i < 4; i++) { /* whoever gets ahead of whom */
        rest = make(world, ranks, MANY - 1);
        CHECK(world_meet(rest, rank, MANY_SET - (INT64_C(1) << (MANY - 2))) == DIST_OK);
        CHECK(dist_destroy_process_group(rest) == DIST_OK);
    }
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_many_survivors(void **state)
{
    int codes[MANY] = {[MANY - 2] = 128 + SIGKILL};

    (void)state;
    world_run_codes(MANY, rank_of_many_loses_another, codes);
}

/* Rank 0 holds the store, and is killed: those who do not need it go on. */
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
    CHECK(dist_destroy_process_group(world) == DIST_ERR_PEER_LOST); /* nobody tells that all came */
}

static void test_killed_store(void **state)
{
    static const int codes[] = {128 + SIGKILL, 0, 0};

    (void)state;
    world_run_codes(3, rank_loses_the_store, codes);
}

/* Who is lost in a group is named by its rank there, as all others in the sentence are. */
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

static void test_named_in_a_group(void **state)
{
    (void)state;
    world_run(3, rank_is_named_in_a_group);
}

/* Different calls in one group: it ends on its ranks, and nothing else does. */
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

static void test_mismatch(void **state)
{
    (void)state;
    world_run(3, rank_mismatches);
}

/* Rank 1 does not call: the deadline of that group, and of no other, ends it for both. */
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
    /* The world's failure is the world's alone, too. */
    CHECK(dist_dup_group(world, NULL, &twin) == DIST_OK);
    CHECK(rank == 0 ? dist_barrier(world) != DIST_OK
                    : dist_all_gather(world, &rank, &(int[2]){0}, 1, DIST_INT32) != DIST_OK);
    CHECK(world_meet(twin, rank, 3) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_timeout(void **state)
{
    (void)state;
    world_run(2, rank_is_silent);
}

/* ---- the end ---- */

static void check_gone(dist_group *group)
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

static void rank_uses_what_is_gone(int rank, void *arg)
{
    dist_group *world = world_join(arg, rank), *a, *b, *next;

    CHECK(dist_dup_group(world, NULL, &a) == DIST_OK);
    CHECK(dist_dup_group(a, NULL, &b) == DIST_OK);
    CHECK(dist_destroy_process_group(a) == DIST_OK);
    check_gone(a);
    CHECK(world_meet(b, rank, 3) == DIST_OK); /* a child does not need its parent */
    CHECK(dist_dup_group(world, NULL, &next) == DIST_OK);
    CHECK(next != a);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
    check_gone(world);
    check_gone(a);
    check_gone(b);
    check_gone(next);
}

static void test_gone(void **state)
{
    (void)state;
    world_run(2, rank_uses_what_is_gone);
}

/* The world is destroyed first: pending works of its groups end before, and can be waited for. */
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
            check_gone(group[i]);
        }
    }
}

static void test_world_first(void **state)
{
    (void)state;
    world_run(3, rank_leaves_works);
}

/* Rank 1 stays in the group: rank 0 waits for it for a while only, and both are told. */
static void rank_does_not_leave(int rank, void *arg)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *twin;

    options.timeout_ms = 500;
    CHECK(dist_dup_group(world, &options, &twin) == DIST_OK);
    if (rank == 0) {
        CHECK(dist_destroy_process_group(twin) == DIST_ERR_TIMEOUT);
        CHECK_SAYS("rank 1 (host ", "did not arrive");
        check_gone(twin);
    }
    CHECK(dist_barrier(world) == DIST_OK);
    if (rank == 1) {
        CHECK(world_meet(twin, rank, 3) == DIST_ERR_TIMEOUT);
        CHECK(dist_destroy_process_group(twin) == DIST_OK);
    }
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_one_leaves(void **state)
{
    (void)state;
    world_run(2, rank_does_not_leave);
}

/* ---- the monitored barrier ---- */

/* Ranks 1 and 2 are late: rank 0 and 3 learn it; all go on, in the same group. */
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

static void test_monitored_barrier(void **state)
{
    (void)state;
    world_run(4, rank_is_monitored);
}

static void *receives_for_ever(void *group)
{
    int32_t value;

    dist_recv(group, &value, 1, DIST_INT32, 0, 7, NULL);
    return NULL;
}

/* A thread that waits is cancelled: it ends when its call has, and others can use the group. */
static void rank_cancels_a_thread(int rank, void *arg)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = world_join(arg, rank), *group;
    int32_t one = 1, sum;
    pthread_t thread;

    options.timeout_ms = 5000 * unit_patience();
    CHECK(dist_dup_group(world, &options, &group) == DIST_OK);
    if (rank == 1) {
        CHECK(pthread_create(&thread, NULL, receives_for_ever, group) == 0);
        disti_sleep_ns(300000000);
        CHECK(pthread_cancel(thread) == 0);
    }
    CHECK(dist_all_reduce(group, &one, &sum, 1, DIST_INT32, DIST_SUM) == DIST_OK);
    CHECK(sum == 2);
    if (rank == 1)
        CHECK(pthread_join(thread, NULL) == 0);
    dist_destroy_process_group(group); /* which has failed where the receive was */
    CHECK(world_meet(world, rank, 3) == DIST_OK);
    CHECK(dist_destroy_process_group(world) == DIST_OK);
}

static void test_cancelled_thread(void **state)
{
    (void)state;
    world_run(2, rank_cancels_a_thread);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_rank),       cmocka_unit_test(test_killed_store),
        cmocka_unit_test(test_named_in_a_group),  cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_timeout),           cmocka_unit_test(test_gone),
        cmocka_unit_test(test_world_first),       cmocka_unit_test(test_one_leaves),
        cmocka_unit_test(test_monitored_barrier), cmocka_unit_test(test_many_survivors),
        cmocka_unit_test(test_cancelled_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
