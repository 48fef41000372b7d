/* SPDX-License-Identifier: BSD-3-Clause */
/* Callers, and ranks that are called, without the key of the world. */
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

static void prove(unsigned char *bytes, const struct disti_secret *key,
                  const unsigned char *received)
{
    bytes[10] = DISTI_TCP_PROOF;
    disti_tcp_hello_prove(key, bytes, received + 40, NULL, bytes + 72);
}

/* Writes what a caller without the key could send after the challenge. */
static void try_trick(enum trick trick, unsigned char *bytes, const unsigned char *received)
{
    unsigned char earlier[DISTI_TCP_HELLO_BYTES];

    memcpy(earlier, received, sizeof(earlier));
    earlier[40] ^= trick == REPLAY; /* the proof was valid, but for another nonce */
    prove(bytes, trick == OTHER_KEY ? &other_key : trick == NO_KEY ? &no_key : &world_key, earlier);
    if (trick == REFLECT) { /* the proof that the called rank would send */
        bytes[10] = DISTI_TCP_ANSWER;
        disti_tcp_hello_prove(&world_key, bytes, received + 40, NULL, bytes + 72);
        bytes[10] = DISTI_TCP_PROOF;
    }
    bytes[16] ^= trick == OTHER_RANK ? 2 : 0; /* rank 2 instead of rank 0 */
    bytes[11] ^= trick == OTHER_SOCKET;
    bytes[32] ^= trick == OTHER_CREDIT;
}

/* A caller without the key gets no answer and does not delay callers that have it. */
static void test_callers_without_the_key_are_refused(void **unused)
{
    unsigned char hello[DISTI_TCP_HELLO_BYTES], received[DISTI_TCP_HELLO_BYTES];
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
        raw_read_hello(&ranks[1], fd, received, DISTI_TCP_CHALLENGE);
        try_trick((enum trick)(i % TRICKS), hello, received);
        assert_true(raw_write(fd, hello, sizeof(hello)));
        assert_true(raw_is_closed(ranks, 3, fd));
        close(fd);
    }
    for (int r = 0; r < 3; r++)
        tcp_rank_close(&ranks[r]);
}

/* Two ranks that have the key connect. */
static void test_ranks_with_the_key_connect(void **unused)
{
    struct tcp_rank pair[2];

    (void)unused;
    pair_open(pair);
    tcp_exchange(pair, 100000);
    tcp_pair_close(pair);
}

/* Ranks of two worlds with each other's addresses: neither receives any data, however often they
 * call. */
static void test_ranks_of_other_worlds_are_refused(void **unused)
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

/* A process without the key that listens at a rank's address is detected before any data is sent to
 * it. */
static void test_a_called_process_without_the_key_is_refused(void **unused)
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
        raw_answer_call(&rank, fd, 1, answer);
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
        cmocka_unit_test(test_callers_without_the_key_are_refused),
        cmocka_unit_test(test_ranks_with_the_key_connect),
        cmocka_unit_test(test_ranks_of_other_worlds_are_refused),
        cmocka_unit_test(test_a_called_process_without_the_key_is_refused),
    };

    return cmocka_run_group_tests(tests, make_keys, NULL);
}
