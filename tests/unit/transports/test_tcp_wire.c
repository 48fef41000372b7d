/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport against peers that send byte by byte, end early, or send invalid frames. */
#include "tcp_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const struct dist_transport *const tcp = &disti_transport_tcp;

/* A stream with every kind of message: one that is copied, one that is reduced, one without data,
 * one before its receive, one that mismatches, and one after that. */
#define TALK_DOUBLES 5
#define TALK_BYTES (DISTI_TCP_HELLO_BYTES + 6 * DISTI_TCP_FRAME_BYTES + 200)

struct talk {
    unsigned char bytes[TALK_BYTES];
    size_t size;
    struct dist_request copy, reduce, empty, unexpected, mismatch, last;
    char copied[11], came_unexpected[6], mismatched[4], last_one[3];
    double sums[TALK_DOUBLES];
};

static void talk_write(struct talk *talk)
{
    static const double values[TALK_DOUBLES] = {1, 2, 3, 4, 5};
    unsigned char *at = talk->bytes;

    at += raw_hello(at, 0, 1, 2); /* becomes the proof */
    at += raw_message(at, 10, "hello world", 11);
    at += raw_message(at, 11, values, sizeof(values));
    at += raw_message(at, 12, NULL, 0);
    at += raw_message(at, 13, "early!", 6);
    at += raw_message(at, 14, "too long", 8);
    at += raw_message(at, 15, "end", 3);
    talk->size = (size_t)(at - talk->bytes);
}

static void talk_post(struct talk *talk, struct tcp_rank *rank)
{
    tcp_recv(rank, &talk->copy, 0, 10, talk->copied, sizeof(talk->copied));
    for (int i = 0; i < TALK_DOUBLES; i++)
        talk->sums[i] = 100;
    memset(&talk->reduce, 0, sizeof(talk->reduce));
    talk->reduce.status = DIST_IN_PROGRESS;
    talk->reduce.envelope = (struct dist_envelope){11, 1, sizeof(talk->sums)};
    talk->reduce.sink = (struct dist_sink){
        talk->sums, talk->sums, sizeof(talk->sums), DIST_FLOAT64, DIST_SUM, 0, NULL};
    tcp->recv(rank->state, &talk->reduce);
    tcp_recv(rank, &talk->empty, 0, 12, NULL, 0);
    tcp_recv(rank, &talk->mismatch, 0, 14, talk->mismatched, sizeof(talk->mismatched));
    tcp_recv(rank, &talk->last, 0, 15, talk->last_one, sizeof(talk->last_one));
}

static void talk_check(struct talk *talk, struct tcp_rank *rank)
{
    assert_int_equal(tcp_finish(rank, 1, &talk->last), DIST_OK);
    assert_memory_equal(talk->last_one, "end", 3);
    assert_int_equal(talk->copy.status, DIST_OK);
    assert_memory_equal(talk->copied, "hello world", 11);
    assert_int_equal(talk->reduce.status, DIST_OK);
    for (int i = 0; i < TALK_DOUBLES; i++)
        assert_true(talk->sums[i] == 101 + i);
    assert_int_equal(talk->empty.status, DIST_OK);
    assert_int_equal(talk->mismatch.status, DIST_ERR_MISMATCH);
    assert_int_equal(talk->mismatch.arrived.bytes, 8);
    tcp_recv(rank, &talk->unexpected, 0, 13, talk->came_unexpected, sizeof(talk->came_unexpected));
    assert_int_equal(talk->unexpected.status, DIST_OK);
    assert_memory_equal(talk->came_unexpected, "early!", 6);
}

/* Calls the rank, sending the first hello in two parts, split at `cut`. Then talk->bytes are to be
 * sent. */
static void talk_call(struct talk *talk, struct tcp_rank *rank, int fd, size_t cut)
{
    unsigned char hello[DISTI_TCP_HELLO_BYTES], received[DISTI_TCP_HELLO_BYTES];

    raw_hello(hello, 0, 1, 2);
    if (cut > sizeof(hello))
        cut = sizeof(hello);
    assert_true(raw_write(fd, hello, cut));
    for (int i = 0; i < 20; i++)
        tcp_drive(rank, 1);
    assert_true(raw_write(fd, hello + cut, sizeof(hello) - cut));
    raw_read_hello(rank, fd, received, DISTI_TCP_CHALLENGE);
    raw_prove(talk->bytes, DISTI_TCP_PROOF, received);
}

