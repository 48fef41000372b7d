/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching of messages and receives by tag, in order, whichever is first. */
#include "transports/match/match.h"

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <string.h>

static struct dist_envelope match_envelope(uint64_t tag, uint64_t bytes)
{
    return (struct dist_envelope){.tag = tag, .fingerprint = 1000 + tag, .bytes = bytes};
}

static struct dist_request match_receive(uint64_t tag, uint64_t bytes)
{
    return (struct dist_request){.status = DIST_IN_PROGRESS,
                                 .envelope = match_envelope(tag, bytes)};
}

static struct dist_request *match_arrive(struct disti_match *match, uint64_t tag)
{
    struct dist_envelope envelope = match_envelope(tag, 8);
    bool mismatch = true;
    struct dist_request *request = disti_match_arrival(match, &envelope, &mismatch);

    assert_false(mismatch);
    return request;
}

static struct disti_unexpected *match_hold(struct disti_match *match, uint64_t tag, uint64_t bytes)
{
    struct dist_envelope envelope = match_envelope(tag, bytes);
    struct disti_unexpected *unexpected = disti_match_hold(match, &envelope, false);

    assert_non_null(unexpected);
    return unexpected;
}

static void match_assert_empty(const struct disti_match *match)
{
    const struct disti_match empty = {0};

    assert_memory_equal(match, &empty, sizeof(empty));
}

/* Matches the first, a middle, the last and the only posted receive. */
static void test_messages_match_posted_receives_in_order(void **state)
{
    struct dist_request r[] = {match_receive(7, 8), match_receive(9, 8), match_receive(7, 8),
                               match_receive(5, 8), match_receive(9, 8)};
    struct disti_match match = {0};

    (void)state;
    assert_null(match_arrive(&match, 7));
    for (int i = 0; i < 5; i++)
        assert_null(disti_match_post(&match, &r[i]));
    assert_null(match_arrive(&match, 8));
    assert_ptr_equal(match_arrive(&match, 9), &r[1]);
    assert_ptr_equal(match_arrive(&match, 9), &r[4]);
    assert_null(match_arrive(&match, 9));
    assert_ptr_equal(match_arrive(&match, 7), &r[0]);
    assert_ptr_equal(match_arrive(&match, 5), &r[3]);
    assert_ptr_equal(match_arrive(&match, 7), &r[2]);
    for (int i = 0; i < 5; i++)
        assert_int_equal(r[i].status, DIST_IN_PROGRESS);
    match_assert_empty(&match);
}

static void test_receives_match_unexpected_messages_in_order(void **state)
{
    struct dist_request r[] = {match_receive(7, 4), match_receive(8, 4), match_receive(7, 4),
                               match_receive(7, 4)};
    struct disti_match match = {0};
    struct disti_unexpected *first = match_hold(&match, 7, 4), *other = match_hold(&match, 8, 4),
                            *second = match_hold(&match, 7, 4);

    (void)state;
    memcpy(first->payload, "1st", 4);
    memcpy(second->payload, "2nd", 4);
    first->arrived = second->arrived = other->arrived = 4;
    assert_int_equal(match.held_bytes, 12);
    assert_ptr_equal(disti_match_post(&match, &r[0]), first);
    assert_ptr_equal(first->claimed, &r[0]);
    assert_ptr_equal(disti_match_post(&match, &r[2]), second);
    assert_null(disti_match_post(&match, &r[3]));
    assert_string_equal(first->payload, "1st");
    assert_string_equal(second->payload, "2nd");
    disti_match_release(&match, second);
    assert_int_equal(match.held_bytes, 8);
    disti_match_release(&match, first);
    assert_ptr_equal(match.unexpected_head, other);
    assert_ptr_equal(match.unexpected_tail, other);
    assert_ptr_equal(disti_match_post(&match, &r[1]), other);
    disti_match_release(&match, other);
    assert_int_equal(match.held_bytes, 0);
    first = match_hold(&match, 6, 0);
    assert_ptr_equal(match.unexpected_head, first);
    assert_ptr_equal(match.unexpected_tail, first);
    assert_ptr_equal(match.posted_head, &r[3]);
    disti_match_clear(&match);
}

static void test_a_descriptor_holds_no_payload(void **state)
{
    struct dist_envelope envelope = match_envelope(7, UINT64_C(1) << 40);
    struct dist_request request = match_receive(7, UINT64_C(1) << 40);
    struct disti_match match = {0};
    struct disti_unexpected *unexpected = disti_match_hold(&match, &envelope, true);

    (void)state;
    assert_non_null(unexpected);
    assert_int_equal(match.held_bytes, 0);
    unexpected->note[3] = 77;
    assert_ptr_equal(disti_match_post(&match, &request), unexpected);
    assert_true(unexpected->descriptor && unexpected->note[3] == 77 && unexpected->arrived == 0);
    disti_match_release(&match, unexpected);
    match_assert_empty(&match);
}

