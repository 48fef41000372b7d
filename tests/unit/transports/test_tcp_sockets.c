/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport with several sockets per pair of ranks: their number, stripes in any order,
 * errors, closing. */
#include "tests/unit/base/unit.h"

#include "base/clock.h"
#include "tcp_fixture.h"
#include "transports/tcp/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const struct dist_transport *const tcp = &disti_transport_tcp;

#define DOUBLES 20000
#define BYTES (DOUBLES * sizeof(double))
/* Offset of the second of three stripes; the third is at twice this. */
#define CUT ((size_t)64 << 10)

static bool has_description(struct tcp_rank *rank, const char *what)
{
    char text[200];

    tcp->describe(rank->state, 1 - rank->config.rank, text, sizeof(text));
    return strstr(text, what) != NULL;
}

/* Makes progress until the description of each rank contains `what`. */
static void wait_for_sockets(struct tcp_rank *ranks, int count, const char *what)
{
    for (int rank = 0; rank < count; rank++) {
        for (int i = 0; i < 1000 && !has_description(&ranks[rank], what); i++)
            tcp_drive_ms(ranks, count, 20);
        assert_true(has_description(&ranks[rank], what));
    }
}

static void pair_open(struct tcp_rank pair[2], const char *first, const char *second)
{
    const char *sockets[] = {first, second};

    for (int i = 0; i < 2; i++) {
        setenv("DIST_TCP_SOCKETS", sockets[i], 1);
        tcp_rank_open(&pair[i], i, 2, "127.0.0.1");
    }
    unsetenv("DIST_TCP_SOCKETS");
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            tcp->connect(pair[i].state, 1 - i, pair[1 - i].blob, pair[1 - i].blob_bytes), DIST_OK);
}

static void test_the_smaller_number_of_sockets_is_used(void **unused)
{
    static const char *const cases[][3] = {{"1", "1", " 1 sockets"},
                                           {"4", "4", " 4 sockets"},
                                           {"16", "16", " 16 sockets"},
                                           {"4", "2", " 2 sockets"},
                                           {"1", "3", " 1 sockets"}};

    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct tcp_rank pair[2];

        pair_open(pair, cases[i][0], cases[i][1]);
        tcp_exchange(pair, 10);
        wait_for_sockets(pair, 2, cases[i][2]);
        tcp_exchange(pair, 3000001);
        tcp_exchange(pair, 65536);
        assert_true(has_description(&pair[0], cases[i][2]));
        tcp_pair_close(pair);
    }
}

static void test_bad_numbers_of_sockets_are_rejected(void **unused)
{
    static const char *const wrong[] = {"0", "17", "-1", "two"};

    (void)unused;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        setenv("DIST_TCP_SOCKETS", wrong[i], 1);
        assert_false(tcp_host_usable("127.0.0.1"));
        assert_non_null(strstr(dist_last_error(), "DIST_TCP_SOCKETS"));
    }
    unsetenv("DIST_TCP_SOCKETS");
}

/* The second of two messages is larger than the early limit, and its receive is posted after the
 * first message has arrived. */
