/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport: who calls whom, leaving, unexpected messages, sleeping. */
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

/* The higher rank has waited and has called; now the lower rank calls too. */
static void test_crossing_calls(void **unused)
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

/* The lower rank never calls, for it has something else to do, but it lets itself be called. */
static void test_higher_rank_calls(void **unused)
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

/* A rank that died before anyone was connected with it is found out, from both sides. */
static void test_dead_before_connected(void **unused)
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

/* Leaving and being lost are told apart, and what came before is still to be had. */
static void test_leaving(void **unused)
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

/* Drives until a message with this tag waits for its receive. */
static void await_waiting(struct tcp_rank pair[2], uint64_t tag)
{
    int64_t deadline = disti_deadline_ms(UNIT_SOON_MS);

    while (tcp->probe_tag(pair[1].state, tag) != 0 && !disti_expired(deadline))
        tcp_drive(pair, 2);
    assert_int_equal(tcp->probe_tag(pair[1].state, tag), 0);
}

#define AHEAD_MESSAGES 200
#define AHEAD_BYTES 40000
#define AHEAD_TAG 100

/* Rank 0 sends far more than rank 1 may keep: message i is of AHEAD_BYTES - i bytes. */
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
    await_waiting(ahead->pair, AHEAD_TAG + AHEAD_MESSAGES - 1);
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

/* The rest waits at the sender's, but all are found; nobody spins; the last may come first. */
static void test_early_limit(void **unused)
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
    tcp_drive_ms(late, 1, 250); /* the handshake's timer has run out */
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

/* What is received gives its credit back: later messages are not held up by earlier ones. */
static void test_credit_comes_back(void **unused)
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
        await_waiting(ahead.pair, 7);
        assert_int_equal(send.status, l == 0 ? DIST_IN_PROGRESS : DIST_OK);
        tcp_pair_close(ahead.pair);
    }
}

/* Messages without bytes take memory too where they wait, and so does their sender. */
static void test_empty_messages_wait(void **unused)
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
    await_waiting(pair, 6);
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

/* Who has received it may never call the library again. */
static void test_empty_offer(void **unused)
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
            await_waiting(pair, 6);
            tcp_recv(&pair[1], &recv, 0, 6, NULL, 0);
        }
        tcp_drive(&pair[0], 1);
        assert_int_equal(tcp_finish(&pair[1], 1, &recv), DIST_OK);
        assert_int_equal(tcp_finish(&pair[0], 1, &send), DIST_OK);
        tcp_pair_close(pair);
    }
}

/* An offer whose receive means another message: the send ends, the pair goes on. */
static void test_offer_is_refused(void **unused)
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
            await_waiting(pair, 3);
        if (late)
            tcp_recv(&pair[1], &recv, 0, 3, out, 10);
        assert_int_equal(tcp_finish(pair, 2, &recv), DIST_ERR_MISMATCH);
        assert_true(recv.arrived.bytes == sizeof(out));
        assert_int_equal(tcp_finish(pair, 2, &send), DIST_OK);
        tcp_exchange(pair, 300000);
    }
    tcp_pair_close(pair);
}

/* Whoever has offered a message and is gone takes it along. */
static void test_offer_of_the_lost(void **unused)
{
    static unsigned char out[300000], in[300000];
    struct dist_request send, recv;
    struct tcp_rank pair[2];

    (void)unused;
    for (int gone = 0; gone < 2; gone++) {
        setenv("DIST_TCP_EARLY_LIMIT", "64K", 1);
        tcp_pair_open(pair, "127.0.0.1");
        unsetenv("DIST_TCP_EARLY_LIMIT");
        tcp_send(&pair[0], &send, 1, 3, out, sizeof(out));
        await_waiting(pair, 3);
        tcp_rank_close(&pair[gone]);
        if (gone == 0) {
            tcp_recv(&pair[1], &recv, 0, 3, in, sizeof(in));
            assert_int_equal(tcp_finish(&pair[1], 1, &recv), DIST_ERR_PEER_LOST);
            assert_int_equal(tcp->probe_tag(pair[1].state, 3), -1);
        } else {
            assert_int_equal(tcp_finish(&pair[0], 1, &send), DIST_ERR_PEER_LOST);
        }
        tcp_rank_close(&pair[1 - gone]);
    }
}

/* The receive is posted while its message is half here, at every kind of place. */
static void test_claimed_while_arriving(void **unused)
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

/* A sleeper is woken by a message, and only by something. */
static void test_sleep_is_sleep(void **unused)
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
        cmocka_unit_test(test_crossing_calls),
        cmocka_unit_test(test_higher_rank_calls),
        cmocka_unit_test(test_dead_before_connected),
        cmocka_unit_test(test_leaving),
        cmocka_unit_test(test_early_limit),
        cmocka_unit_test(test_credit_comes_back),
        cmocka_unit_test(test_empty_messages_wait),
        cmocka_unit_test(test_empty_offer),
        cmocka_unit_test(test_offer_is_refused),
        cmocka_unit_test(test_offer_of_the_lost),
        cmocka_unit_test(test_claimed_while_arriving),
        cmocka_unit_test(test_sleep_is_sleep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
