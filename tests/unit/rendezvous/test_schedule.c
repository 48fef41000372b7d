/* SPDX-License-Identifier: BSD-3-Clause */
/* A scheduler: it serves its job, and says how that ended. */
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

/* This process schedules a job of `ranks`, of which `started` come and call fn. */
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

/* Two groups, one after the other: the pause between them is shorter than the scheduler's patience.
 */
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

static void test_ends_well(void **state)
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

static void test_lost(void **state)
{
    (void)state;
    assert_int_equal(schedule(3, 3, rank_may_die, WAIT_MS), DIST_ERR_PEER_LOST);
    assert_non_null(strstr(dist_last_error(), "rank 1 "));
}

/* It waits for the others until the scheduler gives up, and hears who they are. */
static void rank_is_alone(int rank, void *job)
{
    struct disti_store *store = join(job);

    (void)rank;
    CHECK(disti_store_all_gather(store, NULL, "barrier", NULL, NULL, 0, WAIT_MS) ==
          DIST_ERR_TIMEOUT);
    CHECK_SAYS("the scheduler stopped waiting; missing: rank 1, 2");
    disti_store_close(store);
}

static void test_missing(void **state)
{
    (void)state;
    assert_int_equal(schedule(3, 1, rank_is_alone, 500), DIST_ERR_TIMEOUT);
    assert_non_null(strstr(dist_last_error(), "1 have joined; missing: rank 1, 2"));
}

/* Nobody waits for the whole of the time after a loss before all had come. */
static void rank_dies_early(int rank, void *job)
{
    (void)rank;
    join(job);
}

static void test_lost_early(void **state)
{
    (void)state;
    assert_int_equal(schedule(3, 1, rank_dies_early, 600000), DIST_ERR_PEER_LOST);
}

/* It is welcomed and lost within one turn of the scheduler, which stands still meanwhile. */
static void rank_dies_unseen(int rank, void *arg)
{
    const struct job *job = arg;
    struct disti_wire_handshake said = {0};
    int fd = ranks_stranger(job->server);

    (void)rank;
    ranks_say_hello(fd, &said, 0, job->ranks);
    CHECK(ranks_hear_challenge(fd, &said));
    kill(getppid(), SIGSTOP);
    disti_sleep_ns(100 * 1000000);
    ranks_say_proof(fd, &said);
    close(fd);
    kill(getppid(), SIGCONT);
}

static void test_lost_unseen(void **state)
{
    (void)state;
    assert_int_equal(schedule(3, 1, rank_dies_unseen, 600000), DIST_ERR_PEER_LOST);
    assert_non_null(strstr(dist_last_error(), "rank 0 "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_well),   cmocka_unit_test(test_lost),
        cmocka_unit_test(test_missing),     cmocka_unit_test(test_lost_early),
        cmocka_unit_test(test_lost_unseen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