static void test_mismatches_are_found_when_a_message_arrives(void **state)
{
    struct dist_request r[] = {match_receive(7, 8), match_receive(7, 8)};
    struct dist_envelope other_size = match_envelope(7, 9), other_call = match_envelope(7, 8);
    struct disti_match match = {0};
    bool mismatch = false;

    (void)state;
    other_call.fingerprint++;
    assert_null(disti_match_post(&match, &r[0]));
    assert_null(disti_match_post(&match, &r[1]));
    assert_ptr_equal(disti_match_arrival(&match, &other_size, &mismatch), &r[0]);
    assert_true(mismatch);
    assert_int_equal(r[0].status, DIST_ERR_MISMATCH);
    assert_memory_equal(&r[0].arrived, &other_size, sizeof(other_size));
    assert_int_equal(r[1].status, DIST_IN_PROGRESS);
    mismatch = false;
    assert_ptr_equal(disti_match_arrival(&match, &other_call, &mismatch), &r[1]);
    assert_true(mismatch);
    assert_int_equal(r[1].status, DIST_ERR_MISMATCH);
    assert_memory_equal(&r[1].arrived, &other_call, sizeof(other_call));
    match_assert_empty(&match);
}

static void test_mismatches_are_found_when_a_receive_is_posted(void **state)
{
    struct dist_request r[] = {match_receive(7, 8), match_receive(7, 8), match_receive(7, 8)};
    struct disti_match match = {0};
    struct disti_unexpected *complete = match_hold(&match, 7, 4),
                            *arriving = match_hold(&match, 7, 16);

    (void)state;
    complete->arrived = 4;
    arriving->arrived = 15;
    assert_ptr_equal(disti_match_post(&match, &r[0]), complete);
    assert_true(complete->refused && disti_match_is_whole(complete));
    assert_int_equal(r[0].status, DIST_ERR_MISMATCH);
    assert_int_equal(r[0].arrived.bytes, 4);
    disti_match_release(&match, complete);
    assert_int_equal(match.held_bytes, 16);
    assert_ptr_equal(disti_match_post(&match, &r[1]), arriving);
    assert_true(arriving->refused && !disti_match_is_whole(arriving));
    assert_int_equal(r[1].status, DIST_ERR_MISMATCH);
    assert_int_equal(r[1].arrived.bytes, 16);
    assert_null(arriving->claimed);
    assert_null(disti_match_post(&match, &r[2]));
    assert_int_equal(r[2].status, DIST_IN_PROGRESS);
    disti_match_fail(&match, DIST_ERR_ABORTED);
    assert_int_equal(r[2].status, DIST_ERR_ABORTED);
    assert_int_equal(r[1].status, DIST_ERR_MISMATCH);
    disti_match_release(&match, arriving);
    match_assert_empty(&match);
}

static void test_failing_ends_posted_receives(void **state)
{
    struct dist_request posted[] = {match_receive(1, 8), match_receive(2, 8)};
    struct dist_request claimed = match_receive(7, 8);
    struct disti_match match = {0};

    (void)state;
    match_hold(&match, 6, 8);
    match_hold(&match, 7, 8)->arrived = 3;
    assert_null(disti_match_post(&match, &posted[0]));
    assert_non_null(disti_match_post(&match, &claimed));
    assert_null(disti_match_post(&match, &posted[1]));
    disti_match_fail(&match, DIST_ERR_PEER_LOST);
    assert_int_equal(posted[0].status, DIST_ERR_PEER_LOST);
    assert_int_equal(posted[1].status, DIST_ERR_PEER_LOST);
    assert_int_equal(claimed.status, DIST_IN_PROGRESS);
    disti_match_clear(&match);
    match_assert_empty(&match);
    disti_match_fail(&match, DIST_ERR_PEER_LOST);
}

/* A message is found until a receive claims it, whether it has arrived completely or not: the
 * oldest first, without changing it. */
static void test_unclaimed_messages_are_found(void **state)
{
    struct dist_request taken = match_receive(7, 4), refused = match_receive(8, 5);
    struct disti_match match = {0}, other = {0};
    struct disti_unexpected *first = match_hold(&match, 7, 4), *eight = match_hold(&match, 8, 4),
                            *elsewhere = match_hold(&other, 7, 0),
                            *second = match_hold(&match, 7, 4);

    (void)state;
    assert_null(disti_match_waiting(&match, 9));
    assert_ptr_equal(disti_match_waiting(&match, 8), eight);
    assert_ptr_equal(disti_match_waiting(&match, 7), first);
    assert_ptr_equal(disti_match_waiting(&match, 7), first);
    assert_true(first->order < elsewhere->order && elsewhere->order < second->order);
    assert_ptr_equal(disti_match_post(&match, &taken), first);
    assert_ptr_equal(disti_match_waiting(&match, 7), second);
    assert_ptr_equal(disti_match_post(&match, &refused), eight);
    assert_int_equal(refused.status, DIST_ERR_MISMATCH);
    assert_null(disti_match_waiting(&match, 8));
    disti_match_release(&match, second);
    assert_null(disti_match_waiting(&match, 7));
    disti_match_clear(&match);
    disti_match_clear(&other);
}

