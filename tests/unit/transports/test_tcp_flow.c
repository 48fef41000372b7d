/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport: which rank calls, leaving, unexpected messages, flow control, sleeping. */
#include "tests/unit/base/unit.h"

#include "base/clock.h"
#include "tcp_fixture.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct dist_transport *const tcp = &disti_transport_tcp;

/* The higher rank has called after waiting for the lower rank; then the lower rank calls too. */
static void test_calls_of_both_ranks_result_in_one_connection(void **unused)
{
    struct tcp_rank pair[2];
    struct dist_request unexpected;
    int value = 0, sent = 42;
    struct dist_request send;

    (void)unused;
    tcp_pair_open(pair, "127.0.0.1");
    tcp_recv(&pair[1], &unexpected, 0, 8, &value, sizeof(value));
    tcp_drive_ms(&pair[1], 1, 400);
    tcp_send(&pair[0], &send, 1, 8, &sent, sizeof(sent));
    assert_int_equal(tcp_finish(pair, 2, &unexpected), DIST_OK);
    assert_int_equal(tcp_finish(pair, 2, &send), DIST_OK);
    assert_int_equal(value, sent);
    tcp_exchange(pair, 100000);
    tcp_drive_ms(pair, 2, 300);
    tcp_exchange(pair, 100000);
    tcp_pair_close(pair);
}

/* The lower rank, which would call first, is busy, so the higher rank calls. */
static void test_the_higher_rank_calls_a_busy_one(void **unused)
{
    struct tcp_rank pair[2];
    struct dist_request send;
    char text[200];
    int value = 1;

    (void)unused;
    tcp_pair_open(pair, "127.0.0.1");
    tcp_send(&pair[1], &send, 0, 8, &value, sizeof(value));
    assert_int_equal(tcp_finish(pair, 2, &send), DIST_OK);
    tcp->describe(pair[1].state, 0, text, sizeof(text));
    assert_non_null(strstr(text, "connected, 36 bytes sent"));
    tcp_pair_close(pair);
}

/* A rank that exited before any connection was made is detected by lower and higher ranks. */
static void test_a_rank_that_exits_before_connecting_is_detected(void **unused)
{
    for (int dead = 0; dead < 2; dead++) {
        struct tcp_rank pair[2];
        struct dist_request request;
        char name[40];
        int value;

        (void)unused;
        tcp_pair_open(pair, "127.0.0.1");
        tcp_rank_close(&pair[dead]);
        tcp_recv(&pair[1 - dead], &request, dead, 8, &value, sizeof(value));
        assert_int_equal(tcp_finish(&pair[1 - dead], 1, &request), DIST_ERR_PEER_LOST);
        snprintf(name, sizeof(name), "lost rank %d", dead);
        assert_non_null(strstr(dist_last_error(), name));
        assert_non_null(strstr(dist_last_error(), "127.0.0.1:"));
        assert_non_null(strstr(dist_last_error(), strerror(ECONNREFUSED)));
        tcp_rank_close(&pair[1 - dead]);
    }
}

/* A rank that leaves is reported as such, and its earlier messages can still be received. */
static void test_a_rank_that_leaves_is_not_reported_as_failed(void **unused)
{
    struct tcp_rank pair[2];
    struct dist_request send, recv, late;
    int value = 7, got = 0, more = 0;

    (void)unused;
    tcp_pair_open(pair, "127.0.0.1");
    tcp_exchange(pair, 100);
    tcp_send(&pair[0], &send, 1, 20, &value, sizeof(value));
    assert_int_equal(tcp_finish(pair, 1, &send), DIST_OK);
    tcp_rank_close(&pair[0]);
    tcp_recv(&pair[1], &late, 0, 21, &more, sizeof(more));
    assert_int_equal(tcp_finish(&pair[1], 1, &late), DIST_ERR_PEER_LOST);
    assert_non_null(strstr(dist_last_error(), "rank 0"));
    assert_non_null(strstr(dist_last_error(), "has left"));
    tcp_recv(&pair[1], &recv, 0, 20, &got, sizeof(got));
    assert_int_equal(recv.status, DIST_OK);
    assert_int_equal(got, value);
    tcp_send(&pair[1], &late, 0, 22, &value, sizeof(value));
    assert_int_equal(late.status, DIST_ERR_PEER_LOST);
    tcp_rank_close(&pair[1]);
}

