/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's server and clients that are no ranks: invalid data, silence, single bytes. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "ranks.h"

#include "base/net.h"
#include "store/store.h"
#include "store/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>

#define WAIT_MS 30000

static struct disti_store_server *server;
static struct disti_store *stores[2];

static int open_job(void **state)
{
    (void)state;
    assert_int_equal(ranks_serve("127.0.0.1", 0, 3, &server), DIST_OK);
    for (int r = 0; r < 2; r++)
        assert_int_equal(
            ranks_connect("127.0.0.1", disti_store_server_port(server), r, 3, WAIT_MS, &stores[r]),
            DIST_OK);
    return 0;
}

/* The ranks are not affected by the clients, and the third rank can still join. */
static int close_job(void **state)
{
    struct disti_store *third;
    struct disti_notice notice;
    int64_t number;

    (void)state;
    assert_false(disti_store_notice(stores[0], &notice));
    for (int r = 0; r < 2; r++)
        assert_int_equal(disti_store_take_numbers(stores[r], 1, &number), DIST_OK);
    assert_int_equal(
        ranks_connect("127.0.0.1", disti_store_server_port(server), 2, 3, WAIT_MS, &third),
        DIST_OK);
    disti_store_close(third);
    for (int r = 0; r < 2; r++)
        disti_store_close(stores[r]);
    disti_store_server_stop(server, WAIT_MS);
    return 0;
}

static int open_connection(void)
{
    return ranks_open_connection(server);
}

static void put(int fd, const void *bytes, size_t count)
{
    (void)!send(fd, bytes, count, MSG_NOSIGNAL);
}

/* Expects that the server closes the connection within 1 s, well before the deadline of the
 * hello. */
static void expect_closed(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    char byte;
    ssize_t n;

    assert_int_equal(poll(&ready, 1, 1000), 1);
    n = recv(fd, &byte, 1, 0);
    assert_true(n == 0 || (n < 0 && errno == ECONNRESET));
    close(fd);
}

static void send_head(int fd, uint8_t op, uint32_t key_bytes, uint64_t value_bytes)
{
    struct disti_wire_head head = {
        .op = op, .id = 1, .arg = 1000, .key_bytes = key_bytes, .value_bytes = value_bytes};
    unsigned char bytes[DISTI_WIRE_HEAD];

    disti_wire_put_head(bytes, &head);
    put(fd, bytes, sizeof(bytes));
}

static void test_other_protocols_are_refused(void **state)
{
    static const char *const texts[] = {
        "GET / HTTP/1.1\r\n\r\n",
        "SSH-2.0-x\r\n",
        "\x16\x03\x01\x02",
        "DISU",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        int fd = open_connection();

        put(fd, texts[i], strlen(texts[i]));
        expect_closed(fd);
    }
}

static void test_huge_lengths_are_refused(void **state)
{
    static const uint64_t lengths[] = {4097, 1u << 30, UINT64_MAX, UINT64_MAX - 31, INT64_MAX};

    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        int fd = open_connection();

        send_head(fd, DISTI_WIRE_HELLO, 0, lengths[i]);
        expect_closed(fd);
        fd = open_connection();
        send_head(fd, DISTI_WIRE_HELLO, 256, lengths[i] - 256);
        send_head(fd, DISTI_WIRE_HELLO, 257, lengths[i]);
        close(fd);
        fd = open_connection();
        send_head(fd, DISTI_WIRE_NUMBERS, (uint32_t)lengths[i], 1);
        expect_closed(fd);
    }
}

static void test_malformed_hellos_are_refused(void **state)
{
    unsigned char bytes[DISTI_WIRE_ID];
    struct disti_wire_id id = {.rank = 2, .world_size = 3, .host = "h"};
    int fd;

    (void)state;
    /* Requests before the hello. */
    for (int op = 0; op < 256; op++) {
        if (op == DISTI_WIRE_HELLO)
            continue;
        fd = open_connection();
        send_head(fd, (uint8_t)op, 0, 0);
        expect_closed(fd);
    }
    /* A valid hello in which each byte is changed in turn, except numbers and the nonce. */
    disti_wire_put_id(bytes, &id);
    for (size_t i = 12; i < 240; i = i == 15 ? 48 : i + 1) {
        unsigned char kept = bytes[i];

        fd = open_connection();
        bytes[i] = 0x80;
        send_head(fd, DISTI_WIRE_HELLO, 0, sizeof(bytes));
        put(fd, bytes, sizeof(bytes));
        expect_closed(fd);
        bytes[i] = kept;
    }
    for (uint64_t length = 0; length < DISTI_WIRE_ID; length += 13) {
        fd = open_connection();
        send_head(fd, DISTI_WIRE_HELLO, 0, length);
        put(fd, bytes, (size_t)length);
        expect_closed(fd);
    }
}

