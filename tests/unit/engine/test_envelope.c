/* SPDX-License-Identifier: BSD-3-Clause */
/* The headers of messages: tags that cannot collide, fingerprints, and the messages about
 * mismatches. */
#include "base/log.h"
#include "engine/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define RANKS 3

static void different_calls_have_different_fingerprints(void **state)
{
    const struct dist_call call = {
        .collective = DIST_COLL_REDUCE, .count = 1000, .dtype = DIST_FLOAT32, .op = DIST_SUM};
    struct dist_call others[5] = {call, call, call, call, call};

    (void)state;
    others[0].collective = DIST_COLL_BROADCAST;
    others[1].count = 1001;
    others[2].dtype = DIST_INT32;
    others[3].op = DIST_MAX;
    others[4].root = 1;
    for (int i = 0; i < 5; i++)
        assert_true(disti_fingerprint(&call, RANKS) != disti_fingerprint(&others[i], RANKS));
}

static void irrelevant_arguments_do_not_change_the_fingerprint(void **state)
{
    struct dist_call call = {.collective = DIST_COLL_ALL_GATHER, .count = 8, .dtype = DIST_INT8};
    uint64_t was = disti_fingerprint(&call, RANKS);

    (void)state;
    call.op = DIST_MAX;
    call.root = 2;
    call.sequence = 9;
    assert_true(disti_fingerprint(&call, RANKS) == was);
}

/* No field of a fingerprint overflows into the collective's bits. */
static void fields_of_a_fingerprint_do_not_overlap(void **state)
{
    (void)state;
    for (int c = 0; c < DIST_COLL_COUNT; c++) {
        const size_t none[RANKS] = {0};
        struct dist_call call = {.collective = (dist_collective)c,
                                 .count = SIZE_MAX,
                                 .dtype = DIST_DTYPE_COUNT - 1,
                                 .op = DIST_OP_COUNT - 1,
                                 .root = 0x3ffff,
                                 .in_counts = none,
                                 .out_counts = none};
        uint64_t collective = disti_fingerprint(&call, RANKS) >> 59;

        assert_int_equal(collective, c == DIST_COLL_RECV ? DIST_COLL_SEND : c);
    }
}

static void a_send_has_the_fingerprint_of_its_receive(void **state)
{
    const struct dist_call send = {
        .collective = DIST_COLL_SEND, .root = 2, .count = 5, .dtype = DIST_UINT8, .tag = 3};
    struct dist_call recv = send;

    (void)state;
    recv.collective = DIST_COLL_RECV;
    recv.root = 0;
    assert_true(disti_fingerprint(&send, RANKS) == disti_fingerprint(&recv, RANKS));
    recv.dtype = DIST_INT8;
    assert_true(disti_fingerprint(&send, RANKS) != disti_fingerprint(&recv, RANKS));
}

static void counts_that_all_ranks_have_are_in_the_fingerprint(void **state)
{
    const size_t counts[RANKS] = {4, 0, 7}, moved[RANKS] = {0, 4, 7},
                 huge[RANKS] = {4 + ((size_t)1 << 40), 0, 7};
    struct dist_call call = {.collective = DIST_COLL_ALL_GATHER_V, .out_counts = counts};
    uint64_t was = disti_fingerprint(&call, RANKS);

    (void)state;
    call.out_counts = moved;
    assert_true(disti_fingerprint(&call, RANKS) != was);
    call.out_counts = huge;
    assert_true(disti_fingerprint(&call, RANKS) != was);
    call.collective = DIST_COLL_ALL_TO_ALL_V; /* there, each rank has its own counts */
    was = disti_fingerprint(&call, RANKS);
    call.out_counts = counts;
    assert_true(disti_fingerprint(&call, RANKS) == was);
}

static void expect_text(const struct dist_call *call, const char *expected)
{
    char text[128];

    disti_fingerprint_text(disti_fingerprint(call, RANKS), text, sizeof(text));
    assert_string_equal(text, expected);
}

static void a_fingerprint_is_decoded_to_text(void **state)
{
    struct dist_call call = {.collective = DIST_COLL_BROADCAST,
                             .count = 77,
                             .dtype = DIST_BFLOAT16,
                             .op = DIST_MAX,
                             .root = 5};

    (void)state;
    expect_text(&call, "broadcast(count 77, bfloat16, root 5)");
    call.collective = DIST_COLL_REDUCE;
    expect_text(&call, "reduce(count 77, bfloat16, max, root 5)");
    call.collective = DIST_COLL_ALL_REDUCE;
    expect_text(&call, "all_reduce(count 77, bfloat16, max)");
    call.collective = DIST_COLL_GATHER_V;
    expect_text(&call, "gather_v(bfloat16, root 5)");
    call.collective = DIST_COLL_BARRIER;
    call.count = 0;
    expect_text(&call, "barrier");
}

