/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the stand-in's communicators: creation and destruction, errors, graphs. */
#include "trial_rank.h"

#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/*
 * Sends that are not in a group with their receives wait for each other. An abort ends them, and
 * the stream continues.
 */
static void rank_deadlock(int rank, int ranks, void *arg)
{
    struct rank t;
    void *event;

    trial_rank_start(&t, rank, ranks, arg);
    TRIAL(trial_driver->event_create(&event, DISTI_DRIVER_EVENT_NO_TIMING) == 0);
    TRIAL(!trial.ncclSend(trial_in(&t), COUNT, TYPE_Float32, (rank + 1) % ranks, t.comm, t.stream));
    TRIAL(!trial.ncclRecv(trial_out(&t), COUNT, TYPE_Float32, (rank + ranks - 1) % ranks, t.comm,
                          t.stream));
    TRIAL(trial_driver->event_record(event, t.stream) == 0);
    usleep(100000);
    TRIAL(trial_driver->event_query(event) == DISTI_DRIVER_NOT_READY);
    TRIAL(!trial.ncclCommAbort(t.comm));
    TRIAL(trial_driver->stream_synchronize(t.stream) == 0);
    TRIAL(trial_driver->event_query(event) == 0);
    TRIAL(trial_driver->event_destroy(event) == 0);
}

/* Two ranks on one device are refused on both. */
static void rank_one_device(int rank, int ranks, void *arg)
{
    struct ncclComm *comm;
    struct rank t;

    trial_rank_memory(&t, 0, ranks);
    TRIAL(trial.ncclCommInitRank(&comm, ranks, trial_id(rank, arg), rank) == RESULT_InvalidUsage);
    TRIAL(!comm && strstr(trial.ncclGetLastError(NULL), "Duplicate GPU"));
}

/* ---- communicators ---- */

/* Splits into even and odd ranks, each in reverse order. */
static void rank_split(int rank, int ranks, void *arg)
{
    struct ncclComm *half;
    int count, own;
    struct rank t;

    trial_rank_start(&t, rank, ranks, arg);
    TRIAL(!trial.ncclCommSplit(t.comm, rank % 2, -rank, &half, NULL));
    TRIAL(!trial.ncclCommCount(half, &count) && count == (ranks + 1 - rank % 2) / 2);
    TRIAL(!trial.ncclCommUserRank(half, &own) && own == count - 1 - rank / 2);
    TRIAL(!trial.ncclAllGather(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, half, t.stream));
    trial_result(&t);
    for (int i = 0; i < count; i++)
        trial_expect(&t, (size_t)i * COUNT, rank % 2 + 2 * (count - 1 - i), 0);
    TRIAL(!trial.ncclCommDestroy(half));
    trial_rank_end(&t);
}

static void test_settle(struct rank *t)
{
    int state = RESULT_InProgress;

    while (state == RESULT_InProgress) {
        TRIAL(!trial.ncclCommGetAsyncError(t->comm, &state));
        usleep(500);
    }
    TRIAL(state == RESULT_Success);
}

/* In a nonblocking communicator everything is in progress at first, and must not be used. */
static void rank_nonblocking(int rank, int ranks, void *arg)
{
    struct nccl_config config = {.size = sizeof(config), .magic = NCCL_CONFIG_MAGIC};
    struct rank t;

    trial_rank_memory(&t, rank, ranks);
    TRIAL(trial.ncclCommInitRankConfig(&t.comm, ranks, trial_id(rank, arg), rank, &config) ==
          RESULT_InProgress);
    test_settle(&t);
    setenv("STANDIN_DELAY_US", "300000", 1);
    TRIAL(trial.ncclAllReduce(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, OP_Sum, t.comm,
                              t.stream) == RESULT_InProgress);
    TRIAL(trial.ncclAllReduce(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, OP_Sum, t.comm,
                              t.stream) == RESULT_InvalidArgument);
    test_settle(&t);
    trial_result(&t);
    trial_expect(&t, 0, -1, 0);
    trial_rank_end(&t);
}

/* An error in a launch is reported, and the launch ends with the abort. */
static void rank_async_error(int rank, int ranks, void *arg)
{
    int state = RESULT_Success;
    struct rank t;

    setenv("STANDIN_FAULT", "async@0:1", 1);
    trial_rank_start(&t, rank, ranks, arg);
    for (int i = 0; i < 2; i++) {
        TRIAL(!trial_driver->stream_synchronize(t.stream));
        TRIAL(!trial.ncclAllReduce(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, OP_Sum, t.comm,
                                   t.stream));
    }
    while (rank == 0 && state == RESULT_Success)
        TRIAL(!trial.ncclCommGetAsyncError(t.comm, &state));
    if (rank == 0)
        TRIAL(state == RESULT_RemoteError && strstr(trial.ncclGetLastError(t.comm), "launch 1"));
    TRIAL(!trial.ncclCommAbort(t.comm));
    TRIAL(trial_driver->stream_synchronize(t.stream) == 0);
}

