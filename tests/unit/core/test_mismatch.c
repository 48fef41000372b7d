/* SPDX-License-Identifier: BSD-3-Clause */
/* Mismatched calls result in the same status on all ranks, even if no rank waited, and in errors
 * that name the calls. */
#include "job.h"

#define JOIN_MS 20000
#define SHORT_MS 1000
#define LONG_COUNT 400000 /* more than a megabyte, so that its send waits for the receive */

static float data[LONG_COUNT];

static dist_group *duplicate_group(dist_group *world, int timeout_ms)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_group *group = NULL;

    options.timeout_ms = timeout_ms * unit_patience();
    CHECK(dist_dup_group(world, &options, &group) == DIST_OK);
    return group;
}

/* ---- no rank waits ---- */

static void leave_with_mismatch(dist_group *group, const char *call, const char *other)
{
    CHECK(dist_destroy_process_group(group) == DIST_ERR_MISMATCH);
    CHECK_SAYS(call, other);
}

/* Makes mismatched calls that end immediately on every rank, and leaves. */
static void call_and_leave(int rank, void *arg)
{
    dist_group *world = join(arg, rank), *group = duplicate_group(world, JOIN_MS);

    for (int i = 0; i < 70; i++)
        CHECK(dist_all_reduce(group, data, data + 1, 1, DIST_FLOAT32, DIST_SUM) == DIST_OK);
    CHECK(dist_destroy_process_group(group) == DIST_OK);

    group = duplicate_group(world, JOIN_MS);
    if (dist_broadcast(group, data, 5, DIST_FLOAT32, rank) == DIST_OK)
        leave_with_mismatch(group, "root 0", "root 1");
    else
        CHECK(dist_destroy_process_group(group) == DIST_OK);

    group = duplicate_group(world, JOIN_MS);
    CHECK(dist_reduce(group, data, data + 9, 5, DIST_FLOAT32, DIST_SUM, rank ^ 1) == DIST_OK);
    leave_with_mismatch(group, "rank 0 called reduce(count 5, float32, sum, root 1)",
                        "rank 1 called reduce(count 5, float32, sum, root 0)");

    group = duplicate_group(world, JOIN_MS);
    if (rank == 0)
        CHECK(dist_broadcast(group, data, 5, DIST_FLOAT32, 0) == DIST_OK);
    leave_with_mismatch(group, "rank 0 called broadcast", "rank 1 called nothing");
    leave(world);
}

/* Messages are not part of the compared calls, whether they are recorded or not. */
static void send_and_leave(int rank, void *arg)
{
    dist_group *world = join(arg, rank);

    CHECK(dist_all_reduce(world, data, data + 1, 1, DIST_FLOAT32, DIST_SUM) == DIST_OK);
    if (rank == 0)
        CHECK(dist_send(world, data, 1, DIST_FLOAT32, 1, 3) == DIST_OK);
    else if (rank == 1)
        CHECK(dist_recv(world, data, 1, DIST_FLOAT32, 0, 3, NULL) == DIST_OK);
    leave(world);
}

static void unrecorded_messages_are_no_mismatch(void **state)
{
    (void)state;
    setenv("DIST_FLIGHT", "0", 1);
    run(3, JOIN_MS, send_and_leave);
    unsetenv("DIST_FLIGHT");
    run(3, JOIN_MS, send_and_leave);
}

static void mismatches_are_detected_when_leaving(void **state)
{
    (void)state;
    run(2, JOIN_MS, call_and_leave);
}

/* ---- one status ---- */

