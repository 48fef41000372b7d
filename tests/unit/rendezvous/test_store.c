/* SPDX-License-Identifier: BSD-3-Clause */
/* The store with several ranks: numbers, all-gathers, lost ranks. */
#include "ranks.h"

#include "store/store.h"

#include <poll.h>
#include <sys/syscall.h>

#define WAIT_MS 30000

/* The parent runs the server; the ranks are child processes. */
struct job {
    struct disti_store_server *server;
    int ranks, port;
};

static void job_open(struct job *job, int ranks)
{
    job->ranks = ranks;
    assert_int_equal(disti_store_server_listen("127.0.0.1", 0, ranks, 0, &job->server), DIST_OK);
    job->port = disti_store_server_port(job->server);
}

static void job_run(struct job *job, ranks_fn fn, struct ranks *ranks)
{
    ranks_start(ranks, job->ranks, fn, job);
    assert_int_equal(disti_store_server_run(job->server), DIST_OK);
    ranks_finish(ranks);
    disti_store_server_stop(job->server, 1000);
}

static void job_all(int count, ranks_fn fn)
{
    struct ranks ranks;
    struct job job;

    job_open(&job, count);
    job_run(&job, fn, &ranks);
    for (int r = 0; r < count; r++)
        assert_int_equal(ranks.codes[r], 0);
}

static struct disti_store *join(const struct job *job, int rank)
{
    struct disti_store *store = NULL;

    CHECK(ranks_connect("127.0.0.1", job->port, rank, job->ranks, WAIT_MS, &store) == DIST_OK);
    return store;
}

static void barrier(struct disti_store *store, const char *name)
{
    CHECK(disti_store_all_gather(store, NULL, name, NULL, NULL, 0, WAIT_MS) == DIST_OK);
}

/* Waits for the next notice. */
static struct disti_notice next_notice(struct disti_store *store)
{
    struct pollfd ready = {.fd = disti_store_fd(store), .events = POLLIN};
    struct disti_notice notice = {.rank = -99};

    for (int i = 0; i < 100 && !disti_store_notice(store, &notice); i++)
        CHECK(poll(&ready, 1, WAIT_MS) == 1);
    CHECK(notice.rank != -99);
    return notice;
}

/* Ranks that join without a number get one, each a different one, which no other rank has
 * requested. */
static void rank_without_number(int rank, void *arg)
{
    struct job *job = arg;
    bool has_number = rank == 1;
    struct disti_store *store;
    int mine, all[5];
    bool taken[5] = {false};

    if (!has_number)
        disti_sleep_ns(200 * 1000000); /* rank 1 is taken by then */
    store = join(job, has_number ? 1 : -1);
    mine = store->rank;
    CHECK(mine >= 0 && mine < 5 && has_number == (mine == 1));
    CHECK(disti_store_all_gather(store, NULL, "mine", &mine, all, sizeof(mine), WAIT_MS) ==
          DIST_OK);
    for (int r = 0; r < 5; r++) {
        CHECK(all[r] == r && !taken[all[r]]);
        taken[all[r]] = true;
    }
    disti_store_close(store);
}

static void test_ranks_without_a_number_get_one(void **state)
{
    (void)state;
    job_all(5, rank_without_number);
}

/* Each request gets numbers of its own, and no number is skipped. */
static void rank_takes_numbers(int rank, void *arg)
{
    enum { ROUNDS = 100 };
    struct job *job = arg;
    struct disti_store *store = join(job, rank);
    int64_t mine[ROUNDS], all[4 * ROUNDS];
    bool taken[10 * ROUNDS + 1] = {false};

    for (int i = 0; i < ROUNDS; i++)
        CHECK(disti_store_take_numbers(store, rank + 1, &mine[i]) == DIST_OK);
    CHECK(disti_store_all_gather(store, NULL, "numbers", mine, all, sizeof(mine), WAIT_MS) ==
          DIST_OK);
    for (int i = 0; i < 4 * ROUNDS; i++) {
        for (int64_t n = all[i]; n < all[i] + i / ROUNDS + 1; n++) {
            CHECK(n >= 1 && n <= 10 * ROUNDS && !taken[n]);
            taken[n] = true;
        }
    }
    disti_store_close(store);
}

