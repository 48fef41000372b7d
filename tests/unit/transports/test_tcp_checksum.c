/* SPDX-License-Identifier: BSD-3-Clause */
/* DIST_CHECKSUM: valid data arrive, and every bit that is changed in transit is detected. */
#include "base/kernels/crc32c.h"
#include "tcp_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define BODY 16

/* Exchanges messages of sizes around those of frames, elements, progress calls and stripes. */
static void exchange(void)
{
    static const size_t sizes[] = {0, 1, 7, 8, 31, 1000, 65536, 65543, 1 << 20, (3 << 20) + 5};
    struct tcp_rank pair[2];

    tcp_pair_open(pair, "127.0.0.1");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        tcp_exchange(pair, sizes[i]);
    tcp_pair_close(pair);
}

static void test_valid_data_arrive(void **state)
{
    (void)state;
    exchange();
    setenv("DIST_TCP_SOCKETS", "3", 1);
    exchange();
    unsetenv("DIST_TCP_SOCKETS");
    setenv("DIST_TCP_ZEROCOPY", "on", 1);
    exchange();
    unsetenv("DIST_TCP_ZEROCOPY");
    setenv("DIST_TCP_EARLY_LIMIT", "64K", 1); /* most messages use RTS and CTS */
    exchange();
    unsetenv("DIST_TCP_EARLY_LIMIT");
}

/* Encodes a message with its checksum. Returns its length. */
static size_t encode_with_checksum(unsigned char *bytes)
{
    size_t size = raw_message(bytes, 2, "0123456789abcdef", BODY);

    disti_tcp_frame_put_sum(
        bytes, disti_crc32c(0, bytes + DISTI_TCP_SUM_BYTES, size - DISTI_TCP_SUM_BYTES));
    return size;
}

/* Sends a message in which bit `flip` is changed; -1: none. Returns the status of its receive. */
static dist_status receive(int flip, char *body)
{
    unsigned char bytes[DISTI_TCP_FRAME_BYTES + BODY];
    struct dist_request request;
    struct tcp_rank rank;
    size_t size = encode_with_checksum(bytes);
    dist_status status;
    int fd;

    if (flip >= 0)
        bytes[flip / 8] ^= (unsigned char)(1 << flip % 8);
    tcp_rank_open(&rank, 1, 2, "127.0.0.1");
    fd = raw_join(&rank, 0);
    tcp_recv(&rank, &request, 0, 2, body, BODY);
    assert_true(raw_write(fd, bytes, size));
    close(fd);
    status = tcp_finish(&rank, 1, &request);
    tcp_rank_close(&rank);
    return status;
}

static void test_changed_bits_are_detected(void **state)
{
    int bits = 8 * (DISTI_TCP_FRAME_BYTES + BODY), detected = 0;
    char body[BODY];

    (void)state;
    assert_int_equal(receive(-1, body), DIST_OK);
    assert_memory_equal(body, "0123456789abcdef", BODY);
    for (int flip = 0; flip < bits; flip++) {
        dist_status status = receive(flip, body);

        if (status == DIST_ERR_MISMATCH) /* a different length or operation number */
            continue;
        assert_int_equal(status, DIST_ERR_PEER_LOST);
        assert_non_null(strstr(dist_last_error(), "rank 1 lost rank 0"));
        detected += strstr(dist_last_error(), "DIST_CHECKSUM") != NULL;
    }
    assert_true(detected >= 8 * BODY); /* the whole body; a changed header may fail otherwise */
}

/* A reducing receive is posted after part of the message has arrived, which may end within an
 * element. */
static void test_a_partly_received_message_is_checked(void **state)
{
    const float theirs[BODY / sizeof(float)] = {1, 2, 3, 4}, expected[] = {11, 22, 33, 44};
    unsigned char bytes[DISTI_TCP_FRAME_BYTES + BODY];
    size_t size = raw_message(bytes, 2, theirs, BODY);

    (void)state;
    disti_tcp_frame_put_sum(
        bytes, disti_crc32c(0, bytes + DISTI_TCP_SUM_BYTES, size - DISTI_TCP_SUM_BYTES));
    for (size_t arrived = 0; arrived <= BODY; arrived++) {
        float sum[] = {10, 20, 30, 40};
        struct dist_request request = {
            .peer = 0,
            .envelope = {.tag = 2, .bytes = BODY, .fingerprint = 1},
            .status = DIST_IN_PROGRESS,
            .sink = {.dst = sum, .src = sum, .bytes = BODY, .dtype = DIST_FLOAT32, .op = DIST_SUM}};
        struct tcp_rank rank;
        int fd;

        tcp_rank_open(&rank, 1, 2, "127.0.0.1");
        fd = raw_join(&rank, 0);
        assert_true(raw_write(fd, bytes, DISTI_TCP_FRAME_BYTES + arrived));
        tcp_drive_ms(&rank, 1, 20);
        disti_transport_tcp.recv(rank.state, &request);
        assert_true(raw_write(fd, bytes + DISTI_TCP_FRAME_BYTES + arrived, BODY - arrived));
        assert_int_equal(tcp_finish(&rank, 1, &request), DIST_OK);
        assert_memory_equal(sum, expected, BODY);
        close(fd);
        tcp_rank_close(&rank);
    }
}

/* If only one of the ranks uses checksums, nothing is sent. */
static void test_ranks_must_agree_on_checksums(void **state)
{
    struct tcp_rank pair[2];
    struct dist_request request;
    char body[BODY] = "";

    (void)state;
    tcp_rank_open(&pair[0], 0, 2, "127.0.0.1");
    unsetenv("DIST_CHECKSUM");
    tcp_rank_open(&pair[1], 1, 2, "127.0.0.1");
    setenv("DIST_CHECKSUM", "1", 1);
    assert_int_equal(
        disti_transport_tcp.connect(pair[0].state, 1, pair[1].blob, pair[1].blob_bytes), DIST_OK);
    assert_int_equal(
        disti_transport_tcp.connect(pair[1].state, 0, pair[0].blob, pair[0].blob_bytes), DIST_OK);
    tcp_send(&pair[0], &request, 1, 5, body, sizeof(body));
    tcp_drive_ms(pair, 2, 300); /* the caller repeats its call until the deadline */
    assert_int_not_equal(request.status, DIST_OK);
    tcp_pair_close(pair);
}

static void test_a_bad_setting_is_rejected(void **state)
{
    struct tcp_rank rank;

    (void)state;
    setenv("DIST_CHECKSUM", "yes", 1);
    memset(&rank, 0, sizeof(rank));
    rank.state = calloc(1, disti_transport_tcp.state_size);
    rank.config = (struct dist_transport_config){.size = sizeof(rank.config),
                                                 .world_size = 2,
                                                 .timeout_ms = 1000,
                                                 .job = TCP_TEST_JOB,
                                                 .bind_host = "127.0.0.1",
                                                 .local_ranks = 1};
    assert_int_equal(disti_transport_tcp.open(rank.state, &rank.config), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_CHECKSUM"));
    disti_transport_tcp.close(rank.state);
    free(rank.state);
    setenv("DIST_CHECKSUM", "1", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_valid_data_arrive),
        cmocka_unit_test(test_changed_bits_are_detected),
        cmocka_unit_test(test_a_partly_received_message_is_checked),
        cmocka_unit_test(test_ranks_must_agree_on_checksums),
        cmocka_unit_test(test_a_bad_setting_is_rejected),
    };

    setenv("DIST_CHECKSUM", "1", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