static void test_incomplete_hellos_do_no_harm(void **state)
{
    int fds[20];

    (void)state;
    for (int i = 0; i < 20; i++) {
        fds[i] = open_connection();
        put(fds[i], "DIST\3\1", (size_t)i % 7);
    }
    for (int i = 0; i < 20; i++)
        close(fds[i]);
}

static void test_random_bytes_do_no_harm(void **state)
{
    unsigned seed = 1;

    (void)state;
    for (int i = 0; i < 500; i++) {
        unsigned char bytes[600];
        int fd = open_connection();

        for (size_t b = 0; b < sizeof(bytes); b++)
            bytes[b] = (unsigned char)rand_r(&seed);
        /* Half of them begin like a valid frame. */
        if (i % 2) {
            memcpy(bytes, "DIST\4", 5);
            memset(bytes + 20, 0, 12);
        }
        put(fd, bytes, (size_t)rand_r(&seed) % sizeof(bytes));
        close(fd);
    }
}

/* A client that has joined as rank 2 sends sequences of partly valid frames. */
static void member_sends_junk(unsigned *seed, int frames)
{
    unsigned char value[64];
    int fd = open_connection();

    assert_true(ranks_join(fd, 2, 3));
    for (int i = 0; i < frames; i++) {
        struct disti_wire_head head = {.op = (uint8_t)(rand_r(seed) % 10),
                                       .id = (uint32_t)rand_r(seed),
                                       .arg = rand_r(seed) % 20 - 10,
                                       .key_bytes = (uint32_t)rand_r(seed) % 5,
                                       .value_bytes = (uint64_t)(rand_r(seed) % 40)};
        unsigned char bytes[DISTI_WIRE_HEAD];

        /* A goodbye or a report would only end the job early. */
        if (head.op == DISTI_WIRE_GOODBYE || head.op == DISTI_WIRE_REPORT)
            continue;
        if (rand_r(seed) % 50 == 0)
            head.value_bytes = (uint64_t)rand_r(seed) << 20;
        for (size_t b = 0; b < sizeof(value); b++)
            value[b] = (unsigned char)(rand_r(seed) % 3 ? 0 : rand_r(seed));
        disti_wire_put_head(bytes, &head);
        put(fd, bytes, sizeof(bytes));
        put(fd, value, head.key_bytes + (head.value_bytes < 60 ? head.value_bytes : 9));
    }
    close(fd);
}

static void test_invalid_frames_of_a_rank_do_no_harm(void **state)
{
    unsigned seed = 7;

    (void)state;
    for (int i = 0; i < 100; i++) {
        struct disti_store_server *one;
        struct disti_store *store;
        struct disti_store_server *kept = server;
        int64_t number;

        assert_int_equal(ranks_serve("127.0.0.1", 0, 3, &one), DIST_OK);
        server = one;
        assert_int_equal(
            ranks_connect("127.0.0.1", disti_store_server_port(one), 0, 3, WAIT_MS, &store),
            DIST_OK);
        member_sends_junk(&seed, 1 + i % 30);
        /* The server still works; the frames may have used numbers. */
        assert_int_equal(disti_store_take_numbers(store, 1, &number), DIST_OK);
        disti_store_close(store);
        disti_store_server_stop(one, 1000);
        server = kept;
    }
}

/* A client withdraws its hello and connects again: by then the store has read both. */
static void test_a_hello_can_be_withdrawn(void **state)
{
    struct disti_wire_head head = {.op = DISTI_WIRE_GOODBYE, .arg = DISTI_WIRE_WITHDRAW};
    unsigned char bytes[DISTI_WIRE_HEAD];
    struct disti_wire_handshake handshake = {0};
    int fd = open_connection();
    int64_t number;

    (void)state;
    assert_true(ranks_join(fd, 2, 3));
    disti_wire_put_head(bytes, &head);
    put(fd, bytes, sizeof(bytes));
    close(fd);
    fd = open_connection();
    ranks_send_hello(fd, &handshake, 2, 3);
    put(fd, bytes, sizeof(bytes));
    close(fd);
    assert_int_equal(disti_store_take_numbers(stores[0], 1, &number), DIST_OK);
}

static void put_slowly(int fd, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        put(fd, bytes + i, 1);
        if (i % 8 == 0)
            disti_sleep_ns(200000);
    }
}