static void exceed_limit(const char *sockets, size_t bytes, size_t later)
{
    unsigned char *out = malloc(bytes + later), *in = calloc(1, bytes + later);
    struct dist_request sends[2], recvs[2];
    struct tcp_rank pair[2];
    char what[20];

    assert_true(out && in);
    snprintf(what, sizeof(what), " %s sockets", sockets);
    for (size_t i = 0; i < bytes + later; i++)
        out[i] = (unsigned char)(i * 7 + i / 251);
    setenv("DIST_TCP_EARLY_LIMIT", "1K", 1);
    pair_open(pair, sockets, sockets);
    unsetenv("DIST_TCP_EARLY_LIMIT");
    tcp_exchange(pair, 10);
    wait_for_sockets(pair, 2, what);
    tcp_recv(&pair[1], &recvs[0], 0, 7, in, bytes);
    tcp_send(&pair[0], &sends[0], 1, 7, out, bytes);
    tcp_send(&pair[0], &sends[1], 1, 8, out + bytes, later);
    assert_int_equal(tcp_finish(pair, 2, &recvs[0]), DIST_OK);
    tcp_recv(&pair[1], &recvs[1], 0, 8, in + bytes, later);
    assert_int_equal(tcp_finish(pair, 2, &recvs[1]), DIST_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(tcp_finish(pair, 2, &sends[i]), DIST_OK);
    assert_memory_equal(in, out, bytes + later);
    tcp_pair_close(pair);
    free(out);
    free(in);
}

static void test_a_message_beyond_the_limit_is_received_later(void **unused)
{
    static const char *const sockets[] = {"1", "2", "4"};

    (void)unused;
    for (int i = 0; i < 3; i++) {
        exceed_limit(sockets[i], 8 << 20, 8 << 20);
        exceed_limit(sockets[i], 8 << 20, 2000);
        exceed_limit(sockets[i], 100000, 3000000);
    }
}

/* Long and short messages, all queued at once and received in the same order. */
static void test_queued_messages_arrive_in_order(void **unused)
{
    enum { MESSAGES = 60, STEP = 200000 };
    static unsigned char out[MESSAGES * STEP], in[MESSAGES * STEP];
    struct dist_request sends[MESSAGES], recvs[MESSAGES];
    struct tcp_rank pair[2];

    (void)unused;
    for (int i = 0; i < MESSAGES * STEP; i++)
        out[i] = (unsigned char)(i * 7 + i / 251);
    setenv("DIST_TCP_EARLY_LIMIT", "1K", 1);
    pair_open(pair, "3", "3");
    unsetenv("DIST_TCP_EARLY_LIMIT");
    tcp_exchange(pair, 10);
    wait_for_sockets(pair, 2, " 3 sockets");
    for (int i = 0; i < MESSAGES; i++)
        tcp_send(&pair[0], &sends[i], 1, 100 + (uint64_t)i, out + (ptrdiff_t)i * STEP,
                 i % 5 ? STEP : 5000);
    for (int i = 0; i < MESSAGES; i++) {
        tcp_recv(&pair[1], &recvs[i], 0, 100 + (uint64_t)i, in + (ptrdiff_t)i * STEP,
                 i % 5 ? STEP : 5000);
        assert_int_equal(tcp_finish(pair, 2, &recvs[i]), DIST_OK);
        assert_memory_equal(in + (ptrdiff_t)i * STEP, out + (ptrdiff_t)i * STEP,
                            i % 5 ? STEP : 5000);
    }
    for (int i = 0; i < MESSAGES; i++)
        assert_int_equal(tcp_finish(pair, 2, &sends[i]), DIST_OK);
    tcp_pair_close(pair);
}

/* ---- messages of a client that implements the protocol itself ---- */

/* A rank, number 1, and a client that is connected to it as rank 0 by two sockets. */
struct client {
    struct tcp_rank rank;
    int fds[2];
    double out[DOUBLES], in[DOUBLES];
    struct dist_request request;
};

static int open_further_socket(struct tcp_rank *rank, int number)
{
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    int fd = raw_connect(rank);

    raw_call(rank, fd, 0, number);
    raw_read_hello(rank, fd, hello, DISTI_TCP_ANSWER);
    assert_int_equal(hello[11], number);
    return fd;
}

static void client_open(struct client *client)
{
    memset(client, 0, sizeof(*client));
    for (int i = 0; i < DOUBLES; i++)
        client->out[i] = i;
    tcp_rank_open(&client->rank, 1, 2, "127.0.0.1");
    client->fds[0] = raw_join(&client->rank, 0);
    client->fds[1] = open_further_socket(&client->rank, 1);
}

static void client_close(struct client *client)
{
    for (int i = 0; i < 2; i++)
        if (client->fds[i] >= 0)
            close(client->fds[i]);
    tcp_rank_close(&client->rank);
}

static void client_write(struct client *client, int socket, const void *data, size_t bytes)
{
    const char *at = data;

    /* Write pieces of an odd length, and let the receiver make progress after each. */
    while (bytes) {
        size_t piece = bytes < 7001 ? bytes : 7001;

        assert_true(raw_write(client->fds[socket], at, piece));
        tcp_drive(&client->rank, 1);
        at += piece;
        bytes -= piece;
    }
}

static void client_announce(struct client *client, uint64_t tag, uint64_t bytes)
{
    struct dist_envelope envelope = {tag, 1, bytes};
    unsigned char frame[DISTI_TCP_FRAME_BYTES];

    disti_tcp_frame_encode(DISTI_TCP_ANNOUNCED, &envelope, frame);
    client_write(client, 0, frame, sizeof(frame));
}

static void client_stripe(struct client *client, int socket, uint64_t number, size_t from,
                          size_t to)
{
    struct dist_envelope envelope = {number, from, to - from};
    unsigned char frame[DISTI_TCP_FRAME_BYTES];

    disti_tcp_frame_encode(DISTI_TCP_STRIPE, &envelope, frame);
    client_write(client, socket, frame, sizeof(frame));
    client_write(client, socket, (char *)client->out + from, to - from);
}

static void client_recv(struct client *client, uint64_t tag, bool reduce)
{
    memset(&client->request, 0, sizeof(client->request));
    for (int i = 0; i < DOUBLES; i++)
        client->in[i] = 1000;
    client->request.status = DIST_IN_PROGRESS;
    client->request.envelope = (struct dist_envelope){tag, 1, BYTES};
    client->request.sink = (struct dist_sink){
        client->in, reduce ? client->in : NULL, BYTES, DIST_FLOAT64, DIST_SUM, 0, NULL};
    tcp->recv(client->rank.state, &client->request);
}

static void client_check(struct client *client, bool reduce)
{
    assert_int_equal(tcp_finish(&client->rank, 1, &client->request), DIST_OK);
    for (int i = 0; i < DOUBLES; i++)
        assert_true(client->in[i] == i + (reduce ? 1000 : 0));
}

/* The steps of a message: its announcement, three stripes, and the receive. */
static void client_step(struct client *client, int step, uint64_t number, bool reduce)
{
    switch (step) {
    case 0:
        client_announce(client, 40 + number, BYTES);
        break;
    case 1:
        client_stripe(client, 1, number, CUT, 2 * CUT);
        break;
    case 2:
        client_stripe(client, 1, number, 0, CUT);
        break;
    case 3:
        client_stripe(client, 0, number, 2 * CUT, BYTES);
        break;
    default:
        client_recv(client, 40 + number, reduce);
    }
}

/* Every possible order: the announcement precedes the stripe on the first socket. */
static void test_stripes_arrive_in_any_order(void **unused)
{
    static const int orders[][5] = {{4, 0, 1, 2, 3}, {4, 1, 0, 2, 3}, {4, 1, 2, 0, 3},
                                    {1, 4, 0, 3, 2}, {1, 2, 0, 3, 4}, {0, 4, 1, 2, 3},
                                    {0, 1, 4, 2, 3}, {0, 1, 2, 4, 3}, {0, 3, 1, 4, 2},
                                    {0, 3, 1, 2, 4}, {1, 0, 3, 4, 2}};
    static struct client client;

    (void)unused;
    client_open(&client);
    for (uint64_t i = 0; i < 2 * sizeof(orders) / sizeof(orders[0]); i++) {
        for (int step = 0; step < 5; step++)
            client_step(&client, orders[i / 2][step], i, i % 2);
        client_check(&client, i % 2);
    }
    assert_true(has_description(&client.rank, " 0 held early, 2 sockets"));
    client_close(&client);
}

/* Several messages at once, and a short one that overtakes them. */
static void test_messages_may_be_interleaved(void **unused)
{
    static struct client client;
    struct dist_request shorter;
    unsigned char bytes[DISTI_TCP_FRAME_BYTES + 4];
    int value = 0;

    (void)unused;
    client_open(&client);
    client_recv(&client, 41, true);
    tcp_recv(&client.rank, &shorter, 0, 7, &value, sizeof(value));
    client_announce(&client, 40, BYTES);
    client_announce(&client, 41, BYTES);
    raw_message(bytes, 7, "\1\0\0\0", 4);
    client_stripe(&client, 1, 1, CUT, BYTES / 64 * 64);
    client_write(&client, 0, bytes, sizeof(bytes));
    assert_int_equal(tcp_finish(&client.rank, 1, &shorter), DIST_OK);
    assert_int_equal(value, 1);
    client_stripe(&client, 0, 0, 0, 2 * CUT);
    client_stripe(&client, 1, 0, 2 * CUT, BYTES);
    client_stripe(&client, 1, 1, 0, CUT);
    if (BYTES % 64)
        client_stripe(&client, 0, 1, BYTES / 64 * 64, BYTES);
    client_check(&client, true);
    client_recv(&client, 40, false);
    client_check(&client, false);
    client_close(&client);
}

/* The receive does not match the message: its remaining stripes are discarded. */
static void test_stripes_of_a_mismatched_message_are_discarded(void **unused)
{
    static struct client client;

    (void)unused;
    for (int when = 0; when < 2; when++) {
        struct dist_request other;
        char place[10];

        client_open(&client);
        if (when == 0)
            tcp_recv(&client.rank, &other, 0, 40, place, sizeof(place));
        client_announce(&client, 40, BYTES);
        client_stripe(&client, 1, 0, 0, CUT);
        if (when == 1)
            tcp_recv(&client.rank, &other, 0, 40, place, sizeof(place));
        assert_int_equal(tcp_finish(&client.rank, 1, &other), DIST_ERR_MISMATCH);
        client_stripe(&client, 0, 0, CUT, BYTES);
        client_recv(&client, 41, false);
        client_announce(&client, 41, BYTES);
        client_stripe(&client, 1, 1, 0, BYTES);
        client_check(&client, false);
        assert_true(has_description(&client.rank, " 0 held early"));
        client_close(&client);
    }
}

/* A discarded message uses credit until it has arrived completely, which limits the data in
 * transit. */
static void test_discarded_messages_use_credit(void **unused)
{
    enum { MESSAGES = 2 };
    struct dist_request others[MESSAGES];
    static struct client client;
    char place[10];

    (void)unused;
    setenv("DIST_TCP_EARLY_LIMIT", "500K", 1);
    client_open(&client);
    unsetenv("DIST_TCP_EARLY_LIMIT");
    for (uint64_t round = 0; round < 4; round++) {
        for (uint64_t i = 0; i < MESSAGES; i++) {
            tcp_recv(&client.rank, &others[i], 0, i, place, sizeof(place));
            client_announce(&client, i, BYTES);
            assert_int_equal(tcp_finish(&client.rank, 1, &others[i]), DIST_ERR_MISMATCH);
        }
        for (uint64_t i = 0; i < MESSAGES && round < 3; i++)
            client_stripe(&client, 1, round * MESSAGES + i, 0, BYTES);
        tcp_drive_ms(&client.rank, 1, 20); /* the credit is returned */
    }
    tcp_recv(&client.rank, &others[0], 0, 9, place, sizeof(place));
    client_announce(&client, 7, 2 * BYTES);
    assert_int_equal(tcp_finish(&client.rank, 1, &others[0]), DIST_ERR_PEER_LOST);
    client_close(&client);
}

/* ---- invalid frames end the connection of their sender only ---- */

/* Writes the frame unchanged and expects that the peer is lost. */
static void expect_lost(struct client *client, int socket, enum disti_tcp_kind kind,
                        uint64_t number, uint64_t from, uint64_t bytes)
{
    struct dist_envelope envelope = {number, from, bytes};
    unsigned char frame[DISTI_TCP_FRAME_BYTES];

    disti_tcp_frame_encode(kind, &envelope, frame);
    assert_true(raw_write(client->fds[socket], frame, sizeof(frame)));
    assert_int_equal(tcp_finish(&client->rank, 1, &client->request), DIST_ERR_PEER_LOST);
    assert_non_null(strstr(dist_last_error(), "not a message of libdist"));
    assert_true(raw_is_closed(&client->rank, 1, client->fds[1 - socket]));
}

static void test_invalid_stripes_end_the_connection(void **unused)
{
    static const struct {
        int socket;
        enum disti_tcp_kind kind;
        uint64_t number, from, bytes;
    } cases[] = {
        {0, DISTI_TCP_STRIPE, 1, 0, CUT},              /* of a message that is not announced */
        {1, DISTI_TCP_STRIPE, 0, BYTES, 64},           /* beyond the end */
        {1, DISTI_TCP_STRIPE, 0, CUT, BYTES},          /* too long */
        {1, DISTI_TCP_STRIPE, 0, 8, 64},               /* splits elements */
        {1, DISTI_TCP_STRIPE, 0, 0, 0},                /* empty */
        {0, DISTI_TCP_STRIPE, 0, UINT64_MAX - 63, 64}, /* overflows */
        {1, DISTI_TCP_STRIPE, 0, 0, BYTES / 64 * 64},  /* longer than the missing part */
        {1, DISTI_TCP_MESSAGE, 5, 1, 10},              /* a further socket has only stripes */
        {1, DISTI_TCP_ANNOUNCED, 5, 1, BYTES},
        {1, DISTI_TCP_GOODBYE, 0, 0, 0},
        {0, DISTI_TCP_ANNOUNCED, 5, 1, 0}, /* too short to be announced */
        {0, DISTI_TCP_ANNOUNCED, 5, 1, (64 << 10) - 1},
    };
    static struct client client;

    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        client_open(&client);
        client_recv(&client, 40, i % 2);
        client_announce(&client, 40, BYTES);
        client_stripe(&client, 1, 0, 0, CUT);
        expect_lost(&client, cases[i].socket, cases[i].kind, cases[i].number, cases[i].from,
                    cases[i].bytes);
        client_close(&client);
    }
}

