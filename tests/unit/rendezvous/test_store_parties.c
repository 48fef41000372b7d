/* SPDX-License-Identifier: BSD-3-Clause */
/* The store shared by threads and by parties: some ranks of the job, for one group of them. */
#include "ranks.h"

#include "rendezvous/store.h"

#include <poll.h>
#include <pthread.h>

#define WAIT_MS 20000

/* The parent holds the server, the ranks are processes. */
struct job {
    struct disti_store_server *server;
    int ranks, port;
};

static void job_all(int count, ranks_fn fn)
{
    struct job job = {.ranks = count};
    struct ranks ranks;

    assert_int_equal(disti_store_server_listen("127.0.0.1", 0, count, &job.server), DIST_OK);
    job.port = disti_store_server_port(job.server);
    ranks_start(&ranks, count, fn, &job);
    assert_int_equal(disti_store_server_run(job.server), DIST_OK);
    ranks_finish(&ranks);
    disti_store_server_stop(job.server, 1000);
    for (int r = 0; r < count; r++)
        assert_int_equal(ranks.codes[r], 0);
}

static struct disti_store *join(const struct job *job, int rank)
{
    struct disti_store *store = NULL;

    CHECK(disti_store_connect("127.0.0.1", job->port, rank, job->ranks, WAIT_MS, &store) ==
          DIST_OK);
    return store;
}

static void barrier(struct disti_store *store, const char *name)
{
    CHECK(disti_store_all_gather(store, name, NULL, NULL, 0, WAIT_MS) == DIST_OK);
}

#define THREADS 6
#define ROUNDS 40

struct asker {
    pthread_t thread;
    struct disti_store *store;
    int rank, ranks, number;
};

/* Its own all-gathers and counters, which must not be mixed up with those of the others. */
static void *asker_run(void *arg)
{
    struct asker *asker = arg;
    int32_t in, out[RANKS_MAX];
    int64_t sum;
    char key[32];

    for (int i = 0; i < ROUNDS; i++) {
        snprintf(key, sizeof(key), "thread %d", asker->number);
        in = asker->rank * 10000 + asker->number * 100 + i;
        CHECK(disti_store_all_gather(asker->store, key, &in, out, sizeof(in), WAIT_MS) == DIST_OK);
        for (int r = 0; r < asker->ranks; r++)
            CHECK(out[r] == r * 10000 + asker->number * 100 + i);
        snprintf(key, sizeof(key), "count %d", asker->number);
        CHECK(disti_store_add(asker->store, key, 1, &sum) == DIST_OK &&
              sum <= asker->ranks * ROUNDS);
    }
    return NULL;
}

/* The ranks start their threads in different orders: nobody's wait may hold up another's. */
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

static void test_threads(void **state)
{
    (void)state;
    job_all(4, rank_asks_with_threads);
}

static void *wait_for_late(void *arg)
{
    CHECK(disti_store_wait(arg, "late", WAIT_MS) == DIST_OK);
    return NULL;
}

/* One thread waits long: the others get their answers, and the news. */
static void rank_waits_beside_news(int rank, void *arg)
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
    CHECK(pthread_create(&thread, NULL, wait_for_late, store) == 0);
    for (int i = 0; i < 1000 && !disti_store_notice(store, &notice); i++) {
        CHECK(poll(&ready, 1, WAIT_MS) == 1);
        disti_sleep_ns(100000); /* who waits for a reply reads the news too */
    }
    CHECK(notice.rank == 1 && notice.graceful);
    CHECK(disti_store_set(store, "late", "x", 1) == DIST_OK);
    pthread_join(thread, NULL);
    disti_store_close(store);
}

static void test_news_beside_a_wait(void **state)
{
    (void)state;
    job_all(2, rank_waits_beside_news);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_news_beside_a_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