/* Makes progress until an unexpected message with this tag has arrived. */
static void wait_for_message(struct tcp_rank pair[2], uint64_t tag)
{
    int64_t deadline = disti_deadline_ms(UNIT_SOON_MS);

    while (tcp->probe_tag(pair[1].state, tag) != 0 && !disti_expired(deadline))
        tcp_drive(pair, 2);
    assert_int_equal(tcp->probe_tag(pair[1].state, tag), 0);
}

#define AHEAD_MESSAGES 200
#define AHEAD_BYTES 40000
#define AHEAD_TAG 100

/* Rank 0 sends far more than rank 1 may buffer; message i has AHEAD_BYTES - i bytes. */
struct ahead {
    struct tcp_rank pair[2];
    struct dist_request sends[AHEAD_MESSAGES];
    unsigned char out[AHEAD_BYTES];
};

static void ahead_open(struct ahead *ahead, const char *limit)
{
    for (int i = 0; i < AHEAD_BYTES; i++)
        ahead->out[i] = (unsigned char)(i * 7 + i / 251);
    setenv("DIST_TCP_EARLY_LIMIT", limit, 1);
    setenv("DIST_TCP_BUFFER", "64K", 1);
    tcp_pair_open(ahead->pair, "127.0.0.1");
    unsetenv("DIST_TCP_EARLY_LIMIT");
    unsetenv("DIST_TCP_BUFFER");
    for (int i = 0; i < AHEAD_MESSAGES; i++)
        tcp_send(&ahead->pair[0], &ahead->sends[i], 1, AHEAD_TAG + (uint64_t)i, ahead->out,
                 (size_t)(AHEAD_BYTES - i));
    wait_for_message(ahead->pair, AHEAD_TAG + AHEAD_MESSAGES - 1);
}

static void ahead_receive(struct ahead *ahead, int i)
{
    unsigned char in[AHEAD_BYTES];
    struct dist_request recv;

    memset(in, 1, sizeof(in));
    tcp_recv(&ahead->pair[1], &recv, 0, AHEAD_TAG + (uint64_t)i, in, (size_t)(AHEAD_BYTES - i));
    assert_int_equal(tcp_finish(ahead->pair, 2, &recv), DIST_OK);
    assert_memory_equal(in, ahead->out, (size_t)(AHEAD_BYTES - i));
    assert_int_equal(tcp_finish(ahead->pair, 2, &ahead->sends[i]), DIST_OK);
}

static size_t held_unexpected(struct tcp_rank *rank)
{
    char text[200];
    size_t held = 0;

    tcp->describe(rank->state, 0, text, sizeof(text));
    assert_int_equal(sscanf(strstr(text, "received, "), "received, %zu", &held), 1);
    return held;
}

/* Messages beyond the limit stay at the sender, but all are found by probe_tag; the receiver can
 * sleep meanwhile; the last message can be received first. */
static void test_early_messages_are_limited(void **unused)
{
    static struct ahead ahead;
    struct tcp_rank *late = &ahead.pair[1];
    int fd;

    (void)unused;
    ahead_open(&ahead, "1M");
    assert_int_equal(ahead.sends[0].status, DIST_OK);
    assert_int_equal(ahead.sends[AHEAD_MESSAGES - 1].status, DIST_IN_PROGRESS);
    assert_in_range(held_unexpected(late), AHEAD_BYTES, 1 << 20);
    for (uint64_t i = 0; i < AHEAD_MESSAGES; i++)
        assert_int_equal(tcp->probe_tag(late->state, AHEAD_TAG + i), 0);
    tcp_drive_ms(late, 1, 250); /* until the timer of the handshake has expired */
    while ((fd = tcp->arm(late->state)) == -2)
        tcp_drive(late, 1);
    assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 200), 0);
    tcp->disarm(late->state);
    for (int i = AHEAD_MESSAGES - 1; i >= 0; i--)
        ahead_receive(&ahead, i);
    assert_int_equal(held_unexpected(late), 0);
    tcp_exchange(ahead.pair, 70000);
    tcp_pair_close(ahead.pair);
}

/* Receiving a message returns its credit, so that later messages are not delayed by earlier
 * ones. */
static void test_receiving_returns_credit(void **unused)
{
    static const char *const limits[] = {"0", "40K", "100K", "1M"};
    static struct ahead ahead;

    (void)unused;
    for (int l = 0; l < 4; l++) {
        struct dist_request send;

        ahead_open(&ahead, limits[l]);
        for (int i = 0; i < AHEAD_MESSAGES; i++)
            ahead_receive(&ahead, i);
        tcp_send(&ahead.pair[0], &send, 1, 7, ahead.out, 10000);
        wait_for_message(ahead.pair, 7);
        assert_int_equal(send.status, l == 0 ? DIST_IN_PROGRESS : DIST_OK);
        tcp_pair_close(ahead.pair);
    }
}

