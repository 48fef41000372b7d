/* SPDX-License-Identifier: BSD-3-Clause */
/* Zero-copy sends of the tcp transport: when they end, and what happens if they do not complete. */
#include "base/clock.h"
#include "tcp_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define FILES 64
#define BYTES 100000

/* Returns the number of connections of this process that may send without a copy. */
static int count_zerocopy(void)
{
    int count = 0;

    for (int fd = 0; fd < FILES; fd++) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof(peer), size = sizeof(int);
        int on = 0;

        if (getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
            getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, &size) == 0 && on)
            count++;
    }
    return count;
}

static void pair_open(struct tcp_rank pair[2], const char *setting)
{
    setenv("DIST_TCP_ZEROCOPY", setting, 1);
    setenv("DIST_TCP_BUFFER", "1M", 1);
    tcp_pair_open(pair, "127.0.0.1");
    unsetenv("DIST_TCP_BUFFER");
    unsetenv("DIST_TCP_ZEROCOPY");
    tcp_exchange(pair, 10);
}

/* Sends `bytes` bytes. Returns true if the send has ended when it returns. The send ends in any
 * case, although no receive is posted. */
static bool ends_immediately(struct tcp_rank pair[2], size_t bytes)
{
    static unsigned char out[BYTES], in[BYTES];
    struct dist_request send, recv;
    bool ended;

    memset(out, 3, sizeof(out));
    memset(in, 0, sizeof(in));
    tcp_send(&pair[0], &send, 1, 9, out, bytes);
    ended = send.status == DIST_OK;
    assert_int_equal(tcp_finish(pair, 1, &send), DIST_OK);
    memset(out, 4, sizeof(out));
    tcp_recv(&pair[1], &recv, 0, 9, in, bytes);
    assert_int_equal(tcp_finish(pair, 2, &recv), DIST_OK);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(in[i], 3);
    return ended;
}

static void test_on_sends_large_messages_without_copies(void **unused)
{
    struct tcp_rank pair[2];

    (void)unused;
    pair_open(pair, "on");
    if (count_zerocopy() == 0) {
        tcp_pair_close(pair);
        skip();
    }
    assert_int_equal(count_zerocopy(), 2);
    for (int i = 0; i < 200; i++)
        assert_false(ends_immediately(pair, BYTES));
    assert_true(ends_immediately(pair, 60000));
    tcp_exchange(pair, 9000001);
    tcp_pair_close(pair);
}

/* On the loopback device the kernel copies the data and reports that, so zero-copy is turned
 * off. */
static void test_auto_is_turned_off_on_loopback(void **unused)
{
    struct tcp_rank pair[2];

    (void)unused;
    pair_open(pair, "auto");
    if (count_zerocopy() == 0) {
        tcp_pair_close(pair);
        skip();
    }
    assert_false(ends_immediately(pair, BYTES));
    for (int i = 0; i < 20; i++)
        assert_true(ends_immediately(pair, BYTES));
    tcp_exchange(pair, 9000001);
    tcp_pair_close(pair);
}

static void test_off_copies_all_messages(void **unused)
{
    struct tcp_rank pair[2];

    (void)unused;
    pair_open(pair, "off");
    assert_int_equal(count_zerocopy(), 0);
    assert_true(ends_immediately(pair, BYTES));
    tcp_pair_close(pair);
    tcp_pair_open(pair, "127.0.0.1");
    tcp_exchange(pair, 10);
    assert_int_equal(count_zerocopy(), 0);
    tcp_pair_close(pair);
}

static void test_a_bad_setting_is_rejected(void **unused)
{
    (void)unused;
    setenv("DIST_TCP_ZEROCOPY", "maybe", 1);
    assert_false(tcp_host_usable("127.0.0.1"));
    assert_non_null(strstr(dist_last_error(), "DIST_TCP_ZEROCOPY"));
    unsetenv("DIST_TCP_ZEROCOPY");
}

/* Notifications in the error queue are not mistaken for the end of the connection, and its end is
 * detected. */