static void test_clearing_does_not_change_requests(void **state)
{
    struct dist_request posted = match_receive(1, 8), claimed = match_receive(7, 8);
    struct disti_match match = {0};

    (void)state;
    match_hold(&match, 7, 8);
    assert_null(disti_match_post(&match, &posted));
    assert_non_null(disti_match_post(&match, &claimed));
    disti_match_clear(&match);
    assert_int_equal(posted.status, DIST_IN_PROGRESS);
    assert_int_equal(claimed.status, DIST_IN_PROGRESS);
    match_assert_empty(&match);
}

static void test_an_impossible_size_is_not_held(void **state)
{
    struct dist_envelope envelope = match_envelope(7, UINT64_MAX - 8);
    struct disti_match match = {0};

    (void)state;
    assert_null(disti_match_hold(&match, &envelope, false));
    match_assert_empty(&match);
}

/* More tags than hash chains; messages are taken from the end of the list and from its middle. */
static void test_many_unexpected_messages_are_matched(void **state)
{
    enum { TAGS = 5 * DISTI_MATCH_CHAINS, EACH = 3, STEP = 77 };
    struct disti_unexpected *unexpected[EACH][TAGS];
    struct disti_match match = {0};

    (void)state;
    for (int i = 0; i < EACH * TAGS; i++) {
        unexpected[i / TAGS][i % TAGS] = match_hold(&match, (uint64_t)(i % TAGS), 1);
        unexpected[i / TAGS][i % TAGS]->arrived = 1;
    }
    for (int i = 0; i < EACH * TAGS; i++) {
        uint64_t tag = (uint64_t)(TAGS - 1 - i * STEP % TAGS);
        struct dist_request request = match_receive(tag, 1);
        struct disti_unexpected *got = disti_match_post(&match, &request);

        assert_ptr_equal(got, unexpected[i / TAGS][tag]);
        disti_match_release(&match, got);
    }
    match_assert_empty(&match);
}

static bool match_drop(void *arg, int peer, const struct dist_envelope *envelope)
{
    *(int *)arg += peer;
    return envelope->bytes == 0;
}

/* Peers are in the set while they have unexpected messages; the oldest message of all peers is
 * found. */
static void test_peers_with_messages_are_in_the_set(void **state)
{
    struct disti_match_set set = {0};
    struct disti_match one = {.rank = 1, .set = &set}, four = {.rank = 4, .set = &set};
    struct disti_unexpected *first;
    int shown = 0;

    (void)state;
    assert_int_equal(disti_match_probe(&set, 7), -1);
    first = match_hold(&four, 7, 0);
    match_hold(&one, 7, 0);
    match_hold(&one, 8, 0);
    assert_int_equal(disti_match_probe(&set, 7), 4);
    assert_int_equal(disti_match_probe(&set, 8), 1);
    disti_match_release(&four, first);
    assert_int_equal(disti_match_probe(&set, 7), 1);
    match_hold(&four, 7, 0);
    disti_match_show(&set, 7, ~UINT64_C(0), 9, match_drop, &shown);
    assert_int_equal(shown, 5);
    assert_int_equal(disti_match_probe(&set, 7), -1);
    assert_int_equal(disti_match_probe(&set, 8), 1);
    assert_ptr_equal(LIST_FIRST(&set), &one);
    disti_match_clear(&one);
    assert_null(LIST_FIRST(&set));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_match_posted_receives_in_order),
        cmocka_unit_test(test_receives_match_unexpected_messages_in_order),
        cmocka_unit_test(test_a_descriptor_holds_no_payload),
        cmocka_unit_test(test_mismatches_are_found_when_a_message_arrives),
        cmocka_unit_test(test_mismatches_are_found_when_a_receive_is_posted),
        cmocka_unit_test(test_failing_ends_posted_receives),
        cmocka_unit_test(test_unclaimed_messages_are_found),
        cmocka_unit_test(test_clearing_does_not_change_requests),
        cmocka_unit_test(test_an_impossible_size_is_not_held),
        cmocka_unit_test(test_many_unexpected_messages_are_matched),
        cmocka_unit_test(test_peers_with_messages_are_in_the_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
