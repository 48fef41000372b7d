/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the stand-in's NCCL: results against plain loops, order, groups, and what is refused. */
#include "trial.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#define RANKS 4
#define COUNT 1000

static const char *test_library = "standin_cuda";

/* ---- one rank: its communicator, and device memory of floats ---- */

struct meeting {
    struct nccl_id id;
    atomic_bool ready;
};

struct rank {
    int rank, ranks;
    struct ncclComm *comm;
    void *stream;
    uintptr_t in, out;
    float host[RANKS * COUNT];
};

/* Element i of what rank r gives. */
static float test_value(int r, size_t i)
{
    return (float)((int)(i * 7 + (size_t)r * 13) % 101 - 50);
}

static struct nccl_id test_id(int rank, struct meeting *meeting)
{
    if (rank == 0) {
        TRIAL(trial.ncclGetUniqueId(&meeting->id) == RESULT_Success);
        atomic_store(&meeting->ready, true);
    }
    while (!atomic_load(&meeting->ready))
        usleep(1000);
    return meeting->id;
}

static void test_memory(struct rank *t, int rank, int ranks)
{
    trial_load(test_library);
    trial_device(rank);
    t->rank = rank;
    t->ranks = ranks;
    for (size_t i = 0; i < (size_t)RANKS * COUNT; i++)
        t->host[i] = test_value(rank, i);
    t->stream = trial_stream();
    t->in = trial_memory(t->host, sizeof(t->host));
    memset(t->host, 0, sizeof(t->host));
    t->out = trial_memory(t->host, sizeof(t->host));
}

static void test_start(struct rank *t, int rank, int ranks, void *arg)
{
    test_memory(t, rank, ranks);
    TRIAL(trial.ncclCommInitRank(&t->comm, ranks, test_id(rank, arg), rank) == RESULT_Success);
}

static void test_end(struct rank *t)
{
    TRIAL(trial_driver->stream_synchronize(t->stream) == 0);
    TRIAL(trial.ncclCommDestroy(t->comm) == RESULT_Success);
    TRIAL(trial_driver->memory_free(t->in) == 0);
    TRIAL(trial_driver->memory_free(t->out) == 0);
    TRIAL(trial_driver->stream_destroy(t->stream) == 0);
}

static void test_run(int ranks, void (*run)(int rank, int ranks, void *arg))
{
    assert_true(trial_ranks(ranks, run, trial_shared(sizeof(struct meeting))));
}

static float test_sum(int ranks, size_t i)
{
    float sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += test_value(r, i);
    return sum;
}

static void *test_in(const struct rank *t)
{
    return (void *)t->in;
}

static void *test_out(const struct rank *t)
{
    return (void *)t->out;
}

/* Reads the result, and soils it for the next. */
static const float *test_result(struct rank *t)
{
    trial_read(t->host, t->out, sizeof(t->host), t->stream);
    TRIAL(trial_driver->fill(t->out, 0x77, sizeof(t->host), t->stream) == 0);
    return t->host;
}

/* Elements at, at + 1, ... of the result are rank r's from `from` on; r -1: the sums. */
static void test_expect(const struct rank *t, size_t at, int r, size_t from)
{
    for (size_t i = 0; i < COUNT; i++) {
        float expected = r < 0 ? test_sum(t->ranks, from + i) : test_value(r, from + i);

        TRIAL(t->host[at + i] == expected);
    }
}

/* ---- collectives ---- */

static void rank_reductions(int rank, int ranks, void *arg)
{
    struct rank t;

    test_start(&t, rank, ranks, arg);
    TRIAL(!trial.ncclAllReduce(test_in(&t), test_out(&t), COUNT, TYPE_Float32, OP_Sum, t.comm,
                               t.stream));
    test_result(&t);
    test_expect(&t, 0, -1, 0);
    TRIAL(!trial.ncclReduceScatter(test_in(&t), test_out(&t), COUNT, TYPE_Float32, OP_Sum, t.comm,
                                   t.stream));
    test_result(&t);
    test_expect(&t, 0, -1, (size_t)rank * COUNT);
    for (int root = 0; root < ranks; root++) {
        TRIAL(!trial.ncclReduce(test_in(&t), rank == root ? test_out(&t) : NULL, COUNT,
                                TYPE_Float32, OP_Sum, root, t.comm, t.stream));
        test_result(&t);
        if (rank == root)
            test_expect(&t, 0, -1, 0);
    }
    test_end(&t);
}

