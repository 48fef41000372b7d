/* SPDX-License-Identifier: BSD-3-Clause */
/* Names, hashes, the clock, sleeping and sinks. */
#include "base/backoff.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/kernels/sink.h"

#include <dist/backend.h>

#include "unit.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>

static void test_values_have_names(void **state)
{
    (void)state;
    assert_string_equal(dist_status_string(DIST_OK), "success");
    assert_string_equal(dist_status_string(DIST_ERR_PEER_LOST), "a rank was lost");
    assert_string_equal(dist_status_string((dist_status)-99), "unknown status");
    assert_string_equal(dist_dtype_string(DIST_FLOAT32), "float32");
    assert_string_equal(dist_dtype_string(DIST_UINT64), "uint64");
    assert_string_equal(dist_dtype_string(DIST_DTYPE_COUNT), "unknown dtype");
    assert_string_equal(dist_dtype_string((dist_dtype)-1), "unknown dtype");
    assert_string_equal(dist_op_string(DIST_AVG), "avg");
    assert_string_equal(dist_op_string(DIST_BXOR), "bxor");
    assert_string_equal(dist_op_string(DIST_OP_COUNT), "unknown op");
    assert_string_equal(dist_op_string((dist_op)-1), "unknown op");
    assert_string_equal(dist_op_string(DIST_OP_DYNAMIC), "created");
    assert_string_equal(dist_op_string((dist_op)0x7fffffff), "created");
    assert_string_equal(dist_collective_string(DIST_COLL_ALL_GATHER), "all_gather");
    assert_string_equal(dist_collective_string(DIST_COLL_COUNT), "unknown collective");
    assert_string_equal(dist_version(), DIST_VERSION_STRING);
}

static void test_dtypes_have_their_sizes(void **state)
{
    static const size_t sizes[] = {4, 8, 2, 2, 1, 1, 4, 4, 8, 8, 1};

    (void)state;
    assert_int_equal(sizeof(sizes) / sizeof(sizes[0]), DIST_DTYPE_COUNT);
    for (int dtype = 0; dtype < DIST_DTYPE_COUNT; dtype++)
        assert_int_equal(dist_dtype_size((dist_dtype)dtype), sizes[dtype]);
    assert_int_equal(dist_dtype_size(DIST_DTYPE_COUNT), 0);
    assert_int_equal(dist_dtype_size((dist_dtype)-1), 0);
}

static void test_deadlines_are_rounded_up_and_saturate(void **state)
{
    int64_t now = disti_now_ns(), deadline = disti_deadline_ms(60000);
    int left_ms;

    (void)state;
    assert_in_range(deadline - now, INT64_C(60000000000), INT64_C(90000000000));
    assert_false(disti_expired(deadline));
    assert_in_range(disti_left_ms(deadline), 30000, 60000);
    assert_true(disti_expired(disti_deadline_ms(0)));
    assert_true(disti_expired(disti_deadline_ms(-5)));
    assert_true(disti_expired(disti_deadline_ms(INT64_MIN)));
    assert_int_equal(disti_left_ms(now), 0);
    assert_int_equal(disti_left_ms(INT64_MIN), 0);
    assert_true(disti_deadline_ms(INT64_MAX) == INT64_MAX);
    assert_int_equal(disti_left_ms(INT64_MAX), INT_MAX);
    deadline = disti_now_ns() + 900000000;
    left_ms = disti_left_ms(deadline);
    assert_true(left_ms <= 900);
    assert_true(left_ms * INT64_C(1000000) >= deadline - disti_now_ns()); /* rounded up */
}

/* While a job is suspended, its clock does not advance, so that deadlines are postponed. */
static void test_a_suspended_clock_does_not_advance(void **state)
{
    _Atomic int64_t number = 0;
    int64_t before, frozen, deadline;

    (void)state;
    /* The job was suspended before this process followed its clock: the clock must not go back. */
    before = disti_now_ns();
    number = INT64_C(3600) * 1000000000;
    disti_clock_follow(&number);
    assert_true(disti_now_ns() >= before);
    before = disti_now_ns();
    deadline = disti_deadline_ms(3600 * 1000);
    number = disti_clock_suspend(number);
    assert_int_equal(disti_clock_suspend(number), number);
    frozen = disti_now_ns();
    assert_true(number < 0 && frozen >= before);
    disti_sleep_ns(2000000);
    assert_int_equal(disti_now_ns(), frozen);
    assert_int_equal(disti_left_ms(deadline), disti_left_ms(deadline));
    number = disti_clock_resume(number);
    assert_true(number >= INT64_C(3600) * 1000000000 + 2000000);
    assert_true(disti_now_ns() >= frozen);
    assert_int_equal(disti_clock_resume(number), number);
    /* The clock after a suspension of one day. */
    number += INT64_C(86400) * 1000000000;
    assert_true(disti_now_ns() < deadline);
    assert_true(disti_clock_timespec(frozen).tv_sec - frozen / 1000000000 >= 86400);
    assert_true(disti_clock_timespec(INT64_MAX).tv_sec > 0);
    disti_sleep_ns(1000000);
    disti_clock_follow(NULL);
}