static void test_a_stream_may_be_split_anywhere(void **unused)
{
    struct talk talk;

    (void)unused;
    talk_write(&talk);
    for (size_t cut = 0; cut <= talk.size; cut++) {
        struct tcp_rank rank;
        int fd;

        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        assert_int_equal(tcp->connect(rank.state, 0, rank.blob, rank.blob_bytes), DIST_OK);
        fd = raw_connect(&rank);
        talk_post(&talk, &rank);
        talk_call(&talk, &rank, fd, cut);
        assert_true(raw_write(fd, talk.bytes, cut));
        for (int i = 0; i < 20; i++)
            tcp_drive(&rank, 1);
        assert_true(raw_write(fd, talk.bytes + cut, talk.size - cut));
        talk_check(&talk, &rank);
        tcp_rank_close(&rank);
        close(fd);
    }
}

static void test_a_stream_may_arrive_byte_by_byte(void **unused)
{
    struct tcp_rank rank;
    struct talk talk;
    int fd;

    (void)unused;
    talk_write(&talk);
    tcp_rank_open(&rank, 1, 2, "127.0.0.1");
    assert_int_equal(tcp->connect(rank.state, 0, rank.blob, rank.blob_bytes), DIST_OK);
    fd = raw_connect(&rank);
    talk_post(&talk, &rank);
    talk_call(&talk, &rank, fd, 1);
    for (size_t i = 0; i < talk.size; i++) {
        assert_true(raw_write(fd, talk.bytes + i, 1));
        for (int k = 0; k < 20; k++)
            tcp_drive(&rank, 1);
    }
    talk_check(&talk, &rank);
    tcp_rank_close(&rank);
    close(fd);
}

/* The called rank answers byte by byte, and data follow immediately. */
static void test_an_answer_may_arrive_byte_by_byte(void **unused)
{
    unsigned char bytes[256];
    struct dist_request request;
    struct tcp_rank rank;
    int listener, fd, value = 5, got = 0;
    size_t size;

    (void)unused;
    tcp_rank_open(&rank, 0, 2, "127.0.0.1");
    listener = raw_listen(&rank, 1);
    tcp_recv(&rank, &request, 1, 4, &got, sizeof(got));
    fd = accept(listener, NULL, NULL);
    size = raw_answer_call(&rank, fd, 1, bytes);
    size += raw_message(bytes + size, 4, &value, sizeof(value));
    for (size_t i = 0; i < size; i++) {
        assert_int_equal(request.status, DIST_IN_PROGRESS);
        assert_true(raw_write(fd, bytes + i, 1));
        for (int k = 0; k < 20; k++)
            tcp_drive(&rank, 1);
    }
    assert_int_equal(tcp_finish(&rank, 1, &request), DIST_OK);
    assert_int_equal(got, value);
    close(fd);
    close(listener);
    tcp_rank_close(&rank);
}

/* The answer is invalid, or the connection is closed. */
static void test_invalid_answers_are_refused(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < 4; kind++) {
        unsigned char bytes[DISTI_TCP_HELLO_BYTES];
        struct dist_request request;
        struct tcp_rank rank;
        int listener, fd, value;

        tcp_rank_open(&rank, 0, 3, "127.0.0.1");
        listener = raw_listen(&rank, 1);
        tcp_recv(&rank, &request, 1, 4, &value, sizeof(value));
        fd = accept(listener, NULL, NULL);
        raw_hello(bytes, kind == 0 ? 2 : 1, 0, 3);
        bytes[10] = DISTI_TCP_CHALLENGE;
        bytes[0] ^= kind == 1;
        bytes[24] ^= kind == 2;
        if (kind < 3)
            assert_true(raw_write(fd, bytes, sizeof(bytes)));
        else
            assert_int_equal(close(fd) | close(listener), 0);
        assert_int_equal(tcp_finish(&rank, 1, &request), DIST_ERR_PEER_LOST);
        assert_non_null(strstr(dist_last_error(), "rank 0 lost rank 1 (127.0.0.1:"));
        if (kind < 3)
            assert_int_equal(close(fd) | close(listener), 0);
        tcp_rank_close(&rank);
    }
}

/* If the peer closes the connection without an answer, before or after the hello, the rank calls
 * again. */