/*
 * Mismatched calls end in an error on a rank that sends, not in wrong results. The other ranks may
 * hang.
 */
static void rank_mismatch(int rank, int ranks, void *arg)
{
    struct meeting *meeting = arg;
    int state = RESULT_Success;
    struct rank t;

    trial_rank_start(&t, rank, ranks, arg);
    TRIAL(!trial.ncclAllReduce(trial_in(&t), trial_out(&t), rank == 0 ? 10 : 20, TYPE_Float32,
                               OP_Sum, t.comm, t.stream));
    while (state == RESULT_Success && !meeting->told) {
        TRIAL(!trial.ncclCommGetAsyncError(t.comm, &state));
        usleep(500);
    }
    TRIAL(state == RESULT_InternalError || meeting->told);
    meeting->told = true;
    TRIAL(!trial.ncclCommAbort(t.comm));
    TRIAL(trial_driver->stream_synchronize(t.stream) == 0);
}

static void rank_refusals(int rank, int ranks, void *arg)
{
    struct rank t;
    float host;

    trial_rank_start(&t, rank, ranks, arg);
    TRIAL(trial.ncclAllReduce(&host, trial_out(&t), 1, TYPE_Float32, OP_Sum, t.comm, t.stream) ==
          RESULT_InvalidArgument);
    TRIAL(trial.ncclBroadcast(trial_in(&t), trial_out(&t), 1, TYPE_Float32, ranks, t.comm,
                              t.stream) == RESULT_InvalidArgument);
    TRIAL(trial.ncclAllReduce(trial_in(&t), trial_out(&t), RANKS * COUNT + 1, TYPE_Float32, OP_Sum,
                              t.comm, t.stream) == RESULT_InvalidArgument);
    TRIAL(trial.ncclSend(trial_in(&t), 1, TYPE_Float32, rank, t.comm, t.stream) ==
          RESULT_InvalidUsage);
    TRIAL(trial.ncclGroupEnd() == RESULT_InvalidUsage);
    TRIAL(!trial.ncclAllReduce(NULL, NULL, 0, TYPE_Float32, OP_Sum, t.comm, t.stream));
    trial_rank_end(&t);
}

/* A graph with a collective, launched twice with different data. */
static void rank_graph(int rank, int ranks, void *arg)
{
    struct rank t;
    void *graph, *exec;

    trial_rank_start(&t, rank, ranks, arg);
    TRIAL(!trial.capture_begin(t.stream, 0));
    TRIAL(!trial.ncclAllReduce(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, OP_Sum, t.comm,
                               t.stream));
    TRIAL(!trial.capture_end(t.stream, &graph));
    TRIAL(!trial.graph_instantiate(&exec, graph, 0));
    TRIAL(!trial.graph_launch(exec, t.stream));
    trial_result(&t);
    trial_expect(&t, 0, -1, 0);
    TRIAL(!trial_driver->fill(t.in, 0, COUNT * sizeof(float), t.stream));
    TRIAL(!trial.graph_launch(exec, t.stream));
    trial_result(&t);
    for (size_t i = 0; i < COUNT; i++)
        TRIAL(t.host[i] == 0);
    TRIAL(!trial.exec_destroy(exec) && !trial.graph_destroy(graph));
    trial_rank_end(&t);
}

/* ---- on one to four ranks ---- */

#define TEST(name, least)                                                                          \
    static void name(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        for (int ranks = least; ranks <= RANKS; ranks++)                                           \
            assert_true(trial_ranks(ranks, rank_##name, trial_shared(sizeof(struct meeting))));    \
    }

/* X(name, minimum number of ranks) */
#define TESTS(X)                                                                                   \
    X(deadlock, 2)                                                                                 \
    X(one_device, 2)                                                                               \
    X(split, 2) X(nonblocking, 1) X(async_error, 1) X(mismatch, 2) X(refusals, 1) X(graph, 1)

TESTS(TEST)

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST_ROW(name, least) cmocka_unit_test(name),
        TESTS(TEST_ROW)
#undef TEST_ROW
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);

    trial_library = "standin_hip";
    return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