static void clock_ignore(int signal)
{
    (void)signal;
}

/* Sleeps for the whole time although a signal interrupts it. */
static void test_sleep_continues_after_a_signal(void **state)
{
    struct sigaction action = {.sa_handler = clock_ignore};
    struct itimerval timer = {.it_value = {.tv_usec = 5000}};
    int64_t before;

    (void)state;
    assert_int_equal(sigaction(SIGALRM, &action, NULL), 0);
    before = disti_now_ns();
    assert_int_equal(setitimer(ITIMER_REAL, &timer, NULL), 0);
    disti_sleep_ns(30000000);
    assert_in_range(disti_now_ns() - before, 30000000, INT64_C(20000000000));
    disti_sleep_ns(0);
    disti_sleep_ns(-1);
}

/* The first calls of disti_backoff spin and yield; after that, each call sleeps. */
static void test_backoff_finally_sleeps(void **state)
{
    struct disti_backoff backoff = {0};
    int64_t began;

    (void)state;
    while (backoff.looks < DISTI_BACKOFF_SPINS + DISTI_BACKOFF_YIELDS)
        disti_backoff(&backoff);
    began = disti_now_ns();
    for (int i = 0; i < 4; i++)
        disti_backoff(&backoff);
    assert_true(disti_now_ns() - began >= 4 * DISTI_BACKOFF_NAP_NS);
    assert_int_equal(backoff.looks, DISTI_BACKOFF_SPINS + DISTI_BACKOFF_YIELDS);
}

static void test_a_sink_copies_to_its_offset(void **state)
{
    char memory[8] = "........";
    struct dist_sink sink = {.dst = memory, .bytes = 8, .dtype = DIST_INT64, .op = DIST_SUM};

    (void)state;
    disti_sink_apply(&sink, 2, "abc", 3);
    disti_sink_apply(&sink, 5, "de", 2);
    disti_sink_apply(&sink, 8, NULL, 0);
    assert_memory_equal(memory, "..abcde.", 8);
    assert_ptr_equal(disti_sink_direct(&sink, 3), memory + 3);
}

static void test_a_sink_reduces_and_finishes(void **state)
{
    int32_t mine[] = {10, 20, 30, 40}, out[] = {-1, -1, -1, -1}, theirs[] = {1, 2, 3, 5};
    struct dist_sink sink = {
        .dst = out, .src = mine, .bytes = 16, .dtype = DIST_INT32, .op = DIST_SUM};

    (void)state;
    assert_null(disti_sink_direct(&sink, 0));
    disti_sink_apply(&sink, 4, theirs + 1, 8);
    assert_int_equal(out[0], -1);
    assert_int_equal(out[1], 22);
    assert_int_equal(out[2], 33);
    assert_int_equal(out[3], -1);
    sink.dst = mine;
    sink.op = DIST_AVG;
    disti_sink_apply(&sink, 0, theirs, 4);
    assert_int_equal(mine[0], 11);
    sink.finish_ranks = 5;
    disti_sink_apply(&sink, 12, theirs + 3, 4);
    assert_int_equal(mine[3], 9);
    sink.op = DIST_MAX;
    disti_sink_apply(&sink, 4, theirs + 1, 4);
    assert_int_equal(mine[1], 20);
}

/* dst[i] = 10 * a[i] + b[i], so that the result shows which operand is which. Counts the
 * elements. */
static void sink_tens(void *arg, void *dst, const void *a, const void *b, size_t count,
                      dist_dtype dtype)
{
    const int32_t *x = a, *y = b;
    size_t *got = arg;

    assert_int_equal(dtype, DIST_INT32);
    assert_int_equal((uintptr_t)b % sizeof(*y), 0);
    for (size_t i = 0; i < count; i++)
        ((int32_t *)dst)[i] = 10 * x[i] + y[i];
    *got += count;
}