static void test_numbers_are_unique(void **state)
{
    (void)state;
    job_all(4, rank_takes_numbers);
}

static void rank_gathers(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = join(job, rank);
    size_t sizes[] = {0, 1, 7, 4096, 300000};

    /* The same name repeatedly: each all-gather ends before the next begins. */
    for (int i = 0; i < 50; i++) {
        size_t bytes = sizes[i % 5];
        unsigned char *in = malloc(bytes + 1), *out = malloc(bytes * (size_t)job->ranks + 1);

        memset(in, rank * 16 + i, bytes);
        CHECK(disti_store_all_gather(store, NULL, "g", in, out, bytes, WAIT_MS) == DIST_OK);
        for (size_t b = 0; b < bytes * (size_t)job->ranks; b++)
            CHECK(out[b] == (unsigned char)((int)(b / bytes) * 16 + i));
        free(in);
        free(out);
    }
    disti_store_close(store);
}

static void test_all_gathers_exchange_values(void **state)
{
    (void)state;
    job_all(8, rank_gathers);
    job_all(1, rank_gathers);
    job_all(3, rank_gathers);
}

static void rank_gathers_too_much(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = join(job, rank);
    char *big = calloc(2, DISTI_VALUE_MAX + 1u), *out = big + DISTI_VALUE_MAX + 1;

    CHECK(disti_store_all_gather(store, NULL, "x", big, out, DISTI_VALUE_MAX + 1u, 10) ==
          DIST_ERR_INVALID_ARGUMENT);
    CHECK(disti_store_all_gather(store, NULL, "x", big, out, SIZE_MAX, 10) ==
          DIST_ERR_INVALID_ARGUMENT);
    CHECK(disti_store_all_gather(store, NULL, "x", big, out, DISTI_VALUE_MAX, WAIT_MS) == DIST_OK);
    free(big);
    disti_store_close(store);
}

static void test_values_are_limited(void **state)
{
    (void)state;
    job_all(1, rank_gathers_too_much);
}

static void rank_disagrees(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = join(job, rank);
    char in[8] = {0}, out[16];

    if (rank == 0) {
        CHECK(disti_store_all_gather(store, NULL, "g", in, out, 4, 1500) == DIST_ERR_TIMEOUT);
        CHECK_SAYS("rank 1", "did not arrive");
    } else {
        disti_sleep_ns(300000000);
        CHECK(disti_store_all_gather(store, NULL, "g", in, out, 8, WAIT_MS) == DIST_ERR_MISMATCH);
        CHECK_SAYS("rank 1 sent 8", "rank 0 sent 4");
        CHECK(disti_store_all_gather(store, NULL, "never", NULL, NULL, 0, 2500) != DIST_OK);
    }
    disti_store_close(store);
}

static void test_different_sizes_are_a_mismatch(void **state)
{
    (void)state;
    job_all(2, rank_disagrees);
}

static void rank_waits_for_missing(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store;
    int64_t begin = disti_now_ns();
    char out[6];

    if (rank == 3 || rank == 5)
        return;
    store = join(job, rank);
    CHECK(disti_store_all_gather(store, NULL, "here", "x", out, 1, 1000) == DIST_ERR_TIMEOUT);
    CHECK_SAYS("ranks 3, 5 did not arrive");
    CHECK(disti_now_ns() - begin < UNIT_SOON_NS);
    disti_store_close(store);
}

static void test_missing_ranks_are_named(void **state)
{
    (void)state;
    job_all(6, rank_waits_for_missing);
}