static void test_the_end_is_detected_among_notifications(void **unused)
{
    static unsigned char out[4000000], in[4000000];
    struct dist_request sends[3], recv;
    struct tcp_rank pair[2];

    (void)unused;
    pair_open(pair, "on");
    for (int i = 0; i < 3; i++)
        tcp_send(&pair[0], &sends[i], 1, 20 + (uint64_t)i, out, sizeof(out));
    tcp_recv(&pair[1], &recv, 0, 20, in, sizeof(in));
    assert_int_equal(tcp_finish(pair, 2, &recv), DIST_OK);
    assert_int_equal(tcp_finish(pair, 2, &sends[0]), DIST_OK);
    tcp_rank_close(&pair[1]);
    for (int i = 1; i < 3; i++)
        assert_int_not_equal(tcp_finish(pair, 1, &sends[i]), DIST_IN_PROGRESS);
    assert_int_equal(sends[2].status, DIST_ERR_PEER_LOST);
    tcp_rank_close(&pair[0]);
}

/* After a send has failed, or its rank has left, none of its memory is sent: the connection is
 * reset, so that the peer detects that the message is incomplete. */
static void abandon_send(bool leaves)
{
    static unsigned char out[4000000], in[100000];
    static const unsigned char nonsense[DISTI_TCP_FRAME_BYTES];
    struct dist_request send;
    struct tcp_rank rank;
    ssize_t got;
    int fd;

    setenv("DIST_TCP_ZEROCOPY", "on", 1);
    tcp_rank_open(&rank, 1, 2, "127.0.0.1");
    unsetenv("DIST_TCP_ZEROCOPY");
    fd = raw_join(&rank, 0);
    if (count_zerocopy() == 0) {
        close(fd);
        tcp_rank_close(&rank);
        skip();
    }
    tcp_send(&rank, &send, 0, 9, out, sizeof(out));
    tcp_drive_ms(&rank, 1, 20);
    assert_int_equal(send.status, DIST_IN_PROGRESS);
    if (!leaves) {
        assert_true(raw_write(fd, nonsense, sizeof(nonsense)));
        assert_int_equal(tcp_finish(&rank, 1, &send), DIST_ERR_PEER_LOST);
    }
    tcp_rank_close(&rank);
    do {
        got = recv(fd, in, sizeof(in), 0);
    } while (got > 0);
    assert_int_equal(got, -1);
    assert_int_equal(errno, ECONNRESET);
    close(fd);
}

static void test_a_lost_peer_gets_no_more_data(void **unused)
{
    (void)unused;
    abandon_send(false);
}

static void test_leaving_resets_unfinished_sends(void **unused)
{
    (void)unused;
    abandon_send(true);
}

/* A peer that computes and then reads: longer than the timeout for a lost host. */
static void *read_late(void *arg)
{
    static unsigned char in[100000];
    const int fd = *(int *)arg;

    disti_sleep_ns(1200 * INT64_C(1000000));
    while (recv(fd, in, sizeof(in), 0) > 0)
        ;
    return NULL;
}

/* After cancel and close, the memory belongs to the program again, and the peer is not treated as
 * lost. */
static void test_a_canceled_send_waits_for_a_busy_peer(void **unused)
{
    static unsigned char out[4000000];
    struct dist_request send, after;
    struct tcp_rank rank;
    pthread_t reader;
    int fd;

    (void)unused;
    setenv("DIST_TCP_ZEROCOPY", "on", 1);
    tcp_rank_open(&rank, 1, 2, "127.0.0.1");
    unsetenv("DIST_TCP_ZEROCOPY");
    fd = raw_join(&rank, 0);
    if (count_zerocopy() == 0) {
        close(fd);
        tcp_rank_close(&rank);
        skip();
    }
    tcp_send(&rank, &send, 0, 9, out, sizeof(out));
    tcp_drive_ms(&rank, 1, 20);
    assert_int_equal(send.status, DIST_IN_PROGRESS);
    assert_int_equal(pthread_create(&reader, NULL, read_late, &fd), 0);
    disti_transport_tcp.cancel(rank.state, 9, UINT64_MAX);
    tcp_send(&rank, &after, 0, 10, out, 100);
    assert_int_equal(tcp_finish(&rank, 1, &after), DIST_OK);
    tcp_rank_close(&rank);
    assert_int_equal(pthread_join(reader, NULL), 0);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on_sends_large_messages_without_copies),
        cmocka_unit_test(test_auto_is_turned_off_on_loopback),
        cmocka_unit_test(test_off_copies_all_messages),
        cmocka_unit_test(test_a_bad_setting_is_rejected),
        cmocka_unit_test(test_the_end_is_detected_among_notifications),
        cmocka_unit_test(test_a_lost_peer_gets_no_more_data),
        cmocka_unit_test(test_leaving_resets_unfinished_sends),
        cmocka_unit_test(test_a_canceled_send_waits_for_a_busy_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