/* Received bytes may have any alignment; the user's function is called with aligned ones, for all
 * elements. */
static void test_a_sink_passes_aligned_data_to_the_users_function(void **state)
{
    enum { COUNT = 2500 };
    static int32_t mine[COUNT], out[COUNT], theirs[COUNT];
    static char anywhere[sizeof(theirs) + 8];
    size_t got = 0;
    struct dist_reduction own = {.fn = sink_tens, .arg = &got};
    struct dist_sink sink = {.dst = out,
                             .src = mine,
                             .bytes = sizeof(out),
                             .dtype = DIST_INT32,
                             .op = DIST_USER,
                             .finish_ranks = 2,
                             .reduction = &own};

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        mine[i] = i;
        theirs[i] = 3 * i + 1;
    }
    for (size_t skew = 0; skew < 8; skew++) {
        memcpy(anywhere + skew, theirs, sizeof(theirs));
        memset(out, 0, sizeof(out));
        got = 0;
        disti_sink_apply(&sink, 4, anywhere + skew + 4, sizeof(theirs) - 4);
        assert_int_equal(got, COUNT - 1);
        assert_int_equal(out[0], 0);
        for (int i = 1; i < COUNT; i++)
            assert_int_equal(out[i], 13 * i + 1);
    }
    sink.dst = mine;
    disti_sink_apply(&sink, 8, theirs + 2, 4);
    assert_int_equal(mine[2], 27);
    assert_int_equal(mine[3], 3);
}

/* The values of the types and ops are part of the ABI and must not change. */
static void test_values_of_types_and_ops_are_fixed(void **state)
{
    static const dist_dtype types[] = {DIST_FLOAT32, DIST_FLOAT64, DIST_FLOAT16, DIST_BFLOAT16,
                                       DIST_INT8,    DIST_UINT8,   DIST_INT32,   DIST_UINT32,
                                       DIST_INT64,   DIST_UINT64,  DIST_BOOL};
    static const dist_op ops[] = {DIST_SUM,  DIST_AVG, DIST_PROD, DIST_MIN,        DIST_MAX,
                                  DIST_BAND, DIST_BOR, DIST_BXOR, DIST_PREMUL_SUM, DIST_USER};

    (void)state;
    for (unsigned i = 0; i < sizeof(types) / sizeof(types[0]); i++)
        assert_int_equal(types[i], i);
    for (unsigned i = 0; i < sizeof(ops) / sizeof(ops[0]); i++)
        assert_int_equal(ops[i], i);
    assert_int_equal(DIST_OP_DYNAMIC, 1073741824);
}

/* The published test vectors of FNV-1a. The hash names cache files and is compared between ranks,
 * so it must not change. */
static void test_hashes_match_published_vectors(void **state)
{
    const unsigned char bytes[] = {'f', 0, 0xff};
    uint64_t hash = disti_hash_text(DISTI_HASH_START, "foo");

    (void)state;
    assert_int_equal(disti_hash_text(DISTI_HASH_START, ""), UINT64_C(0xcbf29ce484222325));
    assert_int_equal(disti_hash_text(DISTI_HASH_START, "a"), UINT64_C(0xaf63dc4c8601ec8c));
    assert_int_equal(disti_hash_text(hash, "bar"), UINT64_C(0x85944171f73967e8));
    assert_int_equal(disti_hash_bytes(DISTI_HASH_START, bytes, 0), DISTI_HASH_START);
    assert_true(disti_hash_bytes(DISTI_HASH_START, bytes, 3) !=
                disti_hash_bytes(DISTI_HASH_START, bytes, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_suspended_clock_does_not_advance),
        cmocka_unit_test(test_values_have_names),
        cmocka_unit_test(test_values_of_types_and_ops_are_fixed),
        cmocka_unit_test(test_dtypes_have_their_sizes),
        cmocka_unit_test(test_deadlines_are_rounded_up_and_saturate),
        cmocka_unit_test(test_sleep_continues_after_a_signal),
        cmocka_unit_test(test_a_sink_copies_to_its_offset),
        cmocka_unit_test(test_a_sink_reduces_and_finishes),
        cmocka_unit_test(test_a_sink_passes_aligned_data_to_the_users_function),
        cmocka_unit_test(test_hashes_match_published_vectors),
        cmocka_unit_test(test_backoff_finally_sleeps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
