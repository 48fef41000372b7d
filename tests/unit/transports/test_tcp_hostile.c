/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport against unrelated clients, malformed hellos and random streams. */
#include "tcp_fixture.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed = 1;

static uint64_t random_u64(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Makes a hello that must be refused: each kind changes one field of a valid hello. */
static void malformed_hello(unsigned char *bytes, int kind)
{
    static const int offsets[] = {0, 7, 8, 10, 12, 16, 17, 19, 20, 24, 31};

    raw_hello(bytes, kind == 11 ? 1 : 0, 1, 2);
    if (kind < 11)
        bytes[offsets[kind]] ^= 0x42;
}

static void exchange_some(struct tcp_rank pair[2], int messages)
{
    static unsigned char out[30000], in[2][30000];
    struct dist_request sends[2], recvs[2];

    for (int m = 0; m < messages; m++) {
        size_t bytes = random_u64() % sizeof(out);

        for (size_t i = 0; i < bytes; i++)
            out[i] = (unsigned char)random_u64();
        for (int i = 0; i < 2; i++) {
            memset(in[i], 0, bytes);
            tcp_recv(&pair[i], &recvs[i], 1 - i, 6, in[i], bytes);
            tcp_send(&pair[i], &sends[i], 1 - i, 6, out, bytes);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(tcp_finish(pair, 2, &recvs[i]), DIST_OK);
            assert_int_equal(tcp_finish(pair, 2, &sends[i]), DIST_OK);
            assert_memory_equal(in[i], out, bytes);
        }
    }
}

static void test_malformed_hellos_are_refused(void **unused)
{
    unsigned char bytes[2 * DISTI_TCP_HELLO_BYTES] = {0};
    struct tcp_rank pair[2];

    (void)unused;
    tcp_pair_open(pair, "127.0.0.1");
    for (int round = 0; round < 36; round++) {
        int fd = raw_connect(&pair[1]);

        if (round % 12 == 0 && round)
            for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = (unsigned char)random_u64();
        else
            malformed_hello(bytes, round % 12);
        assert_true(raw_write(fd, bytes, sizeof(bytes)));
        exchange_some(pair, 3);
        assert_true(raw_is_closed(pair, 2, fd));
        close(fd);
    }
    exchange_some(pair, 10);
    tcp_pair_close(pair);
}

/* A client with the key calls as rank 0, which is already connected. */
static void test_a_second_connection_of_a_rank_is_refused(void **unused)
{
    struct tcp_rank pair[2];
    int fd;

    (void)unused;
    tcp_pair_open(pair, "127.0.0.1");
    exchange_some(pair, 1);
    fd = raw_connect(&pair[1]);
    raw_call(&pair[1], fd, 0, 0);
    assert_true(raw_is_closed(pair, 2, fd));
    close(fd);
    exchange_some(pair, 5);
    tcp_pair_close(pair);
}

/* Many ranks have connected, and all of them delay their hellos. */
static void test_slow_ranks_are_accepted(void **unused)
{
    enum { RANKS = 101 };
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    struct tcp_rank rank;
    int fds[RANKS];

    (void)unused;
    tcp_rank_open(&rank, RANKS - 1, RANKS, "127.0.0.1");
    for (int i = 0; i < RANKS - 1; i++)
        fds[i] = raw_connect(&rank);
    tcp_drive_ms(&rank, 1, getenv("CHECK_LONG") ? 7000 : 100);
    for (int i = 0; i < RANKS - 1; i++)
        raw_call(&rank, fds[i], i, 0);
    for (int i = 0; i < RANKS - 1; i++) {
        raw_read_hello(&rank, fds[i], hello, DISTI_TCP_ANSWER);
        close(fds[i]);
    }
    tcp_rank_close(&rank);
}

/* No descriptor is free for a caller: it waits, the called rank can sleep, and later it accepts. */
static void test_a_caller_waits_for_descriptors(void **unused)
{
    struct rlimit limit, few;
    struct tcp_rank pair[2];
    int fd, progressed = 0;

    (void)unused;
    tcp_pair_open(pair, "127.0.0.1");
    exchange_some(pair, 1);
    fd = raw_connect(&pair[1]);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    few.rlim_cur = (rlim_t)fd + 1;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int i = 0; i < 5; i++) {
        int epoll;

        while ((epoll = disti_transport_tcp.arm(pair[1].state)) == -2) {
            assert_true(++progressed < 1000);
            tcp_drive(&pair[1], 1);
        }
        poll(&(struct pollfd){.fd = epoll, .events = POLLIN}, 1, 100);
        disti_transport_tcp.disarm(pair[1].state);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    exchange_some(pair, 3);
    assert_true(raw_write(fd,
                          "this is no hello of a rank of this job, but long enough for one, "
                          "and for some more bytes behind it as well",
                          104));
    assert_true(raw_is_closed(pair, 2, fd));
    close(fd);
    tcp_pair_close(pair);
}

/* Connects many silent clients. Only a limited number stay connected, and a rank is still accepted.
 * */
static void test_silent_clients_are_limited(void **unused)
{
    enum { CLIENTS = 200 };
    struct tcp_rank pair[2];
    int fds[CLIENTS], before, kept;

    (void)unused;
    tcp_pair_open(pair, "127.0.0.1");
    for (int i = 0; i < CLIENTS; i++)
        fds[i] = raw_connect(&pair[1]);
    before = tcp_count_files();
    exchange_some(pair, 3);
    tcp_drive_ms(pair, 2, 50);
    kept = tcp_count_files() - before - 2;
    assert_in_range(kept, 1, 64 + 8);
    exchange_some(pair, 3);
    for (int i = 0; i < CLIENTS - kept; i++)
        assert_true(raw_is_closed(pair, 2, fds[i]));
    for (int i = 0; i < CLIENTS; i++)
        close(fds[i]);
    exchange_some(pair, 3);
    tcp_pair_close(pair);
}

/* A random stream of messages in random pieces; receives are posted before, while and after their
 * messages arrive. */
#define STORM_MESSAGES 12
#define STORM_BYTES 3000

struct storm {
    unsigned char stream[STORM_MESSAGES * (STORM_BYTES + DISTI_TCP_FRAME_BYTES)];
    unsigned char got[STORM_MESSAGES][STORM_BYTES];
    struct dist_request requests[STORM_MESSAGES];
    size_t begin[STORM_MESSAGES], size[STORM_MESSAGES], total;
    bool posted[STORM_MESSAGES];
};

static void storm_write(struct storm *storm)
{
    static unsigned char data[STORM_BYTES];

    storm->total = 0;
    for (int m = 0; m < STORM_MESSAGES; m++) {
        storm->size[m] = random_u64() % 3 ? random_u64() % 64 : random_u64() % STORM_BYTES;
        for (size_t i = 0; i < storm->size[m]; i++)
            data[i] = (unsigned char)random_u64();
        storm->begin[m] = storm->total + DISTI_TCP_FRAME_BYTES;
        storm->total +=
            raw_message(storm->stream + storm->total, (uint64_t)m, data, storm->size[m]);
        storm->posted[m] = false;
    }
}

static void storm_post(struct storm *storm, struct tcp_rank *rank, int m)
{
    if (storm->posted[m])
        return;
    storm->posted[m] = true;
    tcp_recv(rank, &storm->requests[m], 0, (uint64_t)m, storm->got[m], storm->size[m]);
}

static void storm_run(struct storm *storm, struct tcp_rank *rank, int fd, size_t total)
{
    for (size_t at = 0; at < total;) {
        size_t piece = 1 + random_u64() % (random_u64() % 2 ? 40 : 4000);

        if (piece > total - at)
            piece = total - at;
        if (random_u64() % 2)
            storm_post(storm, rank, (int)(random_u64() % STORM_MESSAGES));
        /* A rank that has detected an error resets the connection. */
        if (!raw_write(fd, storm->stream + at, piece))
            break;
        tcp_drive(rank, 1);
        at += piece;
    }
    for (int m = 0; m < STORM_MESSAGES; m++)
        storm_post(storm, rank, m);
}

static void test_random_streams_are_received(void **unused)
{
    static struct storm storm;

    (void)unused;
    for (int round = 0; round < 60; round++) {
        struct tcp_rank rank;
        int fd;

        seed = (uint64_t)round + 100;
        setenv("DIST_TCP_EARLY_LIMIT", "64K", 1);
        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        fd = raw_join(&rank, 0);
        storm_write(&storm);
        storm_run(&storm, &rank, fd, storm.total);
        for (int m = 0; m < STORM_MESSAGES; m++) {
            assert_int_equal(tcp_finish(&rank, 1, &storm.requests[m]), DIST_OK);
            assert_memory_equal(storm.got[m], storm.stream + storm.begin[m], storm.size[m]);
        }
        close(fd);
        tcp_rank_close(&rank);
        unsetenv("DIST_TCP_EARLY_LIMIT");
    }
}

/* Random bytes of the stream are changed, or it ends early: every receive ends, and nothing
 * crashes. */
static void test_corrupted_streams_end_every_receive(void **unused)
{
    static struct storm storm;

    (void)unused;
    for (int round = 0; round < 300; round++) {
        struct tcp_rank rank;
        int fd;

        seed = (uint64_t)round + 1000;
        setenv("DIST_TCP_EARLY_LIMIT", "4K", 1);
        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        fd = raw_join(&rank, 0);
        storm_write(&storm);
        for (int i = 0; i < 1 + round % 4; i++) {
            size_t header = storm.begin[random_u64() % STORM_MESSAGES] - DISTI_TCP_FRAME_BYTES;

            storm.stream[header + random_u64() % DISTI_TCP_FRAME_BYTES] ^=
                (unsigned char)(1 << random_u64() % 8);
        }
        storm_run(&storm, &rank, fd, round % 3 ? storm.total : random_u64() % storm.total);
        close(fd);
        for (int m = 0; m < STORM_MESSAGES; m++)
            assert_int_not_equal(tcp_finish(&rank, 1, &storm.requests[m]), DIST_IN_PROGRESS);
        tcp_rank_close(&rank);
        unsetenv("DIST_TCP_EARLY_LIMIT");
    }
}

/* Both ranks have called. Rank 1 accepts rank 0's call and then finds that its own call was closed,
 * which must not affect the accepted connection. */
static void test_the_refused_call_of_two_does_no_harm(void **unused)
{
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    struct dist_request recv, send;
    int listener, called, fd, value = 7;
    struct tcp_rank rank;

    (void)unused;
    tcp_rank_open(&rank, 1, 2, "127.0.0.1");
    listener = raw_listen(&rank, 0);
    tcp_recv(&rank, &recv, 0, 5, &value, sizeof(value));
    tcp_drive_ms(&rank, 1, 500);
    called = accept(listener, NULL, NULL);
    assert_true(called >= 0);
    fd = raw_connect(&rank);
    tcp_drive_ms(&rank, 1, 20);
    raw_call(&rank, fd, 0, 0);
    close(called);
    tcp_drive_ms(&rank, 1, 20);
    tcp_send(&rank, &send, 0, 6, &value, sizeof(value));
    assert_int_equal(tcp_finish(&rank, 1, &send), DIST_OK);
    assert_true(raw_write(fd, hello, raw_message(hello, 5, &value, sizeof(value))));
    assert_int_equal(tcp_finish(&rank, 1, &recv), DIST_OK);
    close(fd);
    close(listener);
    tcp_rank_close(&rank);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_malformed_hellos_are_refused),
        cmocka_unit_test(test_a_second_connection_of_a_rank_is_refused),
        cmocka_unit_test(test_slow_ranks_are_accepted),
        cmocka_unit_test(test_a_caller_waits_for_descriptors),
        cmocka_unit_test(test_silent_clients_are_limited),
        cmocka_unit_test(test_random_streams_are_received),
        cmocka_unit_test(test_corrupted_streams_end_every_receive),
        cmocka_unit_test(test_the_refused_call_of_two_does_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
