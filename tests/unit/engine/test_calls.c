/* SPDX-License-Identifier: BSD-3-Clause */
/* Prepared calls, calls that are begun and never posted, user-defined reductions, and mismatched
 * calls. */
#include "engine/state.h"
#include "engine_rank.h"
#include "node/node.h"

#include <unistd.h>

#define COUNT 1000

static struct dist_call all_reduce(const void *in, void *out, size_t count, dist_dtype dtype)
{
    return (struct dist_call){.collective = DIST_COLL_ALL_REDUCE,
                              .in = in,
                              .out = out,
                              .count = count,
                              .dtype = dtype,
                              .op = DIST_SUM};
}

/* ---- prepared calls ---- */

static void prepared_rank(struct engine_rank *rank)
{
    static double in[COUNT], out[COUNT], other[COUNT];
    struct dist_call call = all_reduce(in, out, COUNT, DIST_FLOAT64);
    struct dist_ticket ticket;

    CHECK(disti_engine_prepare(rank->engine, &call, &call.prepared) == DIST_OK);
    CHECK(call.prepared);
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < COUNT; i++)
            in[i] = other[i] = i + rank->rank * round;
        engine_rank_post(rank, call, &ticket);
        engine_rank_call(rank, all_reduce(other, other, COUNT, DIST_FLOAT64)); /* at once */
        CHECK(engine_rank_wait(rank, &ticket) == DIST_OK);
        for (int i = 0; i < COUNT; i++)
            CHECK(out[i] == 3 * i + 3 * round && other[i] == out[i]);
    }
    if (rank->rank) /* rank 0 leaves the release to disti_engine_close */
        disti_engine_release(rank->engine, call.prepared);
    disti_engine_release(rank->engine, NULL);
}

static void a_prepared_call_can_be_posted_repeatedly(void **state)
{
    (void)state;
    engine_ranks_run(3, "shm", prepared_rank);
}

/* Only rank 0 makes the call: the engine is closed while the call is in progress. */
static void unfinished_rank(struct engine_rank *rank)
{
    static float value;
    struct dist_call call = all_reduce(&value, &value, 1, DIST_FLOAT32);
    static struct dist_ticket ticket;

    CHECK(disti_engine_prepare(rank->engine, &call, &call.prepared) == DIST_OK);
    if (rank->rank == 0)
        engine_rank_post(rank, call, &ticket);
    disti_engine_release(rank->engine, call.prepared);
    if (rank->rank == 0)
        engine_rank_stays(rank, &ticket);
}

static void a_prepared_call_in_progress_can_be_released(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", unfinished_rank);
}

static void messages_are_not_prepared(void **state)
{
    const struct dist_call call = {.collective = DIST_COLL_SEND, .count = 1, .dtype = DIST_INT8};
    void *prepared = &prepared;

    (void)state;
    assert_int_equal(disti_engine_prepare(NULL, &call, &prepared), DIST_OK);
    assert_null(prepared);
}

/* ---- calls that are begun and never posted ---- */

#define UNPOSTED ((size_t)1 << 18)

static void unposted_fill(int32_t *out)
{
    for (size_t i = 0; i < 2 * UNPOSTED; i++)
        out[i] = 42;
}

/* Rank 0's engine is closed between at_once and post. After that, the call must not write to the
 * program's memory. */
static void unposted_rank(struct engine_rank *rank)
{
    static const size_t counts[] = {UNPOSTED, UNPOSTED}, offsets[] = {0, UNPOSTED};
    struct dist_call call = {.collective = DIST_COLL_GATHER_V,
                             .count = UNPOSTED,
                             .out_counts = rank->rank ? NULL : counts,
                             .out_offsets = rank->rank ? NULL : offsets,
                             .dtype = DIST_INT32,
                             .waits = true,
                             .repeats = 1};
    struct dist_ticket ticket;
    void *in = NULL, *out = NULL;

    CHECK(disti_segment_alloc(UNPOSTED * sizeof(int32_t), &in) == DIST_OK);
    CHECK(disti_segment_alloc(2 * UNPOSTED * sizeof(int32_t), &out) == DIST_OK);
    call.in = in;
    call.out = out;
    if (rank->rank == 0) {
        CHECK(disti_engine_at_once(rank->engine, &call) == DIST_IN_PROGRESS);
        disti_engine_close(rank->engine);
        rank->engine = NULL;
        unposted_fill(out);
    }
    rank->broken = true;
    engine_rank_meet(rank);
    if (rank->rank == 1) {
        engine_rank_post(rank, call, &ticket);
        CHECK(engine_rank_wait(rank, &ticket) != DIST_OK);
    }
    engine_rank_meet(rank);
    for (size_t i = 0; rank->rank == 0 && i < 2 * UNPOSTED; i++)
        CHECK(((int32_t *)out)[i] == 42);
}