static void rank_dies(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = join(job, rank);
    struct disti_notice notice;
    char out[4];

    barrier(store, "all here");
    if (rank == 2) {
        disti_sleep_ns(200000000);
        kill(getpid(), SIGKILL);
    }
    if (rank == 0)
        CHECK(disti_store_all_gather(store, NULL, "g", "x", out, 1, WAIT_MS) == DIST_ERR_PEER_LOST);
    if (rank == 1)
        CHECK(disti_store_all_gather(store, NULL, "never", "x", out, 1, WAIT_MS) ==
              DIST_ERR_PEER_LOST);
    if (rank < 2)
        CHECK_SAYS("rank 2 (host ", ", pid ", "was killed by signal 9 (SIGKILL)");
    notice = next_notice(store);
    CHECK(notice.rank == 2 && !notice.graceful && strstr(notice.text, "rank 2 (host "));
    /* Later operations fail with the same reason. */
    CHECK(disti_store_all_gather(store, NULL, "h", "x", out, 1, WAIT_MS) == DIST_ERR_PEER_LOST);
    CHECK_SAYS("rank 2 (host ");
    disti_store_close(store);
}

static void test_a_killed_rank_is_named(void **state)
{
    struct ranks ranks;
    struct job job;

    (void)state;
    job_open(&job, 4);
    job_run(&job, rank_dies, &ranks);
    assert_int_equal(ranks.codes[0], 0);
    assert_int_equal(ranks.codes[1], 0);
    assert_int_equal(ranks.codes[2], 128 + SIGKILL);
    assert_int_equal(ranks.codes[3], 0);
}

static void rank_leaves(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = join(job, rank);
    struct disti_notice notice;

    barrier(store, "all here");
    if (rank == 1) {
        disti_store_close(store);
        return;
    }
    notice = next_notice(store);
    CHECK(notice.rank == 1 && notice.graceful);
    CHECK(!disti_store_notice(store, &notice));
    CHECK(disti_store_all_gather(store, NULL, "g", NULL, NULL, 0, WAIT_MS) == DIST_ERR_PEER_LOST);
    CHECK_SAYS("rank 1 (host ", "has left");
    disti_store_close(store);
}

static void test_a_rank_that_leaves_is_named(void **state)
{
    (void)state;
    job_all(2, rank_leaves);
}

static void rank_reports(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = join(job, rank);
    struct disti_notice notice;

    barrier(store, "all here");
    if (rank == 1) {
        disti_store_report(store, NULL, DIST_ERR_SYSTEM, "the disk is full");
        disti_store_close(store);
        return;
    }
    /* During a call, and only once although the rank then leaves. */
    if (rank == 0)
        CHECK(disti_store_all_gather(store, NULL, "never", NULL, NULL, 0, WAIT_MS) ==
              DIST_ERR_PEER_LOST);
    notice = next_notice(store);
    CHECK(notice.rank == 1 && !notice.graceful && strstr(notice.text, "the disk is full"));
    disti_sleep_ns(200000000);
    while (disti_store_notice(store, &notice))
        CHECK(notice.rank != 1);
    disti_store_close(store);
}

static void test_a_reported_failure_is_forwarded(void **state)
{
    (void)state;
    job_all(3, rank_reports);
}

/* Rank 0 runs the server, as without a launcher, and is killed. */
static void rank_loses_server(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store;
    struct disti_store_server *server;
    struct disti_notice notice;
    int64_t number;

    if (rank == 0) {
        CHECK(ranks_serve("127.0.0.1", job->port, job->ranks, &server) == DIST_OK);
    }
    store = join(job, rank);
    barrier(store, "all here");
    if (rank == 0) {
        disti_sleep_ns(200000000);
        kill(getpid(), SIGKILL);
    }
    if (rank == 1) {
        CHECK(disti_store_all_gather(store, NULL, "never", NULL, NULL, 0, WAIT_MS) ==
              DIST_ERR_PEER_LOST);
        CHECK_SAYS("rank 0 (host ", "holds the store");
    }
    notice = next_notice(store);
    CHECK(notice.rank == 0 && !notice.graceful && strstr(notice.text, "rank 0 (host "));
    CHECK(!disti_store_notice(store, &notice));
    CHECK(disti_store_take_numbers(store, 1, &number) == DIST_ERR_PEER_LOST);
    disti_store_close(store);
}

