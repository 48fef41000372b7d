/* SPDX-License-Identifier: BSD-3-Clause */
/* The store shared by several threads and by rank sets, each for one group. */
#include "ranks.h"

#include "store/store.h"

#include <poll.h>
#include <pthread.h>

#define WAIT_MS 20000

/* The parent runs the server; the ranks are child processes. */
struct job {
    struct disti_store_server *server;
    int ranks, port;
};

static void job_codes(int count, ranks_fn fn, const int *codes)
{
    struct job job = {.ranks = count};
    struct ranks ranks;

    assert_int_equal(disti_store_server_listen("127.0.0.1", 0, count, 0, &job.server), DIST_OK);
    job.port = disti_store_server_port(job.server);
    ranks_start(&ranks, count, fn, &job);
    assert_int_equal(disti_store_server_run(job.server), DIST_OK);
    ranks_finish(&ranks);
    disti_store_server_stop(job.server, 1000);
    for (int r = 0; r < count; r++)
        assert_int_equal(ranks.codes[r], codes ? codes[r] : 0);
}

static void job_all(int count, ranks_fn fn)
{
    job_codes(count, fn, NULL);
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

#define THREADS 6
#define ROUNDS 40

struct asker {
    pthread_t thread;
    struct disti_store *store;
    int rank, ranks, number;
};

/* Makes all-gathers and requests numbers, which must not interfere with those of the other
 * threads. */
static void *asker_run(void *arg)
{
    struct asker *asker = arg;
    int32_t in, out[RANKS_MAX];
    int64_t number;
    char key[32];

    for (int i = 0; i < ROUNDS; i++) {
        snprintf(key, sizeof(key), "thread %d", asker->number);
        in = asker->rank * 10000 + asker->number * 100 + i;
        CHECK(disti_store_all_gather(asker->store, NULL, key, &in, out, sizeof(in), WAIT_MS) ==
              DIST_OK);
        for (int r = 0; r < asker->ranks; r++)
            CHECK(out[r] == r * 10000 + asker->number * 100 + i);
        CHECK(disti_store_take_numbers(asker->store, 1, &number) == DIST_OK &&
              number <= asker->ranks * THREADS * ROUNDS);
    }
    return NULL;
}

/* The ranks start their threads in different orders: a waiting thread must not block another
 * one. */
static void rank_asks_with_threads(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = join(job, rank);
    struct asker askers[THREADS];

    for (int t = 0; t < THREADS; t++) {
        askers[t] = (struct asker){
            .store = store, .rank = rank, .ranks = job->ranks, .number = (t + rank) % THREADS};
        CHECK(pthread_create(&askers[t].thread, NULL, asker_run, &askers[t]) == 0);
        disti_sleep_ns(3000000);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(askers[t].thread, NULL);
    barrier(store, "end");
    disti_store_close(store);
}

static void test_threads_share_a_store(void **state)
{
    (void)state;
    job_all(4, rank_asks_with_threads);
}

static const int stayers[] = {0, 2};
static const struct disti_party stayers_party = {
    .group = DISTI_NO_GROUP, .ranks = stayers, .count = 2};

static void *wait_for_the_last(void *arg)
{
    CHECK(disti_store_arrive(arg, &stayers_party, "late", WAIT_MS) == DIST_OK);
    return NULL;
}

/* A thread of rank 0 waits for rank 2 for a long time: other threads get their replies and
 * notices. */
static void rank_waits_beside_notices(int rank, void *arg)
{
    struct job *job = arg;
    struct disti_store *store = join(job, rank);
    struct disti_notice notice = {.rank = -99};
    struct pollfd ready = {.fd = disti_store_fd(store), .events = POLLIN};
    pthread_t thread;

    barrier(store, "all here");
    if (rank == 1) {
        disti_sleep_ns(100000000);
        disti_store_close(store);
        return;
    }
    if (rank == 0)
        CHECK(pthread_create(&thread, NULL, wait_for_the_last, store) == 0);
    for (int i = 0; i < 1000 && !disti_store_notice(store, &notice); i++) {
        CHECK(poll(&ready, 1, WAIT_MS) == 1);
        disti_sleep_ns(100000); /* a thread that waits for a reply reads the notice too */
    }
    CHECK(notice.rank == 1 && notice.graceful);
    CHECK(disti_store_all_gather(store, NULL, "none", NULL, NULL, 0, WAIT_MS) ==
          DIST_ERR_PEER_LOST);
    if (rank == 0)
        pthread_join(thread, NULL);
    else
        wait_for_the_last(store);
    disti_store_close(store);
}

static void test_notices_arrive_during_a_wait(void **state)
{
    (void)state;
    job_all(3, rank_waits_beside_notices);
}

/* Two rank sets share rank 1. Each has its own order, and both use the same keys. */
static const int left[] = {1, 0}, right[] = {3, 1, 2};

static struct disti_party party_of(int32_t group, const int *ranks, int count)
{
    return (struct disti_party){.group = group, .ranks = ranks, .count = count};
}

static void gather_in_order(struct disti_store *store, const struct disti_party *party, int rank)
{
    char key[32];
    int out[4];

    snprintf(key, sizeof(key), "group %d", party->group);
    for (int i = 0; i < 20; i++) {
        int in = rank * 100 + i;

        CHECK(disti_store_all_gather(store, party, key, &in, out, sizeof(in), WAIT_MS) == DIST_OK);
        for (int p = 0; p < party->count; p++)
            CHECK(out[p] == party->ranks[p] * 100 + i);
    }
}

static void rank_is_in_parties(int rank, void *arg)
{
    struct disti_party a = party_of(1, left, 2), b = party_of(2, right, 3);
    struct disti_store *store = join(arg, rank);

    if (rank < 2)
        gather_in_order(store, &a, rank);
    if (rank > 0)
        gather_in_order(store, &b, rank);
    barrier(store, "end");
    disti_store_close(store);
}

static void test_rank_sets_have_their_own_operations(void **state)
{
    (void)state;
    job_all(4, rank_is_in_parties);
}

/* Rank 2 misses the all-gather of its rank set; rank 3 uses another rank set than rank 1. */
static void rank_misses_its_party(int rank, void *arg)
{
    static const int other[] = {1, 3, 2};
    struct disti_party b = party_of(7, right, 3), c = party_of(7, other, 3);
    struct disti_store *store = join(arg, rank);

    barrier(store, "all here");
    if (rank == 1) {
        CHECK(disti_store_all_gather(store, &b, "x", NULL, NULL, 0, 600) == DIST_ERR_TIMEOUT);
        CHECK_SAYS("ranks 0 (world rank 3, host ", ", 2 (world rank 2, host ", "did not arrive");
    }
    if (rank == 3) {
        disti_sleep_ns(200000000);
        CHECK(disti_store_all_gather(store, &c, "x", NULL, NULL, 0, WAIT_MS) == DIST_ERR_MISMATCH);
        CHECK_SAYS("rank 3 passed different ranks than rank 1");
    }
    barrier(store, "end");
    disti_store_close(store);
}

static void test_missing_ranks_of_a_rank_set_are_named(void **state)
{
    (void)state;
    job_all(4, rank_misses_its_party);
}

/* Rank 3 reports a failure of group 2: the group's operations fail, also later ones. Other groups
 * are not affected. */
static void rank_fails_in_a_group(int rank, void *arg)
{
    struct disti_party a = party_of(1, left, 2), b = party_of(2, right, 3);
    struct disti_store *store = join(arg, rank);
    struct disti_notice notice;

    barrier(store, "all here");
    if (rank == 3) {
        disti_sleep_ns(100000000);
        disti_store_report(store, &b, DIST_ERR_NO_MEMORY, "the disk is full");
        disti_store_report(store, &b, DIST_ERR_NO_MEMORY, "said twice");
    } else if (rank > 0) {
        CHECK(disti_store_all_gather(store, &b, "y", NULL, NULL, 0, WAIT_MS) == DIST_ERR_NO_MEMORY);
        CHECK_SAYS("rank 3 (host ", "the disk is full");
    }
    barrier(store, "reported");
    if (rank > 0) { /* rank 3 too: it is notified that its report was the first */
        CHECK(disti_store_notice(store, &notice));
        CHECK(notice.rank == 3 && notice.group == 2 && !notice.graceful);
        CHECK(notice.status == DIST_ERR_NO_MEMORY);
        CHECK(strstr(notice.text, "the disk is full"));
    }
    CHECK(!disti_store_notice(store, &notice));
    if (rank > 0)
        CHECK(disti_store_all_gather(store, &b, "z", NULL, NULL, 0, WAIT_MS) == DIST_ERR_NO_MEMORY);
    if (rank < 2)
        gather_in_order(store, &a, rank);
    barrier(store, "end");
    disti_store_close(store);
}

static void test_a_failure_affects_only_its_group(void **state)
{
    (void)state;
    job_all(4, rank_fails_in_a_group);
}

/* Rank 0 leaves: the rank set without it continues. */
static void rank_leaves_one_party(int rank, void *arg)
{
    struct disti_party a = party_of(1, left, 2), b = party_of(2, right, 3);
    struct disti_store *store = join(arg, rank);

    barrier(store, "all here");
    if (rank == 0) {
        disti_sleep_ns(50000000);
        disti_store_close(store);
        return;
    }
    gather_in_order(store, &b, rank);
    if (rank == 1) {
        CHECK(disti_store_all_gather(store, &a, "w", NULL, NULL, 0, WAIT_MS) == DIST_ERR_PEER_LOST);
        CHECK_SAYS("rank 0 (host ", "has left");
    }
    gather_in_order(store, &b, rank);
    disti_store_close(store);
}

static void test_a_rank_set_continues_if_another_loses_a_rank(void **state)
{
    (void)state;
    job_all(4, rank_leaves_one_party);
}

/* Rank 0 is killed: the rank set without it continues its broadcasts, whose root is rank 3. */
static void rank_broadcasts(int rank, void *arg)
{
    struct disti_party b = party_of(2, right, 3);
    struct disti_store *store = join(arg, rank);
    char big[5000], key[16];

    barrier(store, "all here");
    if (rank == 0)
        kill(getpid(), SIGKILL);
    for (int i = 0; i < 20; i++) {
        size_t bytes = (size_t)i * 263;

        memset(big, rank == 3 ? 'a' + i : 0, sizeof(big));
        snprintf(key, sizeof(key), "tell %d", i % 2);
        CHECK(disti_store_broadcast(store, &b, key, big, bytes, WAIT_MS) == DIST_OK);
        for (size_t byte = 0; byte < bytes; byte++)
            CHECK(big[byte] == 'a' + i);
    }
    if (rank == 2) {
        CHECK(disti_store_broadcast(store, &b, "t", big, 1, 200) == DIST_ERR_TIMEOUT);
        CHECK_SAYS(" 0 (world rank 3, host ", "did not arrive");
    }
    CHECK(disti_store_leave(store, &b, "end", NULL, NULL, 0, WAIT_MS, NULL, NULL) == DIST_OK);
    disti_store_close(store);
}

static void test_broadcasts_continue_if_another_rank_is_lost(void **state)
{
    static const int codes[] = {128 + SIGKILL, 0, 0, 0};

    (void)state;
    job_codes(4, rank_broadcasts, codes);
}

/* Rank 1 times out, rank 2 waits, rank 3 is late: ranks 2 and 3 find that all have arrived. */
static void rank_arrives(int rank, void *arg)
{
    struct disti_party b = party_of(2, right, 3);
    struct disti_store *store = join(arg, rank);

    barrier(store, "all here");
    if (rank == 1) {
        CHECK(disti_store_arrive(store, &b, "b 1", 200) == DIST_ERR_TIMEOUT);
        CHECK_SAYS(" 0 (world rank 3, host ", "did not arrive");
    }
    if (rank == 3)
        disti_sleep_ns(600000000);
    if (rank >= 2)
        CHECK(disti_store_arrive(store, &b, "b 1", WAIT_MS) == DIST_OK);
    if (rank >= 1)
        CHECK(disti_store_arrive(store, &b, "b 2", WAIT_MS) == DIST_OK);
    barrier(store, "end");
    disti_store_close(store);
}

static void test_arrivals_count_after_a_timeout(void **state)
{
    (void)state;
    job_all(4, rank_arrives);
}

/* Rank 2 refuses an operation: it fails on rank 1, which may wait already, and on rank 3, which
 * joins later. */
static void rank_refuses(int rank, void *arg)
{
    struct disti_party b = party_of(2, right, 3);
    struct disti_store *store = join(arg, rank);
    int in = rank, out[3];
    char key[32];

    barrier(store, "all here");
    for (int round = 0; round < 2; round++) {
        snprintf(key, sizeof(key), "round %d", round);
        if (rank == 2)
            disti_store_refuse(store, &b, key, DIST_ERR_NO_BACKEND, "no such thing");
        if (rank == 3)
            barrier(store, "refused");
        if (rank == 1 || rank == 3) {
            CHECK(disti_store_all_gather(store, &b, key, &in, out, sizeof(in), WAIT_MS) ==
                  DIST_ERR_NO_BACKEND);
            CHECK_SAYS("rank 2 (host ", "cannot take part: no such thing");
        }
        if (rank != 3)
            barrier(store, "refused");
    }
    if (rank > 0) {
        disti_store_refuse(store, &b, "by all", DIST_ERR_INVALID_ARGUMENT, "all ranks refuse");
        gather_in_order(store, &b, rank);
    }
    barrier(store, "end");
    disti_store_close(store);
}

static void test_a_refusal_fails_the_operation(void **state)
{
    (void)state;
    job_all(4, rank_refuses);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_share_a_store),
        cmocka_unit_test(test_notices_arrive_during_a_wait),
        cmocka_unit_test(test_rank_sets_have_their_own_operations),
        cmocka_unit_test(test_missing_ranks_of_a_rank_set_are_named),
        cmocka_unit_test(test_a_failure_affects_only_its_group),
        cmocka_unit_test(test_a_rank_set_continues_if_another_loses_a_rank),
        cmocka_unit_test(test_arrivals_count_after_a_timeout),
        cmocka_unit_test(test_broadcasts_continue_if_another_rank_is_lost),
        cmocka_unit_test(test_a_refusal_fails_the_operation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