static void a_call_that_was_never_posted_leaves_memory_alone(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", unposted_rank);
}

/* ---- user-defined reductions ---- */

/* Each rank has its own factor. The values are float64, so that the sum is exact in any order. */
static void scaled_rank(struct engine_rank *rank)
{
    static double in[3 * COUNT], out[3 * COUNT];
    const struct dist_reduction mine = {.factor = rank->rank + 0.5};
    struct dist_call call = all_reduce(in, out, COUNT, DIST_FLOAT64);

    call.op = DIST_PREMUL_SUM;
    call.reduction = &mine;
    for (int i = 0; i < 3 * COUNT; i++)
        in[i] = i;
    engine_rank_call(rank, call);
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == (0.5 + 1.5 + 2.5) * i && in[i] == i);
    call.collective = DIST_COLL_REDUCE;
    for (call.root = 0; call.root < 3; call.root++) {
        call.out = rank->rank == call.root ? out : NULL;
        memset(out, 0, sizeof(out));
        engine_rank_call(rank, call);
        for (int i = 0; i < COUNT; i++)
            CHECK(out[i] == (rank->rank == call.root ? 4.5 * i : 0) && in[i] == i);
    }
    call.root = 0;
    call.collective = DIST_COLL_REDUCE_SCATTER; /* in place: other blocks are unchanged */
    call.out = in + rank->rank * COUNT;
    engine_rank_call(rank, call);
    for (int i = 0; i < 3 * COUNT; i++)
        CHECK(in[i] == (i / COUNT == rank->rank ? 4.5 * i : i));
    for (int i = 0; i < COUNT; i++)
        in[i] = i;
    call = all_reduce(in, in, COUNT, DIST_FLOAT64);
    call.op = DIST_PREMUL_SUM;
    call.reduction = &mine;
    engine_rank_call(rank, call);
    for (int i = 0; i < COUNT; i++)
        CHECK(in[i] == 4.5 * i);
}

static void premul_sum_scales_inputs_before_adding(void **state)
{
    (void)state;
    engine_ranks_run(3, "shm", scaled_rank);
}

/* The product modulo *arg. */
#define PRIME 1000003

static void multiply(void *arg, void *dst, const void *a, const void *b, size_t count,
                     dist_dtype dtype)
{
    for (size_t i = 0; i < count; i++) {
        int64_t x, y;

        memcpy(&x, (const char *)a + i * 8, 8);
        memcpy(&y, (const char *)b + i * 8, 8);
        x = dtype == DIST_INT64 ? x * y % *(int64_t *)arg : 0;
        memcpy((char *)dst + i * 8, &x, 8);
    }
}

static void own_rank(struct engine_rank *rank)
{
    static int64_t in[COUNT], out[COUNT];
    int64_t prime = PRIME;
    const struct dist_reduction mine = {.fn = multiply, .arg = &prime};
    struct dist_call call = all_reduce(in, out, COUNT, DIST_INT64);

    call.op = DIST_USER;
    call.reduction = &mine;
    for (int i = 0; i < COUNT; i++)
        in[i] = i * 7 + rank->rank * 11 + 1;
    engine_rank_call(rank, call);
    for (int i = 0; i < COUNT; i++) {
        int64_t expected = 1;

        for (int r = 0; r < rank->ranks; r++)
            expected = expected * (i * 7 + r * 11 + 1) % PRIME;
        CHECK(out[i] == expected);
    }
}

static void user_defined_reductions_work_in_all_algorithms(void **state)
{
    static const char *const algorithms[] = {"direct", "ring", "tree", "recursive_doubling"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        char force[64];

        snprintf(force, sizeof(force), "all_reduce:%s", algorithms[i]);
        setenv("DIST_ALGO", force, 1);
        engine_ranks_run(4, "shm", own_rank);
        engine_ranks_run(3, "tcp", own_rank);
    }
    unsetenv("DIST_ALGO");
}

/* ---- mismatched calls ---- */

/* Rank 1 receives, so it must detect the mismatch, with a message that contains `message`. Other
 * ranks may detect it. */
static void expect_mismatch(struct engine_rank *rank, struct dist_call call, const char *message)
{
    static struct dist_ticket ticket;

    rank->broken = true;
    engine_rank_post(rank, call, &ticket);
    if (rank->rank != 1)
        return;
    CHECK(engine_rank_wait(rank, &ticket) == DIST_ERR_MISMATCH);
    CHECK_SAYS(message);
}

static void zero_rank(struct engine_rank *rank)
{
    static int32_t data[3];

    expect_mismatch(rank, all_reduce(data, data, rank->rank ? 3 : 0, DIST_INT32),
                    "all_reduce(count 0");
}

static void count_0_does_not_match_other_counts(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", zero_rank);
    engine_ranks_run(2, "tcp", zero_rank);
}