/* A stripe of a message that has ended. */
static void test_a_stripe_of_an_ended_message_is_invalid(void **unused)
{
    static struct client client;

    (void)unused;
    client_open(&client);
    for (int step = 0; step < 5; step++)
        client_step(&client, step, 0, false);
    client_check(&client, false);
    client_recv(&client, 41, false);
    expect_lost(&client, 1, DISTI_TCP_STRIPE, 0, 0, CUT);
    client_close(&client);
}

/* Announcements require several sockets. */
static void test_stripes_need_several_sockets(void **unused)
{
    static const enum disti_tcp_kind kinds[] = {DISTI_TCP_ANNOUNCED, DISTI_TCP_STRIPE};

    (void)unused;
    for (int i = 0; i < 2; i++) {
        struct dist_envelope envelope = {0, 0, 128};
        unsigned char frame[DISTI_TCP_FRAME_BYTES];
        struct dist_request request;
        struct tcp_rank rank;
        int fd, value;

        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        fd = raw_join(&rank, 0);
        tcp_recv(&rank, &request, 0, 4, &value, sizeof(value));
        disti_tcp_frame_encode(kinds[i], &envelope, frame);
        assert_true(raw_write(fd, frame, sizeof(frame)));
        assert_int_equal(tcp_finish(&rank, 1, &request), DIST_ERR_PEER_LOST);
        close(fd);
        tcp_rank_close(&rank);
    }
}

