/* SPDX-License-Identifier: BSD-3-Clause */
/* If a rank is lost or silent, every thread that waits for a request gets an error, and so does a
 * program that waits for none. */
#include "job.h"

#define THREADS 3
#define SILENT_MS 4000 /* also the limit for joining */

struct waiter {
    pthread_t thread;
    dist_work *work;
    dist_status status;
    char error[512];
};

static void *wait_for_work(void *arg)
{
    struct waiter *waiter = arg;

    waiter->status = dist_wait(waiter->work);
    snprintf(waiter->error, sizeof(waiter->error), "%s", dist_last_error());
    return NULL;
}

/* Checks that every thread's error names rank `lost`. */
static void wait_in_threads(dist_group *group, int lost, dist_status expected)
{
    struct waiter waiters[THREADS];
    char name[16];

    snprintf(name, sizeof(name), "rank %d", lost);
    for (int t = 0; t < THREADS; t++)
        CHECK(dist_barrier_async(group, &waiters[t].work) == DIST_OK);
    for (int t = 0; t < THREADS; t++) {
        pthread_create(&waiters[t].thread, NULL, wait_for_work, &waiters[t]);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(waiters[t].thread, NULL);
        fprintf(stderr, "thread %d: %s: %s\n", t, dist_status_string(waiters[t].status),
                waiters[t].error);
        CHECK(waiters[t].status == expected || waiters[t].status == DIST_ERR_PEER_LOST);
        CHECK(strstr(waiters[t].error, name));
    }
}

static void lose_one(int rank, void *arg)
{
    dist_group *group = join(arg, rank);

    CHECK(dist_barrier(group) == DIST_OK);
    if (rank == 2) {
        disti_sleep_ns(unit_patience() * 100 * INT64_C(1000000));
        _exit(0); /* without leaving the job */
    }
    wait_in_threads(group, 2, DIST_ERR_PEER_LOST);
    dist_destroy_process_group(group);
}

static void a_lost_rank_ends_the_wait_of_every_thread(void **state)
{
    (void)state;
    run(3, 20000, lose_one);
}

static void make_no_calls(int rank, void *arg)
{
    const struct job *job = arg;
    dist_group *group = join(job, rank);

    CHECK(dist_barrier(group) == DIST_OK);
    if (rank == 1)
        disti_sleep_ns(2 * job->timeout_ms * INT64_C(1000000));
    else
        wait_in_threads(group, 1, DIST_ERR_TIMEOUT);
    dist_destroy_process_group(group);
}

static void a_silent_rank_is_named(void **state)
{
    (void)state;
    run(2, SILENT_MS, make_no_calls);
}

#define CALLS 40

/* Rank 1's calls differ, which ranks 0 and 1 detect before rank 2 makes any call. */
static void come_late(int rank, void *arg)
{
    dist_work *works[CALLS];
    float data[CALLS] = {0};
    dist_status status = DIST_OK;
    dist_group *group;
    int started = 0;

    setenv("DIST_NODE_MEMORY", "0", 1);
    group = join(arg, rank);
    if (rank == 2)
        disti_sleep_ns(unit_patience() * 500 * INT64_C(1000000));
    for (int i = 0; i < CALLS && status == DIST_OK; i++) {
        status =
            dist_broadcast_async(group, &data[i], 1, DIST_FLOAT32, rank == 1 ? 1 : 0, &works[i]);
        started += status == DIST_OK;
    }
    for (int i = 0; i < started && status == DIST_OK; i++)
        status = dist_wait(works[i]);
    fprintf(stderr, "rank %d: %s: %s\n", rank, dist_status_string(status), dist_last_error());
    CHECK(status == DIST_ERR_MISMATCH);
    CHECK(strstr(dist_last_error(), "called broadcast"));
    dist_destroy_process_group(group);
}

static void a_late_rank_gets_the_cause_of_a_mismatch(void **state)
{
    (void)state;
    run(3, 20000, come_late);
}

static atomic_int failure_seen;

static void store_failure(void *arg, dist_status status)
{
    (void)arg;
    atomic_store(&failure_seen,
                 status == DIST_ERR_PEER_LOST && strstr(dist_last_error(), "rank 1") ? 1 : -1);
}

/* No thread waits or tests: the progress thread detects the loss. */
static void lose_one_unwatched(int rank, void *arg)
{
    dist_group *group = join(arg, rank);
    dist_work *work;

    CHECK(dist_barrier(group) == DIST_OK);
    if (rank == 1) {
        disti_sleep_ns(unit_patience() * 100 * INT64_C(1000000));
        _exit(0);
    }
    CHECK(dist_barrier_async(group, &work) == DIST_OK);
    CHECK(dist_on_complete(work, store_failure, NULL) == DIST_OK);
    CHECK(within(10000, &failure_seen));
    CHECK(dist_wait(work) == DIST_ERR_PEER_LOST);
    dist_destroy_process_group(group);
}

static void a_loss_is_detected_while_the_program_computes(void **state)
{
    (void)state;
    run(2, 20000, lose_one_unwatched);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(a_lost_rank_ends_the_wait_of_every_thread),
        test(a_silent_rank_is_named),
        test(a_late_rank_gets_the_cause_of_a_mismatch),
        test(a_loss_is_detected_while_the_program_computes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
