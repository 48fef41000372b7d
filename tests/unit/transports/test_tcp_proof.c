/* SPDX-License-Identifier: BSD-3-Clause */
/* Callers of a rank, and those whom it calls, that have not the key of its world. */
#include "tcp_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum trick { OTHER_KEY, NO_KEY, REPLAY, REFLECT, OTHER_RANK, OTHER_SOCKET, OTHER_CREDIT, TRICKS };

static struct disti_secret world_key, other_key;
static const struct disti_secret no_key;

static int make_keys(void **state)
{
    (void)state;
    disti_secret_set_token(&world_key, "the key of this world, 32 bytes.");
    disti_secret_set_token(&other_key, "the key of another one, 32 bytes");
    return 0;
}

static void pair_open(struct tcp_rank pair[2])
{
    tcp_key = &world_key;
    tcp_pair_open(pair, "127.0.0.1");
    tcp_key = NULL;
}

static void prove(unsigned char *bytes, const struct disti_secret *key, const unsigned char *heard)
{
    bytes[10] = DISTI_TCP_PROOF;
    disti_tcp_hello_prove(key, bytes, heard + 40, NULL, bytes + 72);
}

/* Writes what a caller without the key could try, after he has heard the challenge. */
static void try_trick(enum trick trick, unsigned char *bytes, const unsigned char *heard)
{
    unsigned char earlier[DISTI_TCP_HELLO_BYTES];

    memcpy(earlier, heard, sizeof(earlier));
    earlier[40] ^= trick == REPLAY; /* the proof was right, for another nonce */
    prove(bytes, trick == OTHER_KEY ? &other_key : trick == NO_KEY ? &no_key : &world_key, earlier);
    if (trick == REFLECT) { /* the proof that the called one would give */
        bytes[10] = DISTI_TCP_ANSWER;
        disti_tcp_hello_prove(&world_key, bytes, heard + 40, NULL, bytes + 72);
        bytes[10] = DISTI_TCP_PROOF;
    }
    bytes[16] ^= trick == OTHER_RANK ? 2 : 0; /* rank 2 instead of 0 */
    bytes[11] ^= trick == OTHER_SOCKET;
    bytes[32] ^= trick == OTHER_CREDIT;
}

/* Nobody who has called without the key gets an answer, or is in the way of those who have it. */
static void test_callers(void **unused)
{
    unsigned char hello[DISTI_TCP_HELLO_BYTES], heard[DISTI_TCP_HELLO_BYTES];
    const int rounds = getenv("CHECK_LONG") ? 100000 / TRICKS : 3;
    struct tcp_rank ranks[3];

    (void)unused;
    tcp_key = &world_key;
    for (int r = 0; r < 3; r++)
        tcp_rank_open(&ranks[r], r, 3, "127.0.0.1");
    tcp_key = NULL;
    for (int i = 0; i < rounds * TRICKS; i++) {
        int fd = raw_connect(&ranks[1]);

        raw_hello(hello, 0, 1, 3);
        assert_true(raw_write(fd, hello, sizeof(hello)));
        raw_hear(&ranks[1], fd, heard, DISTI_TCP_CHALLENGE);
        try_trick((enum trick)(i % TRICKS), hello, heard);
        assert_true(raw_write(fd, hello, sizeof(hello)));
        assert_true(raw_closed(ranks, 3, fd));
        close(fd);
    }
    for (int r = 0; r < 3; r++)
        tcp_rank_close(&ranks[r]);
}

/* The two have the key: they need no other. */
static void test_key_is_enough(void **unused)
{
    struct tcp_rank pair[2];

    (void)unused;
    pair_open(pair);
    tcp_exchange(pair, 100000);
    tcp_pair_close(pair);
}

/* Ranks of two worlds, at the addresses of each other: neither gets a byte, however often one
 * calls.
 */
static void test_worlds(void **unused)
{
    struct dist_request send, recv;
    struct tcp_rank pair[2];
    int value = 1, got = 0;

    (void)unused;
    tcp_key = &world_key;
    tcp_rank_open(&pair[0], 0, 2, "127.0.0.1");
    tcp_key = &other_key;
    tcp_rank_open(&pair[1], 1, 2, "127.0.0.1");
    tcp_key = NULL;
    for (int i = 0; i < 2; i++)
        assert_int_equal(disti_transport_tcp.connect(pair[i].state, 1 - i, pair[1 - i].blob,
                                                     pair[1 - i].blob_bytes),
                         DIST_OK);
    tcp_recv(&pair[1], &recv, 0, 3, &got, sizeof(got));
    tcp_send(&pair[0], &send, 1, 3, &value, sizeof(value));
    tcp_drive_ms(pair, 2, 700);
    assert_int_not_equal(send.status, DIST_OK);
    assert_int_not_equal(recv.status, DIST_OK);
    assert_int_equal(got, 0);
    tcp_pair_close(pair);
}

/* Who listens where a rank is said to be, and has no key, is found out before any data goes. */
static void test_called(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < 3; kind++) {
        unsigned char answer[DISTI_TCP_HELLO_BYTES], byte;
        struct dist_request request;
        struct tcp_rank rank;
        int listener, fd, value = 5;

        tcp_key = &world_key;
        tcp_rank_open(&rank, 0, 2, "127.0.0.1");
        tcp_key = NULL;
        listener = raw_listen(&rank, 1);
        tcp_send(&rank, &request, 1, 4, &value, sizeof(value));
        fd = accept(listener, NULL, NULL);
        raw_called(&rank, fd, 1, answer);
        if (kind == 1)
            memset(answer + 72, 0, 32);
        answer[32] ^= kind == 2;
        assert_true(raw_write(fd, answer, sizeof(answer)));
        assert_int_equal(tcp_finish(&rank, 1, &request), DIST_ERR_PEER_LOST);
        assert_non_null(strstr(dist_last_error(), "did not prove"));
        assert_true(recv(fd, &byte, 1, 0) <= 0);
        close(fd);
        close(listener);
        tcp_rank_close(&rank);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_callers),
        cmocka_unit_test(test_key_is_enough),
        cmocka_unit_test(test_worlds),
        cmocka_unit_test(test_called),
    };

    return cmocka_run_group_tests(tests, make_keys, NULL);
}
