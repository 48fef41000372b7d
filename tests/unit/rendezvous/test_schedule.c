/* SPDX-License-Identifier: BSD-3-Clause */
/* A scheduler process serves its job and returns how it ended. */
#include "ranks.h"

#include "store/store.h"

#define WAIT_MS 20000

struct job {
    struct disti_store_server *server;
    int ranks, port;
};

static struct disti_store *join(const struct job *job)
{
    struct disti_store *store = NULL;

    CHECK(ranks_connect("127.0.0.1", job->port, -1, job->ranks, WAIT_MS, &store) == DIST_OK);
    return store;
}

static void barrier(struct disti_store *store)
{
    CHECK(disti_store_all_gather(store, NULL, "barrier", NULL, NULL, 0, WAIT_MS) == DIST_OK);
}

/* Schedules a job of `ranks` ranks in this process; `started` of them join and call fn. Returns the
 * scheduler's status. */
static dist_status schedule(int ranks, int started, ranks_fn fn, int timeout_ms)
{
    struct job job = {.ranks = ranks};
    struct ranks processes;
    dist_status status;

    assert_int_equal(disti_store_server_listen("127.0.0.1", 0, ranks, 0, &job.server), DIST_OK);
    job.port = disti_store_server_port(job.server);
    ranks_start(&processes, started, fn, &job);
    status = disti_store_server_schedule(job.server, timeout_ms);
    ranks_finish(&processes);
    for (int r = 0; r < started; r++)
        assert_int_equal(processes.codes[r], 0);
    return status;
}

/* Two groups in succession, with a gap between them that is shorter than the time that the
 * scheduler waits. */
static void rank_joins_twice(int rank, void *job)
{
    (void)rank;
    for (int i = 0; i < 2; i++) {
        struct disti_store *store = join(job);

        barrier(store);
        disti_store_close(store);
        disti_sleep_ns(200 * 1000000);
    }
}

static void test_a_scheduler_ends_after_its_job(void **state)
{
    (void)state;
    assert_int_equal(schedule(3, 3, rank_joins_twice, WAIT_MS), DIST_OK);
}

static void rank_may_die(int rank, void *job)
{
    struct disti_store *store = join(job);

    (void)rank;
    barrier(store);
    if (store->rank == 1)
        _exit(0);
    CHECK(disti_store_all_gather(store, NULL, "again", NULL, NULL, 0, WAIT_MS) ==
          DIST_ERR_PEER_LOST);
    disti_store_close(store);
}

static void test_a_lost_rank_is_reported(void **state)
{
    (void)state;
    assert_int_equal(schedule(3, 3, rank_may_die, WAIT_MS), DIST_ERR_PEER_LOST);
    assert_non_null(strstr(dist_last_error(), "rank 1 "));
}

/* Waits for the other ranks until the scheduler ends, and gets an error that names them. */
static void rank_joins_alone(int rank, void *job)
{
    struct disti_store *store = join(job);

    (void)rank;
    CHECK(disti_store_all_gather(store, NULL, "barrier", NULL, NULL, 0, WAIT_MS) ==
          DIST_ERR_TIMEOUT);
    CHECK_SAYS("the scheduler stopped waiting; missing: rank 1, 2");
    disti_store_close(store);
}

static void test_missing_ranks_are_named(void **state)
{
    (void)state;
    assert_int_equal(schedule(3, 1, rank_joins_alone, 500), DIST_ERR_TIMEOUT);
    assert_non_null(strstr(dist_last_error(), "1 have joined; missing: rank 1, 2"));
}

/* If a rank is lost before all ranks have joined, the scheduler does not wait for the full
 * timeout. */
static void rank_dies_early(int rank, void *job)
{
    (void)rank;
    join(job);
}

static void test_an_early_loss_ends_the_scheduler(void **state)
{
    (void)state;
    assert_int_equal(schedule(3, 1, rank_dies_early, 600000), DIST_ERR_PEER_LOST);
}

/* The scheduler is stopped while the rank sends its proof and exits, so that it finds both at
 * once. */
static void rank_dies_while_joining(int rank, void *arg)
{
    const struct job *job = arg;
    struct disti_wire_handshake handshake = {0};
    int fd = ranks_open_connection(job->server);

    (void)rank;
    ranks_send_hello(fd, &handshake, 0, job->ranks);
    CHECK(ranks_read_challenge(fd, &handshake));
    kill(getppid(), SIGSTOP);
    disti_sleep_ns(100 * 1000000);
    ranks_send_proof(fd, &handshake);
    close(fd);
    kill(getppid(), SIGCONT);
}

static void test_a_rank_lost_while_joining_is_reported(void **state)
{
    (void)state;
    assert_int_equal(schedule(3, 1, rank_dies_while_joining, 600000), DIST_ERR_PEER_LOST);
    assert_non_null(strstr(dist_last_error(), "rank 0 "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_scheduler_ends_after_its_job),
        cmocka_unit_test(test_a_lost_rank_is_reported),
        cmocka_unit_test(test_missing_ranks_are_named),
        cmocka_unit_test(test_an_early_loss_ends_the_scheduler),
        cmocka_unit_test(test_a_rank_lost_while_joining_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