static void test_a_closed_call_is_repeated(void **unused)
{
    (void)unused;
    for (int greeted = 0; greeted < 2; greeted++) {
        unsigned char bytes[DISTI_TCP_HELLO_BYTES];
        struct dist_request request;
        struct tcp_rank rank;
        int listener, fd, value = 5;

        tcp_rank_open(&rank, 0, 2, "127.0.0.1");
        listener = raw_listen(&rank, 1);
        tcp_send(&rank, &request, 1, 4, &value, sizeof(value));
        for (int i = 0; i < 3; i++) {
            if (greeted || i)
                tcp_drive_ms(&rank, 1, 20);
            fd = accept(listener, NULL, NULL);
            close(fd);
            tcp_drive_ms(&rank, 1, 400);
            assert_int_equal(request.status, DIST_IN_PROGRESS);
        }
        fd = accept(listener, NULL, NULL);
        raw_answer_call(&rank, fd, 1, bytes);
        assert_true(raw_write(fd, bytes, sizeof(bytes)));
        assert_int_equal(tcp_finish(&rank, 1, &request), DIST_OK);
        close(fd);
        close(listener);
        tcp_rank_close(&rank);
    }
}

/* The stream ends after each possible number of bytes: complete messages are received, the next one
 * fails with an error that names the peer. */
static void test_a_truncated_stream_is_an_error(void **unused)
{
    unsigned char bytes[2 * DISTI_TCP_FRAME_BYTES + 30];
    char first[10], second[20];
    size_t whole, size;

    (void)unused;
    whole = raw_message(bytes, 1, "0123456789", 10);
    size = whole + raw_message(bytes + whole, 2, "abcdefghijklmnopqrst", 20);
    for (size_t cut = 0; cut < size; cut++) {
        struct dist_request one, two, three;
        struct tcp_rank rank;
        int fd;

        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        fd = raw_join(&rank, 0);
        if (cut % 2)
            tcp_recv(&rank, &one, 0, 1, first, sizeof(first));
        tcp_recv(&rank, &two, 0, 2, second, sizeof(second));
        assert_true(raw_write(fd, bytes, cut));
        close(fd);
        assert_int_equal(tcp_finish(&rank, 1, &two), DIST_ERR_PEER_LOST);
        assert_non_null(strstr(dist_last_error(), "rank 1 lost rank 0 (127.0.0.1:"));
        if (!(cut % 2))
            tcp_recv(&rank, &one, 0, 1, first, sizeof(first));
        assert_int_equal(one.status, cut >= whole ? DIST_OK : DIST_ERR_PEER_LOST);
        if (cut >= whole)
            assert_memory_equal(first, "0123456789", 10);
        tcp_send(&rank, &three, 0, 3, first, sizeof(first));
        assert_int_equal(three.status, DIST_ERR_PEER_LOST);
        tcp_rank_close(&rank);
    }
}

/* A message of an impossible size must not make the receiver allocate memory. */
static void test_an_impossible_size_allocates_nothing(void **unused)
{
    static const uint64_t sizes[] = {UINT64_MAX, UINT64_MAX - 31, UINT64_C(1) << 63,
                                     UINT64_C(1) << 40};

    (void)unused;
    for (int i = 0; i < 16; i++) {
        unsigned char bytes[DISTI_TCP_FRAME_BYTES];
        struct dist_envelope envelope = {5, 1, sizes[i % 4]};
        bool posted = i % 8 < 4, rts = i < 8;
        struct dist_request request;
        struct tcp_rank rank;
        char place[100], text[200];
        int fd;

        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        fd = raw_join(&rank, 0);
        disti_tcp_frame_encode(rts ? DISTI_TCP_RTS : DISTI_TCP_MESSAGE, &envelope, bytes);
        if (posted)
            tcp_recv(&rank, &request, 0, 5, place, sizeof(place));
        assert_true(raw_write(fd, bytes, sizeof(bytes)));
        tcp_drive_ms(&rank, 1, 20);
        tcp->describe(rank.state, 0, text, sizeof(text));
        assert_non_null(strstr(text, " 0 held early"));
        if (!posted)
            tcp_recv(&rank, &request, 0, 5, place, sizeof(place));
        assert_int_equal(tcp_finish(&rank, 1, &request),
                         rts ? DIST_ERR_MISMATCH : DIST_ERR_PEER_LOST);
        if (rts)
            assert_true(request.arrived.bytes == sizes[i % 4]);
        close(fd);
        tcp_rank_close(&rank);
    }
}