/* Unexpected messages without data use memory and credit too, so they can delay their sender. */
static void test_messages_without_data_need_credit(void **unused)
{
    enum { MESSAGES = 100 };
    struct dist_request sends[MESSAGES], last, recv;
    struct tcp_rank pair[2];
    int ended = 0;

    (void)unused;
    setenv("DIST_TCP_EARLY_LIMIT", "4K", 1);
    tcp_pair_open(pair, "127.0.0.1");
    unsetenv("DIST_TCP_EARLY_LIMIT");
    for (int i = 0; i < MESSAGES; i++)
        tcp_send(&pair[0], &sends[i], 1, 5, NULL, 0);
    tcp_send(&pair[0], &last, 1, 6, NULL, 0);
    wait_for_message(pair, 6);
    for (int i = 0; i < MESSAGES; i++)
        ended += sends[i].status == DIST_OK;
    assert_int_equal(ended, 4096 / 128);
    for (int i = 0; i < MESSAGES; i++) {
        tcp_recv(&pair[1], &recv, 0, 5, NULL, 0);
        assert_int_equal(tcp_finish(pair, 2, &recv), DIST_OK);
        assert_int_equal(tcp_finish(pair, 2, &sends[i]), DIST_OK);
    }
    tcp_pair_close(pair);
}

/* A message without data that waited for credit: its send ends although the receiver makes no
 * further calls. */
static void test_sends_without_data_end_without_the_receiver(void **unused)
{
    struct dist_request kept[4096 / 128], send, recv;
    struct tcp_rank pair[2];

    (void)unused;
    for (int late = 0; late < 2; late++) {
        setenv("DIST_TCP_EARLY_LIMIT", "4K", 1);
        tcp_pair_open(pair, "127.0.0.1");
        unsetenv("DIST_TCP_EARLY_LIMIT");
        for (int i = 0; i < 4096 / 128; i++)
            tcp_send(&pair[0], &kept[i], 1, 5, NULL, 0);
        assert_int_equal(tcp_finish(pair, 2, &kept[4096 / 128 - 1]), DIST_OK);
        if (!late)
            tcp_recv(&pair[1], &recv, 0, 6, NULL, 0);
        tcp_send(&pair[0], &send, 1, 6, NULL, 0);
        if (late) {
            wait_for_message(pair, 6);
            tcp_recv(&pair[1], &recv, 0, 6, NULL, 0);
        }
        tcp_drive(&pair[0], 1);
        assert_int_equal(tcp_finish(&pair[1], 1, &recv), DIST_OK);
        assert_int_equal(tcp_finish(&pair[0], 1, &send), DIST_OK);
        tcp_pair_close(pair);
    }
}

/* The receive of an offered message (RTS) does not match it: the send ends, and the pair
 * continues. */
static void test_a_mismatched_offer_ends_its_send(void **unused)
{
    static unsigned char out[300000];
    struct dist_request send, recv;
    struct tcp_rank pair[2];

    (void)unused;
    setenv("DIST_TCP_EARLY_LIMIT", "64K", 1);
    tcp_pair_open(pair, "127.0.0.1");
    unsetenv("DIST_TCP_EARLY_LIMIT");
    for (int late = 0; late < 2; late++) {
        if (!late)
            tcp_recv(&pair[1], &recv, 0, 3, out, 10);
        tcp_send(&pair[0], &send, 1, 3, out, sizeof(out));
        if (late)
            wait_for_message(pair, 3);
        if (late)
            tcp_recv(&pair[1], &recv, 0, 3, out, 10);
        assert_int_equal(tcp_finish(pair, 2, &recv), DIST_ERR_MISMATCH);
        assert_true(recv.arrived.bytes == sizeof(out));
        assert_int_equal(tcp_finish(pair, 2, &send), DIST_OK);
        tcp_exchange(pair, 300000);
    }
    tcp_pair_close(pair);
}