/* Frames that arrive byte by byte are processed. */
static void test_frames_may_arrive_byte_by_byte(void **state)
{
    static const struct disti_secret none;
    unsigned char frame[2 * DISTI_WIRE_HEAD + DISTI_WIRE_ID], reply[512];
    struct disti_wire_head head = {.op = DISTI_WIRE_HELLO, .id = 9, .value_bytes = DISTI_WIRE_ID};
    struct disti_wire_handshake handshake = {0};
    size_t bytes, at = DISTI_WIRE_HEAD + DISTI_HMAC_BYTES;
    int fd = open_connection();

    (void)state;
    ranks_pack_hello(&handshake, 2, 3);
    disti_wire_put_head(frame, &head);
    memcpy(frame + DISTI_WIRE_HEAD, handshake.hello, DISTI_WIRE_ID);
    put_slowly(fd, frame, DISTI_WIRE_HEAD + DISTI_WIRE_ID);
    assert_true(ranks_read_challenge(fd, &handshake));
    head =
        (struct disti_wire_head){.op = DISTI_WIRE_PROOF, .id = 10, .value_bytes = DISTI_HMAC_BYTES};
    disti_wire_put_head(frame, &head);
    disti_wire_prove_client(&handshake, &none, frame + DISTI_WIRE_HEAD);
    head = (struct disti_wire_head){.op = DISTI_WIRE_SEEN, .id = 11, .key_bytes = 4};
    disti_wire_put_head(frame + at, &head);
    memcpy(frame + at + DISTI_WIRE_HEAD, "host", 4);
    put_slowly(fd, frame, at + DISTI_WIRE_HEAD + 4);
    assert_int_equal(ranks_read_reply(fd, reply, sizeof(reply), &bytes), DIST_OK);
    assert_int_equal(bytes, DISTI_WIRE_WELCOME);
    assert_int_equal(ranks_read_reply(fd, reply, sizeof(reply), &bytes), DIST_OK);
    head = (struct disti_wire_head){.op = DISTI_WIRE_GOODBYE};
    disti_wire_put_head(frame, &head);
    put(fd, frame, DISTI_WIRE_HEAD);
    expect_closed(fd);
}

/* After the goodbye in the test, rank 2 has left, and the other ranks are notified. */
static int close_after_goodbye(void **state)
{
    struct disti_notice notice;

    (void)state;
    assert_true(disti_store_notice(stores[0], &notice));
    assert_true(notice.rank == 2 && notice.graceful);
    for (int r = 0; r < 2; r++)
        disti_store_close(stores[r]);
    disti_store_server_stop(server, WAIT_MS);
    return 0;
}

/* A rank connects to a port on which another program listens. */
static void connect_to_other_program(const void *reply, size_t bytes, bool closes, int timeout_ms)
{
    struct disti_store *store = NULL;
    int64_t begin = disti_now_ns();
    char buffer[32];
    int fd, listener, port;
    pid_t child;

    assert_int_equal(disti_listen("127.0.0.1", 0, 0, &listener, &port), DIST_OK);
    fd = dup(listener); /* the library's descriptor is closed in a child */
    disti_descriptor_close(listener);
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        prctl(PR_SET_PDEATHSIG, SIGKILL); /* if the test is killed */
        for (;;) {
            int client;

            poll(&ready, 1, -1);
            client = accept(fd, NULL, NULL);
            put(client, reply, bytes);
            if (closes)
                close(client);
        }
    }
    close(fd);
    assert_int_equal(ranks_connect("127.0.0.1", port, 1, 2, timeout_ms, &store),
                     DIST_ERR_RENDEZVOUS);
    assert_null(store);
    snprintf(buffer, sizeof(buffer), "127.0.0.1 port %d", port);
    assert_non_null(strstr(dist_last_error(), buffer));
    assert_true(disti_now_ns() - begin < UNIT_SOON_NS);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void test_other_servers_are_reported(void **state)
{
    (void)state;
    connect_to_other_program("SSH-2.0-OpenSSH\r\n", 17, false, 60000);
    connect_to_other_program("", 0, true, 500);
    connect_to_other_program("", 0, false, 500);
}

/* Notices from a server that has not proved that it is the store are ignored. */
static void test_notices_before_the_proof_are_ignored(void **state)
{
    const struct disti_wire_head head = {.op = DISTI_WIRE_NOTICE, .value_bytes = DISTI_WIRE_NEWS};
    unsigned char notice[DISTI_WIRE_HEAD + DISTI_WIRE_NEWS] = {0};

    (void)state;
    disti_wire_put_head(notice, &head);
    connect_to_other_program(notice, sizeof(notice), false, 60000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_protocols_are_refused, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_huge_lengths_are_refused, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_malformed_hellos_are_refused, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_incomplete_hellos_do_no_harm, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_random_bytes_do_no_harm, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_invalid_frames_of_a_rank_do_no_harm, open_job,
                                        close_job),
        cmocka_unit_test_setup_teardown(test_a_hello_can_be_withdrawn, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_frames_may_arrive_byte_by_byte, open_job,
                                        close_after_goodbye),
        cmocka_unit_test(test_other_servers_are_reported),
        cmocka_unit_test(test_notices_before_the_proof_are_ignored),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