/* Invalid frames, and a message after a goodbye. */
static void test_invalid_frames_end_the_connection(void **unused)
{
    static const int offsets[] = {0, 3, 4, 5, 6, 7};

    (void)unused;
    for (int i = 0; i < 8; i++) {
        unsigned char bytes[2 * DISTI_TCP_FRAME_BYTES + 4] = {0};
        struct dist_envelope none = {0, 0, 0};
        struct dist_request request;
        struct tcp_rank rank;
        int fd, value = 0;

        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        fd = raw_join(&rank, 0);
        tcp_recv(&rank, &request, 0, 5, &value, sizeof(value));
        disti_tcp_frame_encode(DISTI_TCP_GOODBYE, &none, bytes);
        if (i == 6)
            bytes[24] = 4;
        raw_message(bytes + (i == 7 ? DISTI_TCP_FRAME_BYTES : 0), 5, &value, sizeof(value));
        if (i < 6)
            bytes[offsets[i]] ^= 0x40;
        if (i == 6)
            disti_tcp_frame_encode(DISTI_TCP_GOODBYE, &(struct dist_envelope){1, 2, 4}, bytes);
        assert_true(raw_write(fd, bytes, sizeof(bytes)));
        assert_int_equal(tcp_finish(&rank, 1, &request), DIST_ERR_PEER_LOST);
        assert_int_equal(value, 0);
        close(fd);
        tcp_rank_close(&rank);
    }
}

/* A CTS without an RTS, and more credit than was used, are invalid. */
static void test_invalid_control_frames_end_the_connection(void **unused)
{
    static const struct {
        enum disti_tcp_kind kind;
        struct dist_envelope frame;
    } cases[] = {
        {DISTI_TCP_CTS, {0, 0, 0}},     {DISTI_TCP_CTS, {1, 1, 0}},
        {DISTI_TCP_CTS, {0, 2, 0}},     {DISTI_TCP_CTS, {0, 0, 1}},
        {DISTI_TCP_CREDIT, {0, 0, 0}},  {DISTI_TCP_CREDIT, {DISTI_TCP_MESSAGE_COST + 5, 0, 0}},
        {DISTI_TCP_CREDIT, {1, 1, 0}},  {DISTI_TCP_CREDIT, {UINT64_MAX, 0, 0}},
        {DISTI_TCP_STRIPE, {0, 0, 64}},
    };

    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned char bytes[DISTI_TCP_FRAME_BYTES];
        struct dist_request request, send;
        struct tcp_rank rank;
        int fd, value = 0;

        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        fd = raw_join(&rank, 0);
        tcp_send(&rank, &send, 0, 5, &value, sizeof(value));
        tcp_recv(&rank, &request, 0, 5, &value, sizeof(value));
        disti_tcp_frame_encode(DISTI_TCP_CREDIT,
                               &(struct dist_envelope){DISTI_TCP_MESSAGE_COST + 4, 0, 0}, bytes);
        if (i % 2)
            assert_true(raw_write(fd, bytes, sizeof(bytes)));
        tcp_drive_ms(&rank, 1, 10);
        assert_int_equal(request.status, DIST_IN_PROGRESS);
        disti_tcp_frame_encode(cases[i].kind, &cases[i].frame, bytes);
        assert_true(raw_write(fd, bytes, sizeof(bytes)));
        assert_int_equal(tcp_finish(&rank, 1, &request), DIST_ERR_PEER_LOST);
        assert_non_null(strstr(dist_last_error(), "not a message of libdist"));
        close(fd);
        tcp_rank_close(&rank);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_stream_may_be_split_anywhere),
        cmocka_unit_test(test_a_stream_may_arrive_byte_by_byte),
        cmocka_unit_test(test_an_answer_may_arrive_byte_by_byte),
        cmocka_unit_test(test_invalid_answers_are_refused),
        cmocka_unit_test(test_a_truncated_stream_is_an_error),
        cmocka_unit_test(test_an_impossible_size_allocates_nothing),
        cmocka_unit_test(test_invalid_control_frames_end_the_connection),
        cmocka_unit_test(test_a_closed_call_is_repeated),
        cmocka_unit_test(test_invalid_frames_end_the_connection),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