/* A second socket of the same number is refused, as is one beyond this rank's number of sockets. */
static void test_excess_sockets_are_refused(void **unused)
{
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    static struct client client;
    int fd;

    (void)unused;
    setenv("DIST_TCP_SOCKETS", "2", 1);
    client_open(&client);
    unsetenv("DIST_TCP_SOCKETS");
    for (int number = 1; number < 18; number++) {
        fd = raw_connect(&client.rank);
        if (number < DISTI_TCP_SOCKETS) {
            raw_call(&client.rank, fd, 0, number);
        } else {
            raw_hello(hello, 0, 1, 2);
            hello[11] = (unsigned char)number;
            assert_true(raw_write(fd, hello, sizeof(hello)));
        }
        assert_true(raw_is_closed(&client.rank, 1, fd));
        close(fd);
    }
    assert_true(has_description(&client.rank, " 2 sockets"));
    client_close(&client);
}

/* Closes one socket, within a stripe or between two stripes, while the other is idle. The peer is
 * lost. */
static void test_a_peer_that_loses_one_socket_is_lost(void **unused)
{
    static struct client client;

    (void)unused;
    for (int i = 0; i < 4; i++) {
        client_open(&client);
        client_recv(&client, 40, false);
        if (i % 2) {
            client_announce(&client, 40, BYTES);
            client_stripe(&client, 1, 0, 0, CUT);
        }
        close(client.fds[i / 2]);
        client.fds[i / 2] = -1;
        assert_int_equal(tcp_finish(&client.rank, 1, &client.request), DIST_ERR_PEER_LOST);
        assert_non_null(strstr(dist_last_error(), "rank 1 lost rank 0"));
        client_close(&client);
    }
}