static void test_a_killed_server_is_reported(void **state)
{
    struct ranks ranks;
    struct job job;

    (void)state;
    job_open(&job, 3);
    disti_store_server_stop(job.server, 0); /* only its port, which is free now, is used */
    ranks_start(&ranks, 3, rank_loses_server, &job);
    ranks_finish(&ranks);
    assert_int_equal(ranks.codes[0], 128 + SIGKILL);
    assert_int_equal(ranks.codes[1], 0);
    assert_int_equal(ranks.codes[2], 0);
}

/* Rank 0's launcher ends while rank 0 waits. That ends rank 0's waits, and other ranks are notified
 * that rank 0 is lost. */
static void rank_loses_launcher(int rank, void *arg)
{
    struct disti_store *store = join(arg, rank);
    struct disti_notice notice;
    pid_t launcher;
    int64_t number;

    if (rank == 1) {
        notice = next_notice(store);
        CHECK(notice.rank == 0 && !notice.graceful);
        disti_store_close(store);
        return;
    }
    launcher = fork();
    if (launcher == 0) {
        disti_sleep_ns(200 * 1000000);
        _exit(0);
    }
    disti_store_watch_process(store, (int)syscall(SYS_pidfd_open, launcher, 0), -1, launcher,
                              "the launcher");
    CHECK(!disti_store_notice(store, &notice));
    CHECK(disti_store_all_gather(store, NULL, "never", NULL, NULL, 0, WAIT_MS) ==
          DIST_ERR_PEER_LOST);
    CHECK_SAYS("rank 0: the launcher");
    CHECK(disti_store_notice(store, &notice) && notice.rank == -1 && !notice.graceful);
    CHECK(strcmp(notice.text, "the launcher") == 0 && !disti_store_notice(store, &notice));
    CHECK(disti_store_take_numbers(store, 1, &number) == DIST_ERR_PEER_LOST);
    disti_store_close(store);
}

static void test_the_end_of_a_launcher_is_reported(void **state)
{
    const int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

    (void)state;
    if (fd < 0)
        skip(); /* a kernel before 5.3 */
    close(fd);
    job_all(2, rank_loses_launcher);
}

/* A second process joins as rank 1: it is refused with an error that names both, and the other
 * ranks fail. */
static void rank_comes_twice(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = NULL;

    if (rank == 2) {
        disti_sleep_ns(300000000);
        CHECK(ranks_connect("127.0.0.1", job->port, 1, job->ranks, WAIT_MS, &store) ==
              DIST_ERR_RENDEZVOUS);
        CHECK_SAYS("rank 1 is used by host", "pid");
        CHECK(!store);
        return;
    }
    store = join(job, rank);
    CHECK(disti_store_all_gather(store, NULL, "all", NULL, NULL, 0, WAIT_MS) ==
          DIST_ERR_RENDEZVOUS);
    CHECK_SAYS("rank 1 is used by host");
    disti_store_close(store);
}

static void test_a_duplicate_rank_is_refused(void **state)
{
    (void)state;
    job_all(3, rank_comes_twice);
}

static void rank_miscounts(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = NULL;

    if (rank == 2) {
        disti_sleep_ns(300000000);
        CHECK(ranks_connect("127.0.0.1", job->port, 2, 5, WAIT_MS, &store) == DIST_ERR_RENDEZVOUS);
        CHECK_SAYS("rank 2", "world size 5", "world size 3");
        CHECK(ranks_connect("127.0.0.1", job->port, 3, 3, WAIT_MS, &store) == DIST_ERR_RENDEZVOUS);
        CHECK_SAYS("rank 3", "0 to 2");
        return;
    }
    store = join(job, rank);
    CHECK(disti_store_all_gather(store, NULL, "all", NULL, NULL, 0, WAIT_MS) ==
          DIST_ERR_RENDEZVOUS);
    CHECK_SAYS("world size 5", "world size 3");
    disti_store_close(store);
}

static void test_a_different_world_size_is_refused(void **state)
{
    (void)state;
    job_all(3, rank_miscounts);
}