/* Rank 1's receive does not match; ranks 2 and 3 are not involved in it. */
static void mismatch_two(int rank, void *arg)
{
    static const int members[] = {1, 2, 3};
    const struct job *job = arg;
    dist_group *world = join(job, rank), *group = NULL;
    dist_status status;

    CHECK(dist_new_group(world, members, 3, NULL, &group) == DIST_OK);
    CHECK(dist_barrier(world) == DIST_OK);
    if (rank == 0 && job->ranks == 5) { /* its exit ends the store */
        disti_sleep_ns(unit_patience() * 50 * INT64_C(1000000));
        _exit(0);
    }
    while (job->ranks == 5 && dist_barrier(world) == DIST_OK) /* until rank 0's loss is detected */
        ;
    if (rank == 1)
        status = dist_recv(group, data, 6, DIST_FLOAT32, 1, 7, NULL);
    else if (rank == 2)
        status = dist_send(group, data, 5, DIST_FLOAT32, 0, 7);
    else
        status = group ? dist_barrier(group) : DIST_OK;
    if (rank == 1 || rank == 3)
        CHECK(status == DIST_ERR_MISMATCH);
    if (rank == 2 && status == DIST_OK)
        status = dist_barrier(group);
    if (rank == 2)
        CHECK(status == DIST_ERR_MISMATCH);
    if (group && job->ranks == 4)
        CHECK_SAYS("receives 6 x float32 with tag 7 from rank 1, which sent 5");
    dist_destroy_process_group(world);
}

static void all_ranks_return_the_same_status(void **state)
{
    (void)state;
    run(4, JOIN_MS, mismatch_two);
}

static void all_ranks_return_the_same_status_without_a_store(void **state)
{
    (void)state;
    run(5, JOIN_MS, mismatch_two);
}

/* ---- causes in timeouts ---- */

static void check_wait(dist_work *work, const char *text, const char *more_text)
{
    CHECK(dist_wait(work) == DIST_ERR_TIMEOUT);
    CHECK_SAYS(text, more_text);
}

/* Waits in four groups, so that their timeouts elapse at the same time. */
static void wait_for_timeouts(int rank, void *arg)
{
    static const int all[] = {0, 1, 2}, two[] = {0, 1};
    dist_group *world = join(arg, rank), *tags = duplicate_group(world, SHORT_MS);
    dist_group *sends = duplicate_group(world, SHORT_MS), *own = duplicate_group(world, SHORT_MS),
               *made = NULL;
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    dist_work *tag = NULL, *send = NULL, *self = NULL;

    options.timeout_ms = SHORT_MS * unit_patience();
    if (rank == 0)
        CHECK(dist_isend(tags, data, 5, DIST_FLOAT32, 1, 7, &tag) == DIST_OK);
    else if (rank == 1)
        CHECK(dist_irecv(tags, data, 5, DIST_FLOAT32, 0, 8, NULL, &tag) == DIST_OK);
    if (rank < 2)
        CHECK(dist_isend(sends, data, LONG_COUNT, DIST_FLOAT32, rank ^ 1, 3, &send) == DIST_OK);
    if (rank == 0)
        CHECK(dist_isend(own, data, 5, DIST_FLOAT32, 0, 4, &self) == DIST_OK);
    else if (rank == 1)
        CHECK(dist_irecv(own, data, 5, DIST_FLOAT32, 1, 4, NULL, &self) == DIST_OK);

    CHECK(dist_new_group(world, rank ? all : two, rank ? 3 : 2, &options, &made) ==
          DIST_ERR_TIMEOUT);
    CHECK_SAYS("world ranks 0-2", "world ranks 0, 1", "different lists");
    CHECK(!strstr(dist_last_error(), "dist/"));
    if (rank == 1)
        check_wait(tag, "from rank 0, tag 8", "a message with tag 7 from rank 0 (20 bytes)");
    else if (rank == 0)
        dist_wait(tag);
    if (rank < 2) {
        check_wait(send, "dist_isend", "dist_group_start");
        check_wait(self, rank ? "no send with tag 4" : "no receive with tag 4",
                   "which is this rank");
    }
    dist_destroy_process_group(world);
}

static void timeouts_name_the_likely_cause(void **state)
{
    (void)state;
    run(3, JOIN_MS, wait_for_timeouts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(mismatches_are_detected_when_leaving),
        test(unrecorded_messages_are_no_mismatch),
        test(all_ranks_return_the_same_status),
        test(all_ranks_return_the_same_status_without_a_store),
        cmocka_unit_test_setup(timeouts_name_the_likely_cause, over_tcp),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