/* The first socket ends with a goodbye before the last stripes of a message have arrived. */
static void test_stripes_are_received_after_a_goodbye(void **unused)
{
    unsigned char frame[DISTI_TCP_FRAME_BYTES];
    static struct client client;
    struct dist_request late;
    int value;

    (void)unused;
    for (int unexpected = 0; unexpected < 2; unexpected++) {
        client_open(&client);
        if (!unexpected)
            client_recv(&client, 40, true);
        client_announce(&client, 40, BYTES);
        disti_tcp_frame_encode(DISTI_TCP_GOODBYE, &(struct dist_envelope){0, 0, 0}, frame);
        client_write(&client, 0, frame, sizeof(frame));
        close(client.fds[0]);
        client.fds[0] = -1;
        tcp_drive_ms(&client.rank, 1, 20);
        client_stripe(&client, 1, 0, 0, BYTES);
        tcp_drive_ms(&client.rank, 1, 20);
        if (unexpected)
            client_recv(&client, 40, true);
        client_check(&client, true);
        tcp_recv(&client.rank, &late, 0, 50, &value, sizeof(value));
        assert_int_equal(tcp_finish(&client.rank, 1, &late), DIST_ERR_PEER_LOST);
        assert_non_null(strstr(dist_last_error(), "has left"));
        client_close(&client);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_smaller_number_of_sockets_is_used),
        cmocka_unit_test(test_bad_numbers_of_sockets_are_rejected),
        cmocka_unit_test(test_a_message_beyond_the_limit_is_received_later),
        cmocka_unit_test(test_queued_messages_arrive_in_order),
        cmocka_unit_test(test_stripes_arrive_in_any_order),
        cmocka_unit_test(test_messages_may_be_interleaved),
        cmocka_unit_test(test_stripes_of_a_mismatched_message_are_discarded),
        cmocka_unit_test(test_discarded_messages_use_credit),
        cmocka_unit_test(test_invalid_stripes_end_the_connection),
        cmocka_unit_test(test_a_stripe_of_an_ended_message_is_invalid),
        cmocka_unit_test(test_stripes_need_several_sockets),
        cmocka_unit_test(test_excess_sockets_are_refused),
        cmocka_unit_test(test_a_peer_that_loses_one_socket_is_lost),
        cmocka_unit_test(test_stripes_are_received_after_a_goodbye),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