static void rank_copies(int rank, int ranks, void *arg)
{
    struct rank t;

    test_start(&t, rank, ranks, arg);
    for (int root = 0; root < ranks; root++) {
        TRIAL(!trial.ncclBroadcast(test_in(&t), test_out(&t), COUNT, TYPE_Float32, root, t.comm,
                                   t.stream));
        test_result(&t);
        test_expect(&t, 0, root, 0);
    }
    TRIAL(!trial.ncclAllGather(test_in(&t), test_out(&t), COUNT, TYPE_Float32, t.comm, t.stream));
    test_result(&t);
    for (int r = 0; r < ranks; r++)
        test_expect(&t, (size_t)r * COUNT, r, 0);
    TRIAL(!trial.ncclAlltoAll(test_in(&t), test_out(&t), COUNT, TYPE_Float32, t.comm, t.stream));
    test_result(&t);
    for (int r = 0; r < ranks; r++)
        test_expect(&t, (size_t)r * COUNT, r, (size_t)rank * COUNT);
    test_end(&t);
}

static void rank_rooted(int rank, int ranks, void *arg)
{
    struct rank t;

    test_start(&t, rank, ranks, arg);
    for (int root = 0; root < ranks; root++) {
        TRIAL(!trial.ncclGather(test_in(&t), test_out(&t), COUNT, TYPE_Float32, root, t.comm,
                                t.stream));
        test_result(&t);
        for (int r = 0; r < ranks && rank == root; r++)
            test_expect(&t, (size_t)r * COUNT, r, 0);
        TRIAL(!trial.ncclScatter(test_in(&t), test_out(&t), COUNT, TYPE_Float32, root, t.comm,
                                 t.stream));
        test_result(&t);
        test_expect(&t, 0, root, (size_t)rank * COUNT);
    }
    test_end(&t);
}

/* ---- from one to one ---- */

static void rank_ring(int rank, int ranks, void *arg)
{
    struct rank t;

    test_start(&t, rank, ranks, arg);
    TRIAL(!trial.ncclGroupStart());
    TRIAL(!trial.ncclSend(test_in(&t), COUNT, TYPE_Float32, (rank + 1) % ranks, t.comm, t.stream));
    TRIAL(!trial.ncclRecv(test_out(&t), COUNT, TYPE_Float32, (rank + ranks - 1) % ranks, t.comm,
                          t.stream));
    TRIAL(!trial.ncclGroupEnd());
    test_result(&t);
    test_expect(&t, 0, (rank + ranks - 1) % ranks, 0);
    test_end(&t);
}

/* Without a group the first sends wait for each other; an abort ends them, and the stream. */
static void rank_deadlock(int rank, int ranks, void *arg)
{
    struct rank t;
    void *event;

    test_start(&t, rank, ranks, arg);
    TRIAL(trial_driver->event_create(&event, DISTI_DRIVER_EVENT_NO_TIMING) == 0);
    TRIAL(!trial.ncclSend(test_in(&t), COUNT, TYPE_Float32, (rank + 1) % ranks, t.comm, t.stream));
    TRIAL(!trial.ncclRecv(test_out(&t), COUNT, TYPE_Float32, (rank + ranks - 1) % ranks, t.comm,
                          t.stream));
    TRIAL(trial_driver->event_record(event, t.stream) == 0);
    usleep(100000);
    TRIAL(trial_driver->event_query(event) == DISTI_DRIVER_NOT_READY);
    TRIAL(!trial.ncclCommAbort(t.comm));
    TRIAL(trial_driver->stream_synchronize(t.stream) == 0);
    TRIAL(trial_driver->event_query(event) == 0);
    TRIAL(trial_driver->event_destroy(event) == 0);
}

/* Two ranks on one device are refused, by both. */
static void rank_one_device(int rank, int ranks, void *arg)
{
    struct ncclComm *comm;
    struct rank t;

    test_memory(&t, 0, ranks);
    TRIAL(trial.ncclCommInitRank(&comm, ranks, test_id(rank, arg), rank) == RESULT_InvalidUsage);
    TRIAL(!comm && strstr(trial.ncclGetLastError(NULL), "Duplicate GPU"));
}

/* ---- on one to four ranks ---- */

#define TEST(name, least)                                                                          \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        for (int ranks = least; ranks <= RANKS; ranks++)                                           \
            test_run(ranks, rank_##name);                                                          \
    }

TEST(reductions, 1)
TEST(copies, 1)
TEST(rooted, 1)
TEST(ring, 1)
TEST(deadlock, 2)
TEST(one_device, 2)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions), cmocka_unit_test(copies),   cmocka_unit_test(rooted),
        cmocka_unit_test(ring),       cmocka_unit_test(deadlock), cmocka_unit_test(one_device),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    test_library = "standin_hip";
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
