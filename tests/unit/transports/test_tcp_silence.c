/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport waits for peers that compute, and detects hosts that do not answer. */
#include "base/clock.h"
#include "tcp_fixture.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TIMEOUT_MS 500
#define MESSAGES 60
#define BYTES 20000

static struct dist_request sends[MESSAGES], recvs[MESSAGES];
static unsigned char out[BYTES], in[MESSAGES][BYTES];

static void pair_open(struct tcp_rank pair[2], const char *sockets)
{
    tcp_timeout_ms = TIMEOUT_MS;
    setenv("DIST_TCP_BUFFER", "16K", 1);
    setenv("DIST_TCP_SOCKETS", sockets, 1);
    tcp_pair_open(pair, "127.0.0.1");
    unsetenv("DIST_TCP_SOCKETS");
    unsetenv("DIST_TCP_BUFFER");
    tcp_exchange(pair, 100000);
    for (int i = 0; i < BYTES; i++)
        out[i] = (unsigned char)(i * 7 + i / 251);
}

/* Rank 0 sends until the buffers are full, because rank 1 does not read. Returns the number of
 * sends that have ended. */
static int fill(struct tcp_rank pair[2])
{
    int ended = 0;

    for (int i = 0; i < MESSAGES; i++)
        tcp_send(&pair[0], &sends[i], 1, 7, out, sizeof(out));
    tcp_drive_ms(&pair[0], 1, 50);
    while (ended < MESSAGES && sends[ended].status == DIST_OK)
        ended++;
    assert_in_range(ended, 1, MESSAGES - 1);
    return ended;
}

static void receive_all(struct tcp_rank pair[2])
{
    for (int i = 0; i < MESSAGES; i++)
        tcp_recv(&pair[1], &recvs[i], 0, 7, in[i], BYTES);
    for (int i = 0; i < MESSAGES; i++) {
        assert_int_equal(tcp_finish(pair, 2, &recvs[i]), DIST_OK);
        assert_int_equal(tcp_finish(pair, 2, &sends[i]), DIST_OK);
        assert_memory_equal(in[i], out, BYTES);
    }
}

/* The receiver computes for longer than the timeout, while the sender makes progress or computes
 * too. */
static void test_a_receiver_that_computes_is_not_lost(void **unused)
{
    static const char *const sockets[] = {"1", "3"};

    (void)unused;
    for (int round = 0; round < 4; round++) {
        struct tcp_rank pair[2];

        pair_open(pair, sockets[round / 2]);
        fill(pair);
        if (round % 2)
            disti_sleep_ns((int64_t)2 * TIMEOUT_MS * 1000000);
        else
            tcp_drive_ms(&pair[0], 1, 2 * TIMEOUT_MS);
        receive_all(pair);
        tcp_exchange(pair, 300000);
        tcp_pair_close(pair);
    }
}

#define LONGER_MS (40 * TIMEOUT_MS)

/* A longer timeout is set before the call or after it; the peer answers within it but after the
 * shorter one. */
static void test_the_longest_timeout_applies_to_calls(void **unused)
{
    (void)unused;
    for (int round = 0; round < 2; round++) {
        struct tcp_rank pair[2];
        struct dist_request send, recv;
        int value = 41, got = 0;

        tcp_timeout_ms = TIMEOUT_MS;
        tcp_pair_open(pair, "127.0.0.1");
        if (round == 0)
            pair[0].config.timeout_ms = LONGER_MS;
        tcp_send(&pair[0], &send, 1, 7, &value, sizeof(value));
        pair[0].config.timeout_ms = LONGER_MS;
        tcp_drive_ms(&pair[0], 1, 3 * TIMEOUT_MS);
        tcp_recv(&pair[1], &recv, 0, 7, &got, sizeof(got));
        assert_int_equal(tcp_finish(pair, 2, &recv), DIST_OK);
        assert_int_equal(tcp_finish(pair, 2, &send), DIST_OK);
        assert_int_equal(got, 41);
        tcp_pair_close(pair);
    }
}

/* The sender has left, and its messages wait for a receiver that computes. */
static void test_messages_of_a_sender_that_left_are_kept(void **unused)
{
    struct tcp_rank pair[2];
    int ended;

    (void)unused;
    pair_open(pair, "1");
    ended = fill(pair);
    tcp_rank_close(&pair[0]);
    disti_sleep_ns((int64_t)6 * TIMEOUT_MS * 1000000);
    for (int i = 0; i < ended; i++) {
        tcp_recv(&pair[1], &recvs[i], 0, 7, in[i], BYTES);
        assert_int_equal(tcp_finish(&pair[1], 1, &recvs[i]), DIST_OK);
        assert_memory_equal(in[i], out, BYTES);
    }
    tcp_rank_close(&pair[1]);
}

static bool set_loopback(bool up)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = up ? IFF_UP | IFF_LOOPBACK : 0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool done = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &request) == 0;

    if (fd >= 0)
        close(fd);
    return done;
}

/* The state of the connection when the network is disabled. */
enum moment { IDLE, SENDING, FULL, MOMENTS };

/* Disables the network, in its own network namespace. Returns the exit status; 77: skipped. */
static int run_without_network(enum moment moment, bool longer)
{
    static struct tcp_rank pair[2]; /* static: stays reachable, so that valgrind reports no leak */
    struct dist_request recv, send;
    dist_status status;
    int64_t start;
    int value = 0;

    if (unshare(CLONE_NEWNET) || !set_loopback(true))
        return 77;
    pair_open(pair, "1");
    if (moment == FULL) {
        fill(pair);
        tcp_drive_ms(&pair[0], 1, TIMEOUT_MS / 2);
    }
    tcp_recv(&pair[0], &recv, 1, 9, &value, sizeof(value));
    if (!set_loopback(false))
        return 77;
    start = disti_now_ns();
    if (moment == SENDING)
        tcp_send(&pair[0], &send, 1, 8, out, sizeof(out));
    if (longer) {
        pair[0].config.timeout_ms = LONGER_MS;
        tcp_drive_ms(&pair[0], 1, 4 * TIMEOUT_MS);
        return recv.status == DIST_IN_PROGRESS ? 0 : 1;
    }
    status = tcp_finish(pair, 1, &recv);
    fprintf(stderr, "lost after %d ms: %s\n", (int)((disti_now_ns() - start) / 1000000),
            dist_last_error());
    return status == DIST_ERR_PEER_LOST ? 0 : 1;
}

static void disable_network(bool longer)
{
    for (int moment = IDLE; moment < MOMENTS; moment++) {
        pid_t child = fork();
        int status = -1;

        assert_true(child >= 0);
        if (child == 0)
            _exit(run_without_network((enum moment)moment, longer));
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status));
        if (WEXITSTATUS(status) == 77)
            skip();
        assert_int_equal(WEXITSTATUS(status), 0);
    }
}

static void test_a_host_that_does_not_answer_is_lost(void **unused)
{
    (void)unused;
    disable_network(false);
}

static void test_a_longer_timeout_keeps_a_silent_host(void **unused)
{
    (void)unused;
    disable_network(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_receiver_that_computes_is_not_lost),
        cmocka_unit_test(test_the_longest_timeout_applies_to_calls),
        cmocka_unit_test(test_messages_of_a_sender_that_left_are_kept),
        cmocka_unit_test(test_a_host_that_does_not_answer_is_lost),
        cmocka_unit_test(test_a_longer_timeout_keeps_a_silent_host),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
