/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests of real ranks make progress while the program computes, and end in order. */
#include "job.h"

#define LARGE (1 << 19)
#define THREADS 3

/* Fills with whole numbers whose sum is known. */
static void fill(int32_t *data, size_t count, int rank, int round)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (int32_t)(i % 1000) * (rank + 1) + round;
}

static bool is_sum(const int32_t *data, size_t count, int ranks, int round)
{
    int32_t factor = ranks * (ranks + 1) / 2;

    for (size_t i = 0; i < count; i++) {
        if (data[i] != (int32_t)(i % 1000) * factor + ranks * round)
            return false;
    }
    return true;
}

static void compute(int rank, void *arg)
{
    const struct job *job = arg;
    dist_group *group = join(job, rank);
    int32_t *data = malloc(LARGE * sizeof(*data));

    for (int round = 0; round < 8; round++) {
        atomic_int ended = 0;
        dist_work *work;

        fill(data, LARGE, rank, round);
        CHECK(dist_all_reduce_async(group, data, data, LARGE, DIST_INT32, DIST_SUM, &work) ==
              DIST_OK);
        CHECK(dist_on_complete(work, set_flag, &ended) == DIST_OK);
        CHECK(within(20000, &ended));
        CHECK(is_sum(data, LARGE, job->ranks, round));
        CHECK(dist_wait(work) == DIST_OK);
    }
    free(data);
    leave(group);
}

static void requests_make_progress_while_the_program_computes(void **state)
{
    (void)state;
    run(3, 30000, compute);
}

static atomic_int next_number;

struct number {
    int number;
    bool in_order;
};

static void count_end(void *arg, dist_status status)
{
    struct number *number = arg;

    number->in_order = status == DIST_OK && atomic_fetch_add(&next_number, 1) == number->number;
}

/* The first call is large, so the later ones could end long before it. */
static void keep_order(int rank, void *arg)
{
    const struct job *job = arg;
    dist_group *group = join(job, rank);
    int32_t *large = malloc(LARGE * sizeof(*large)), small[20];
    struct number numbers[21] = {{0}};
    dist_work *works[21];

    fill(large, LARGE, rank, 5);
    for (int i = 0; i <= 20; i++) {
        int32_t *data = i ? &small[i - 1] : large;

        numbers[i].number = i;
        if (i)
            small[i - 1] = rank + i;
        CHECK(dist_all_reduce_async(group, data, data, i ? 1 : LARGE, DIST_INT32, DIST_SUM,
                                    &works[i]) == DIST_OK);
        CHECK(dist_on_complete(works[i], count_end, &numbers[i]) == DIST_OK);
    }
    for (int i = 20; i >= 0; i--) {
        bool done = false;

        CHECK(dist_wait(works[i]) == DIST_OK);
        CHECK(i == 0 || (dist_test(works[0], &done) == DIST_OK && done));
    }
    for (int i = 0; i <= 20; i++)
        CHECK(numbers[i].in_order);
    for (int i = 1; i <= 20; i++)
        CHECK(small[i - 1] == job->ranks * i + job->ranks * (job->ranks - 1) / 2);
    CHECK(is_sum(large, LARGE, job->ranks, 5));
    free(large);
    leave(group);
}

static void collectives_end_in_order(void **state)
{
    (void)state;
    run(2, 30000, keep_order);
}

static void repeat(int rank, void *arg)
{
    const struct job *job = arg;
    dist_group *group = join(job, rank);
    int32_t in[1000], out[1000];
    dist_work *work;

    CHECK(dist_all_reduce_init(group, in, out, 1000, DIST_INT32, DIST_SUM, &work) == DIST_OK);
    for (int round = 0; round < 100; round++) {
        int32_t other = rank;

        fill(in, 1000, rank, round);
        CHECK(dist_start(work) == DIST_OK);
        CHECK(round % 7 || dist_all_reduce(group, &other, &other, 1, DIST_INT32, DIST_MAX) == 0);
        CHECK(round % 7 || other == job->ranks - 1);
        CHECK(dist_wait(work) == DIST_OK);
        CHECK(is_sum(out, 1000, job->ranks, round));
    }
    CHECK(dist_work_free(work) == DIST_OK);
    leave(group);
}

static void persistent_requests_use_the_current_data(void **state)
{
    (void)state;
    run(3, 30000, repeat);
}

static void leave_early(int rank, void *arg)
{
    const struct job *job = arg;
    dist_group *group = join(job, rank);
    int32_t *data = malloc(LARGE * sizeof(*data));
    dist_work *work;

    fill(data, LARGE, rank, 1);
    CHECK(dist_all_reduce_async(group, data, data, LARGE, DIST_INT32, DIST_SUM, &work) == DIST_OK);
    leave(group);
    CHECK(dist_wait(work) == DIST_OK);
    CHECK(is_sum(data, LARGE, job->ranks, 1));
    free(data);
}

static void leaving_completes_pending_requests(void **state)
{
    (void)state;
    run(3, 20000, leave_early);
}

/* A thread that exchanges messages with the next and the previous rank, with its own tag. */
struct exchange {
    pthread_t thread;
    dist_group *group;
    int tag;
};

static void *exchange_messages(void *arg)
{
    struct exchange *exchange = arg;
    int rank = dist_get_rank(exchange->group), ranks = dist_get_world_size(exchange->group);
    int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;

    for (int round = 0; round < 300; round++) {
        int32_t mine = rank * 100000 + exchange->tag * 1000 + round, got = -1;
        dist_work *work;
        int source = -1;

        CHECK(dist_isend(exchange->group, &mine, 1, DIST_INT32, next, exchange->tag, &work) ==
              DIST_OK);
        CHECK(dist_recv(exchange->group, &got, 1, DIST_INT32, previous, exchange->tag, &source) ==
              DIST_OK);
        CHECK(dist_wait(work) == DIST_OK);
        CHECK(source == previous);
        CHECK(got == previous * 100000 + exchange->tag * 1000 + round);
    }
    return NULL;
}

static void exchange_in_threads(int rank, void *arg)
{
    dist_group *group = join(arg, rank);
    struct exchange exchanges[THREADS];

    for (int t = 0; t < THREADS; t++) {
        exchanges[t] = (struct exchange){.group = group, .tag = t};
        pthread_create(&exchanges[t].thread, NULL, exchange_messages, &exchanges[t]);
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(exchanges[t].thread, NULL);
    leave(group);
}

static void threads_exchange_messages_in_one_group(void **state)
{
    (void)state;
    run(2, 30000, exchange_in_threads);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        test(requests_make_progress_while_the_program_computes),
        test(collectives_end_in_order),
        test(persistent_requests_use_the_current_data),
        test(leaving_completes_pending_requests),
        test(threads_exchange_messages_in_one_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