/* A second group in the same processes: the launcher's store is reset for it. */
static void rank_joins_again(int rank, void *arg)
{
    struct job *job = arg;

    for (int i = 0; i < 5; i++) {
        struct disti_store *store = join(job, rank);
        int64_t first;

        CHECK(disti_store_take_numbers(store, 1, &first) == DIST_OK && first <= job->ranks);
        barrier(store, "all");
        /* Some ranks leave late, when other ranks have already joined again. */
        disti_sleep_ns(rank * 20000000);
        disti_store_close(store);
    }
}

static void test_the_store_is_reset_for_the_next_group(void **state)
{
    (void)state;
    job_all(4, rank_joins_again);
}

static void test_stopping_the_server_waits_for_ranks(void **state)
{
    struct disti_store_server *server;
    struct disti_store *store;
    struct disti_notice notice;
    int64_t begin, number;

    (void)state;
    assert_int_equal(ranks_serve("127.0.0.1", 0, 2, &server), DIST_OK);
    assert_int_equal(
        ranks_connect("127.0.0.1", disti_store_server_port(server), 1, 2, WAIT_MS, &store),
        DIST_OK);
    assert_string_equal(store->local_host, "127.0.0.1");
    begin = disti_now_ns();
    disti_store_server_stop(server, 300);
    assert_true(disti_now_ns() - begin >= 290000000);
    /* An orderly end: the server announces it. */
    assert_true(disti_store_notice(store, &notice));
    assert_true(notice.graceful && notice.rank == 0);
    assert_false(disti_store_notice(store, &notice));
    assert_int_equal(disti_store_take_numbers(store, 1, &number), DIST_ERR_PEER_LOST);
    disti_store_close(store);
    disti_store_server_stop(NULL, 0);
    disti_store_close(NULL);
}

static void test_an_address_in_use_is_reported(void **state)
{
    struct disti_store_server *server, *second = NULL;
    char port[16];

    (void)state;
    assert_int_equal(ranks_serve("127.0.0.1", 0, 2, &server), DIST_OK);
    snprintf(port, sizeof(port), "%d", disti_store_server_port(server));
    assert_int_equal(ranks_serve("127.0.0.1", disti_store_server_port(server), 2, &second),
                     DIST_ERR_ADDRESS_IN_USE);
    assert_null(second);
    assert_non_null(strstr(dist_last_error(), "127.0.0.1"));
    assert_non_null(strstr(dist_last_error(), port));
    disti_store_server_stop(server, 0);
}

static void test_a_missing_server_is_reported(void **state)
{
    struct disti_store_server *server;
    struct disti_store *store = NULL;
    int64_t begin = disti_now_ns();
    int port;

    (void)state;
    assert_int_equal(ranks_serve("127.0.0.1", 0, 2, &server), DIST_OK);
    port = disti_store_server_port(server);
    disti_store_server_stop(server, 0);
    assert_int_equal(ranks_connect("127.0.0.1", port, 1, 2, 300, &store), DIST_ERR_RENDEZVOUS);
    assert_non_null(strstr(dist_last_error(), "Connection refused"));
    assert_true(disti_now_ns() - begin < UNIT_SOON_NS);
    assert_null(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_without_a_number_get_one),
        cmocka_unit_test(test_numbers_are_unique),
        cmocka_unit_test(test_all_gathers_exchange_values),
        cmocka_unit_test(test_values_are_limited),
        cmocka_unit_test(test_different_sizes_are_a_mismatch),
        cmocka_unit_test(test_missing_ranks_are_named),
        cmocka_unit_test(test_a_killed_rank_is_named),
        cmocka_unit_test(test_a_rank_that_leaves_is_named),
        cmocka_unit_test(test_a_reported_failure_is_forwarded),
        cmocka_unit_test(test_a_killed_server_is_reported),
        cmocka_unit_test(test_the_end_of_a_launcher_is_reported),
        cmocka_unit_test(test_a_duplicate_rank_is_refused),
        cmocka_unit_test(test_a_different_world_size_is_refused),
        cmocka_unit_test(test_the_store_is_reset_for_the_next_group),
        cmocka_unit_test(test_stopping_the_server_waits_for_ranks),
        cmocka_unit_test(test_an_address_in_use_is_reported),
        cmocka_unit_test(test_a_missing_server_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