/* If one end of an offered message (RTS) is lost, the other end's request fails. */
static void test_offers_fail_if_the_other_end_is_lost(void **unused)
{
    static unsigned char out[300000], in[300000];
    struct dist_request send, recv;
    struct tcp_rank pair[2];

    (void)unused;
    for (int closed = 0; closed < 2; closed++) {
        setenv("DIST_TCP_EARLY_LIMIT", "64K", 1);
        tcp_pair_open(pair, "127.0.0.1");
        unsetenv("DIST_TCP_EARLY_LIMIT");
        tcp_send(&pair[0], &send, 1, 3, out, sizeof(out));
        wait_for_message(pair, 3);
        tcp_rank_close(&pair[closed]);
        if (closed == 0) {
            tcp_recv(&pair[1], &recv, 0, 3, in, sizeof(in));
            assert_int_equal(tcp_finish(&pair[1], 1, &recv), DIST_ERR_PEER_LOST);
            assert_int_equal(tcp->probe_tag(pair[1].state, 3), -1);
        } else {
            assert_int_equal(tcp_finish(&pair[0], 1, &send), DIST_ERR_PEER_LOST);
        }
        tcp_rank_close(&pair[1 - closed]);
    }
}

/* The receive is posted after part of its message has arrived, which may end at any place. */
static void test_a_receive_may_be_posted_while_its_message_arrives(void **unused)
{
    double out[40], in[40], base[40];
    unsigned char bytes[DISTI_TCP_FRAME_BYTES + sizeof(out)];
    struct dist_request request;

    (void)unused;
    for (int i = 0; i < 40; i++) {
        out[i] = i;
        base[i] = 1000;
    }
    raw_message(bytes, 77, out, sizeof(out));
    for (size_t cut = 0; cut <= sizeof(bytes); cut += 3) {
        struct tcp_rank rank;
        int fd;

        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        fd = raw_join(&rank, 0);
        assert_true(raw_write(fd, bytes, cut));
        for (int i = 0; i < 20; i++)
            tcp_drive(&rank, 1);
        memset(&request, 0, sizeof(request));
        request.status = DIST_IN_PROGRESS;
        request.envelope = (struct dist_envelope){77, 1, sizeof(in)};
        request.sink = (struct dist_sink){in, base, sizeof(in), DIST_FLOAT64, DIST_SUM, 0, NULL};
        tcp->recv(rank.state, &request);
        assert_true(raw_write(fd, bytes + cut, sizeof(bytes) - cut));
        assert_int_equal(tcp_finish(&rank, 1, &request), DIST_OK);
        for (int i = 0; i < 40; i++)
            assert_true(in[i] == 1000 + i);
        close(fd);
        tcp_rank_close(&rank);
    }
}

/* A sleeping rank is woken by a message and does not wake without one. */
static void test_a_message_wakes_a_sleeping_rank(void **unused)
{
    struct tcp_rank pair[2];
    struct dist_request send, recv;
    int value = 3, got = 0, fd;

    (void)unused;
    tcp_pair_open(pair, "127.0.0.1");
    for (int round = 0; round < 20; round++) {
        tcp_recv(&pair[1], &recv, 0, 60, &got, sizeof(got));
        if (round == 0)
            tcp_exchange(pair, 10);
        while ((fd = tcp->arm(pair[1].state)) == -2)
            tcp_drive(&pair[1], 1);
        assert_true(fd >= 0);
        assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0), 0);
        tcp_send(&pair[0], &send, 1, 60, &value, sizeof(value));
        assert_int_equal(poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 5000), 1);
        tcp->disarm(pair[1].state);
        assert_int_equal(tcp_finish(pair, 2, &recv), DIST_OK);
        assert_int_equal(tcp_finish(pair, 2, &send), DIST_OK);
    }
    tcp_pair_close(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_of_both_ranks_result_in_one_connection),
        cmocka_unit_test(test_the_higher_rank_calls_a_busy_one),
        cmocka_unit_test(test_a_rank_that_exits_before_connecting_is_detected),
        cmocka_unit_test(test_a_rank_that_leaves_is_not_reported_as_failed),
        cmocka_unit_test(test_early_messages_are_limited),
        cmocka_unit_test(test_receiving_returns_credit),
        cmocka_unit_test(test_messages_without_data_need_credit),
        cmocka_unit_test(test_sends_without_data_end_without_the_receiver),
        cmocka_unit_test(test_a_mismatched_offer_ends_its_send),
        cmocka_unit_test(test_offers_fail_if_the_other_end_is_lost),
        cmocka_unit_test(test_a_receive_may_be_posted_while_its_message_arrives),
        cmocka_unit_test(test_a_message_wakes_a_sleeping_rank),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