static void any_fingerprint_can_be_decoded(void **state)
{
    char text[128];

    (void)state;
    for (int shift = 0; shift < 64; shift++) {
        disti_fingerprint_text(UINT64_MAX << shift, text, sizeof(text));
        assert_true(strlen(text) > 0);
    }
}

static void tags_contain_group_sequence_and_channel(void **state)
{
    uint64_t tag = disti_tag_collective(0xabcde, UINT64_MAX, 0x3f);

    (void)state;
    assert_true(tag == 0xabcde7ffffffffff);
    assert_true(disti_tag_collective(0, 1, 0) != disti_tag_collective(0, 0, 1));
    assert_true(disti_tag_collective(1, 0, 0) != disti_tag_collective(0, 1, 0));
}

static void point_to_point_tags_differ_from_collective_tags(void **state)
{
    uint64_t tag = disti_tag_p2p(0xabcde, 0, DIST_TAG_MAX);

    (void)state;
    assert_true(tag == 0xabcde8007fffffff);
    assert_true(disti_tag_p2p(0, 1, 0) == ((uint64_t)1 << 43 | (uint64_t)1 << 31));
    assert_true(disti_tag_collective(0xabcde, UINT64_MAX, UINT16_MAX) < tag);
}

/* Returns the message on rank 1 after its call `mine`, with `bytes` bytes, received a message of
 * rank 2's call `theirs`. */
static const char *mismatch(const struct dist_call *mine, uint64_t bytes,
                            const struct dist_call *theirs, uint64_t their_bytes)
{
    const struct dist_request request = {
        .peer = 2,
        .envelope = {.fingerprint = disti_fingerprint(mine, RANKS), .bytes = bytes},
        .arrived = {.fingerprint = disti_fingerprint(theirs, RANKS), .bytes = their_bytes}};

    assert_int_equal(disti_mismatch(&request, 1, 7), DIST_ERR_MISMATCH);
    return dist_last_error();
}

static void a_mismatch_names_both_calls(void **state)
{
    const struct dist_call mine = {.collective = DIST_COLL_ALL_REDUCE, .count = 4};
    const struct dist_call theirs = {.collective = DIST_COLL_SCATTER, .count = 2, .root = 1};
    const char *text = mismatch(&mine, 16, &theirs, 8);

    (void)state;
    assert_non_null(strstr(text, "rank 1 called all_reduce(count 4, float32, sum) as operation 7"));
    assert_non_null(strstr(text, "but rank 2 called scatter(count 2, float32, root 1):"));
}

static void different_counts_are_named_as_the_cause(void **state)
{
    const size_t counts[RANKS] = {1, 2, 3}, others[RANKS] = {1, 2, 4};
    const struct dist_call mine = {.collective = DIST_COLL_REDUCE_SCATTER_V, .in_counts = counts};
    const struct dist_call theirs = {.collective = DIST_COLL_REDUCE_SCATTER_V, .in_counts = others};

    (void)state;
    assert_non_null(
        strstr(mismatch(&mine, 8, &theirs, 8),
               "but rank 2 called reduce_scatter_v(float32, sum) with different counts:"));
}

static void lengths_are_reported_in_elements(void **state)
{
    const struct dist_call call = {.collective = DIST_COLL_ALL_TO_ALL_V, .dtype = DIST_FLOAT64};
    const char *text = mismatch(&call, 40, &call, 24);

    (void)state;
    assert_non_null(strstr(text, "rank 1 expects 5 elements from rank 2 in all_to_all_v(float64)"));
    assert_non_null(strstr(text, "rank 2 sent 3:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(different_calls_have_different_fingerprints),
        cmocka_unit_test(irrelevant_arguments_do_not_change_the_fingerprint),
        cmocka_unit_test(fields_of_a_fingerprint_do_not_overlap),
        cmocka_unit_test(a_send_has_the_fingerprint_of_its_receive),
        cmocka_unit_test(counts_that_all_ranks_have_are_in_the_fingerprint),
        cmocka_unit_test(a_fingerprint_is_decoded_to_text),
        cmocka_unit_test(any_fingerprint_can_be_decoded),
        cmocka_unit_test(tags_contain_group_sequence_and_channel),
        cmocka_unit_test(point_to_point_tags_differ_from_collective_tags),
        cmocka_unit_test(a_mismatch_names_both_calls),
        cmocka_unit_test(different_counts_are_named_as_the_cause),
        cmocka_unit_test(lengths_are_reported_in_elements),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