/* Rank 0 sends 2 elements; rank 1 is root and expects 3. */
static void gather_rank(struct engine_rank *rank)
{
    static const size_t counts[2] = {3, 1}, offsets[2] = {0, 3};
    static int32_t in[2], out[4];
    struct dist_call call = {.collective = DIST_COLL_GATHER_V,
                             .in = in,
                             .out = out,
                             .count = rank->rank ? 1 : 2,
                             .dtype = DIST_INT32,
                             .root = 1,
                             .out_counts = rank->rank ? counts : NULL,
                             .out_offsets = rank->rank ? offsets : NULL};

    expect_mismatch(
        rank, call,
        "rank 1 expects 3 elements from rank 0 in gather_v(int32, root 1), operation 0, but "
        "rank 0 sent 2");
}

/* A message is compared even if the root expects 0 elements. */
static void nothing_rank(struct engine_rank *rank)
{
    static const size_t counts[2] = {0, 1}, offsets[2] = {0, 0};
    static int32_t in[2], out[2];
    struct dist_call call = {.collective = DIST_COLL_GATHER_V,
                             .in = in,
                             .out = out,
                             .count = 1,
                             .dtype = DIST_INT32,
                             .root = 1,
                             .out_counts = rank->rank ? counts : NULL,
                             .out_offsets = rank->rank ? offsets : NULL};

    expect_mismatch(rank, call, "rank 1 expects 0 elements from rank 0");
}

static void counts_of_sender_and_root_are_compared(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", gather_rank);
    engine_ranks_run(2, "shm", nothing_rank);
}

/* The block that is sent has the same length on both ranks, but another block differs. */
static void hash_rank(struct engine_rank *rank)
{
    static const size_t offsets[3] = {0, 2, 4};
    static size_t counts[3] = {2, 2, 2};
    static int32_t in[2], out[6];
    struct dist_call call = {.collective = DIST_COLL_ALL_GATHER_V,
                             .in = in,
                             .out = out,
                             .dtype = DIST_INT32,
                             .out_counts = counts,
                             .out_offsets = offsets};

    counts[2] -= rank->rank == 1;
    expect_mismatch(rank, call, "all_gather_v(int32) with different counts");
}

static void counts_of_all_ranks_are_compared(void **state)
{
    (void)state;
    engine_ranks_run(3, "shm", hash_rank);
}

/* ---- the history of calls ---- */

/* Returns the history number after a call with that fingerprint. */
static uint64_t number_after(uint64_t fingerprint)
{
    static struct dist_engine engine;

    engine = (struct dist_engine){0};
    disti_mismatch_called(&engine.calls, 0, fingerprint);
    return disti_mismatch_number(&engine, 1);
}

static void calls_that_differ_in_one_bit_have_different_histories(void **unused)
{
    uint64_t fingerprint = 1;

    (void)unused;
    for (int round = 0; round < 1000; round++) {
        for (int bit = 0; bit < 64; bit++)
            assert_true(number_after(fingerprint) !=
                        number_after(fingerprint ^ UINT64_C(1) << bit));
        fingerprint = fingerprint * 6364136223846793005u + 1442695040888963407u;
    }
}

/* Rank 0 waits long enough to compare calls with rank 1, whose calls are the same. */
static void late_rank(struct engine_rank *rank)
{
    static float value;

    engine_rank_call(rank, all_reduce(&value, &value, 1, DIST_FLOAT32));
    if (rank->rank == 1)
        usleep(300 * 1000);
    engine_rank_call(rank, all_reduce(&value, &value, 1, DIST_FLOAT32));
    for (int i = 0; i < 2000; i++)
        CHECK(disti_engine_progress(rank->engine) >= 0);
    engine_rank_meet(rank);
    CHECK(!disti_mismatch_look(rank->engine, DISTI_MISMATCH_ALL));
    CHECK(rank->engine->calls.suspect == -1);
}

static void a_late_peer_with_the_same_calls_is_no_suspect(void **state)
{
    (void)state;
    engine_ranks_run(2, "shm", late_rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prepared_call_can_be_posted_repeatedly),
        cmocka_unit_test(a_prepared_call_in_progress_can_be_released),
        cmocka_unit_test(messages_are_not_prepared),
        cmocka_unit_test(a_call_that_was_never_posted_leaves_memory_alone),
        cmocka_unit_test(premul_sum_scales_inputs_before_adding),
        cmocka_unit_test(user_defined_reductions_work_in_all_algorithms),
        cmocka_unit_test(count_0_does_not_match_other_counts),
        cmocka_unit_test(counts_of_sender_and_root_are_compared),
        cmocka_unit_test(counts_of_all_ranks_are_compared),
        cmocka_unit_test(calls_that_differ_in_one_bit_have_different_histories),
        cmocka_unit_test(a_late_peer_with_the_same_calls_is_no_suspect),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
