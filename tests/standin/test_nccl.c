/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the stand-in's NCCL: compares results with plain loops. */
#include "trial_rank.h"

#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* ---- collectives ---- */

static void rank_reductions(int rank, int ranks, void *arg)
{
    struct rank t;

    trial_rank_start(&t, rank, ranks, arg);
    TRIAL(!trial.ncclAllReduce(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, OP_Sum, t.comm,
                               t.stream));
    trial_result(&t);
    trial_expect(&t, 0, -1, 0);
    TRIAL(!trial.ncclReduceScatter(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, OP_Sum, t.comm,
                                   t.stream));
    trial_result(&t);
    trial_expect(&t, 0, -1, (size_t)rank * COUNT);
    for (int root = 0; root < ranks; root++) {
        TRIAL(!trial.ncclReduce(trial_in(&t), rank == root ? trial_out(&t) : NULL, COUNT,
                                TYPE_Float32, OP_Sum, root, t.comm, t.stream));
        trial_result(&t);
        if (rank == root)
            trial_expect(&t, 0, -1, 0);
    }
    trial_rank_end(&t);
}

static void rank_copies(int rank, int ranks, void *arg)
{
    struct rank t;

    trial_rank_start(&t, rank, ranks, arg);
    for (int root = 0; root < ranks; root++) {
        TRIAL(!trial.ncclBroadcast(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, root, t.comm,
                                   t.stream));
        trial_result(&t);
        trial_expect(&t, 0, root, 0);
    }
    TRIAL(!trial.ncclAllGather(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, t.comm, t.stream));
    trial_result(&t);
    for (int r = 0; r < ranks; r++)
        trial_expect(&t, (size_t)r * COUNT, r, 0);
    TRIAL(!trial.ncclAlltoAll(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, t.comm, t.stream));
    trial_result(&t);
    for (int r = 0; r < ranks; r++)
        trial_expect(&t, (size_t)r * COUNT, r, (size_t)rank * COUNT);
    trial_rank_end(&t);
}

static void rank_rooted(int rank, int ranks, void *arg)
{
    struct rank t;

    trial_rank_start(&t, rank, ranks, arg);
    for (int root = 0; root < ranks; root++) {
        TRIAL(!trial.ncclGather(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, root, t.comm,
                                t.stream));
        trial_result(&t);
        for (int r = 0; r < ranks && rank == root; r++)
            trial_expect(&t, (size_t)r * COUNT, r, 0);
        TRIAL(!trial.ncclScatter(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, root, t.comm,
                                 t.stream));
        trial_result(&t);
        trial_expect(&t, 0, root, (size_t)rank * COUNT);
    }
    trial_rank_end(&t);
}

/* ---- point to point ---- */

static void rank_ring(int rank, int ranks, void *arg)
{
    struct rank t;

    trial_rank_start(&t, rank, ranks, arg);
    TRIAL(!trial.ncclGroupStart());
    TRIAL(!trial.ncclSend(trial_in(&t), COUNT, TYPE_Float32, (rank + 1) % ranks, t.comm, t.stream));
    TRIAL(!trial.ncclRecv(trial_out(&t), COUNT, TYPE_Float32, (rank + ranks - 1) % ranks, t.comm,
                          t.stream));
    TRIAL(!trial.ncclGroupEnd());
    trial_result(&t);
    trial_expect(&t, 0, (rank + ranks - 1) % ranks, 0);
    trial_rank_end(&t);
}

/* ---- all types and operations ---- */

/* Returns the result of an operation on small integers, which every type can represent. */
static double test_combined(int op, int ranks, size_t i)
{
    double all = 0;

    for (int r = 0; r < ranks; r++) {
        double one = 1 + (double)((i + (size_t)r) % 3);

        if (r == 0)
            all = one;
        else if (op == OP_Prod)
            all *= one;
        else if (op == OP_Max || op == OP_Min)
            all = (one > all) == (op == OP_Max) ? one : all;
        else
            all += one;
    }
    return op == OP_Avg ? all / ranks : all;
}

/* Returns 1, 2, 3, ... up to 127 as a half or a bfloat16, computed bit by bit: the exponent is that
 * of the top bit. */
static uint16_t test_half(int number, int bits, int bias)
{
    int top = 0;

    while (number >> (top + 1))
        top++;
    return (uint16_t)((top + bias) << bits | ((number - (1 << top)) << bits >> top));
}

static void test_put(int type, void *to, size_t i, int number)
{
    switch (type) {
#define TEST_PUT(name, at, stored, reckoned)                                                       \
    case TYPE_##name:                                                                              \
        ((stored *)to)[i] = TYPE_##name == TYPE_Float16    ? (stored)test_half(number, 10, 15)     \
                            : TYPE_##name == TYPE_Bfloat16 ? (stored)test_half(number, 7, 127)     \
                                                           : (stored)number;                       \
        break;
        NCCL_TYPES(TEST_PUT)
#undef TEST_PUT
    }
}

static void test_type(struct rank *t, int type, int op)
{
    static const unsigned char sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    size_t bytes = COUNT * sizes[type];
    unsigned char expected[COUNT * 8], found[COUNT * 8];
    uintptr_t memory;

    for (size_t i = 0; i < COUNT; i++)
        test_put(type, found, i, 1 + (int)((i + (size_t)t->rank) % 3));
    /* Averages of integers are truncated, as in NCCL. */
    for (size_t i = 0; i < COUNT; i++)
        test_put(type, expected, i, (int)test_combined(op, t->ranks, i));
    memory = trial_memory(found, bytes);
    TRIAL(
        !trial.ncclAllReduce((void *)memory, (void *)memory, COUNT, type, op, t->comm, t->stream));
    trial_read(found, memory, bytes, t->stream);
    TRIAL(memcmp(found, expected, bytes) == 0);
    TRIAL(trial_driver->memory_free(memory) == 0);
}

static void rank_types(int rank, int ranks, void *arg)
{
    struct rank t;

    trial_rank_start(&t, rank, ranks, arg);
    for (int type = TYPE_Int8; type <= TYPE_Bfloat16; type++) {
        for (int op = OP_Sum; op <= OP_Avg; op++) {
            /* The sum of three ranks is a multiple of 3 for every i; other averages are not
             * integers. */
            if (op != OP_Avg || ranks == 3 || type <= TYPE_Uint64)
                test_type(&t, type, op);
        }
    }
    trial_rank_end(&t);
}

static void rank_premul(int rank, int ranks, void *arg)
{
    float factor = 1 + (float)rank;
    struct rank t;
    int op;

    trial_rank_start(&t, rank, ranks, arg);
    TRIAL(!trial.ncclRedOpCreatePreMulSum(&op, &factor, TYPE_Float32, 1, t.comm));
    TRIAL(trial.ncclAllReduce(trial_in(&t), trial_out(&t), COUNT, TYPE_Int32, op, t.comm,
                              t.stream) == RESULT_InvalidArgument);
    TRIAL(!trial.ncclAllReduce(trial_in(&t), trial_out(&t), COUNT, TYPE_Float32, op, t.comm,
                               t.stream));
    TRIAL(!trial.ncclRedOpDestroy(op, t.comm));
    trial_result(&t);
    for (size_t i = 0; i < COUNT; i++) {
        float sum = 0;

        for (int r = 0; r < ranks; r++)
            sum += (float)(1 + r) * trial_value(r, i);
        TRIAL(t.host[i] == sum);
    }
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
#define TESTS(X) X(reductions, 1) X(copies, 1) X(rooted, 1) X(ring, 1) X(types, 1) X(premul, 1)

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
