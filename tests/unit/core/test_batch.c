/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_group_start and dist_group_end: order, several groups, and calls from completion
 * functions. */
#include "job.h"

#define COUNT 1000

static dist_group *other_group(dist_group *group)
{
    dist_group *other = NULL;

    CHECK(dist_dup_group(group, NULL, &other) == DIST_OK);
    return other;
}

/* Only rank 0 batches its calls: their order must be the same on all ranks. */
static void mix(int rank, void *arg)
{
    const struct job *job = arg;
    dist_group *group = join(job, rank);
    int32_t first[COUNT], last[2] = {rank, rank + 1};
    void *lists[] = {&last[0], &last[1]};
    const size_t counts[] = {1, 1};

    for (int i = 0; i < COUNT; i++)
        first[i] = rank * i;
    CHECK(rank || dist_group_start() == DIST_OK);
    CHECK(dist_all_reduce(group, first, first, COUNT, DIST_INT32, DIST_SUM) == DIST_OK);
    CHECK(dist_all_reduce_coalesced(group, lists, counts, 2, DIST_INT32, DIST_MAX) == DIST_OK);
    CHECK(dist_barrier(group) == DIST_OK);
    CHECK(rank || dist_group_end() == DIST_OK);
    for (int i = 0; i < COUNT; i++)
        CHECK(first[i] == job->ranks * (job->ranks - 1) / 2 * i);
    CHECK(last[0] == job->ranks - 1 && last[1] == job->ranks);
    leave(group);
}

static void coalesced_calls_keep_their_order(void **state)
{
    (void)state;
    run(3, 10000, mix);
}

/* Without the progress thread, only waiting threads make progress, and each rank waits in another
 * order. */
static void wait_crosswise(int rank, void *arg)
{
    const struct job *job = arg;
    dist_group *groups[2];
    int32_t *data[2];

    setenv("DIST_PROGRESS_THREAD", "0", 1);
    groups[0] = join(job, rank);
    groups[1] = other_group(groups[0]);
    for (int g = 0; g < 2; g++) {
        data[g] = malloc(COUNT * COUNT * sizeof(int32_t));
        for (int i = 0; i < COUNT * COUNT; i++)
            data[g][i] = rank + g;
    }
    CHECK(dist_group_start() == DIST_OK);
    for (int i = 0; i < 2; i++) {
        int g = (i + rank) % 2;

        CHECK(dist_all_reduce(groups[g], data[g], data[g], (size_t)COUNT * COUNT, DIST_INT32,
                              DIST_MAX) == DIST_OK);
    }
    CHECK(dist_group_end() == DIST_OK);
    for (int g = 0; g < 2; g++) {
        for (int i = 0; i < COUNT * COUNT; i++)
            CHECK(data[g][i] == job->ranks - 1 + g);
        free(data[g]);
    }
    leave(groups[0]);
}

static void a_batch_makes_progress_on_all_its_groups(void **state)
{
    (void)state;
    run(2, 5000, wait_crosswise);
}

struct called {
    dist_group *group;
    int count;
    dist_status status[4];
};

/* Makes calls that a completion function must not make: each of them must fail and start
 * nothing. */
static void call_forbidden(void *arg, dist_status status)
{
    struct called *called = arg;
    int32_t value = 1;
    void *list[] = {&value};
    const size_t counts[] = {1};

    (void)status;
    called->status[0] = dist_all_reduce(called->group, &value, &value, 1, DIST_INT32, DIST_SUM);
    called->status[1] =
        dist_all_reduce_coalesced(called->group, list, counts, 1, DIST_INT32, DIST_SUM);
    called->status[2] = dist_group_start();
    called->status[3] = dist_group_end();
    called->count++;
}

/* The completion function runs in the thread whose batch is open, or which waits for its batch. */
static void call_within(int rank, void *arg)
{
    const struct job *job = arg;
    dist_group *group;
    dist_work *work;

    setenv("DIST_PROGRESS_THREAD", "0", 1);
    group = join(job, rank);
    for (int early = 0; early < 2; early++) {
        struct called called = {.group = group};
        int32_t sum[2] = {rank, rank};

        CHECK(dist_barrier_async(group, &work) == DIST_OK);
        CHECK(dist_on_complete(work, call_forbidden, &called) == DIST_OK);
        CHECK(dist_group_start() == DIST_OK);
        for (int i = 0; i < 2; i++)
            CHECK(dist_all_reduce(group, &sum[i], &sum[i], 1, DIST_INT32, DIST_SUM) == DIST_OK);
        CHECK(!early || dist_wait(work) == DIST_OK);
        CHECK(dist_group_end() == DIST_OK);
        CHECK(early || dist_wait(work) == DIST_OK);
        CHECK(called.count == 1);
        for (int i = 0; i < 4; i++)
            CHECK(called.status[i] == DIST_ERR_INVALID_ARGUMENT);
        for (int i = 0; i < 2; i++)
            CHECK(sum[i] == job->ranks * (job->ranks - 1) / 2);
    }
    leave(group);
}

static void completion_functions_cannot_use_the_batch(void **state)
{
    (void)state;
    run(2, 10000, call_within);
}

/* Waits for two receives without a send, of which the first has the shorter timeout. The error must
 * be that of the first. */
static void fail_twice(int rank, void *arg)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *world = join(arg, rank), *group = NULL, *other = NULL;
    int32_t x, y;

    options.timeout_ms = 400 * unit_patience();
    CHECK(dist_dup_group(world, &options, &group) == DIST_OK);
    options.timeout_ms = 1200 * unit_patience();
    CHECK(dist_dup_group(world, &options, &other) == DIST_OK);
    CHECK(dist_group_start() == DIST_OK);
    CHECK(dist_recv(group, &x, 1, DIST_INT32, 1 - rank, 5, NULL) == DIST_OK);
    CHECK(dist_recv(other, &y, 1, DIST_INT32, 1 - rank, 6, NULL) == DIST_OK);
    CHECK(dist_group_end() < 0);
    CHECK(strstr(dist_last_error(), "of group 1 "));
    dist_destroy_process_group(other);
    dist_destroy_process_group(group);
    dist_destroy_process_group(world);
}

static void the_first_failure_is_reported(void **state)
{
    (void)state;
    run(2, 10000, fail_twice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(the_first_failure_is_reported),
        test(coalesced_calls_keep_their_order),
        test(a_batch_makes_progress_on_all_its_groups),
        test(completion_functions_cannot_use_the_batch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
