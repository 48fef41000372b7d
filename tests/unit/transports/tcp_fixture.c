/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of the tcp transport in one thread, and a client that implements the protocol itself. */
#include "tcp_fixture.h"

#include "base/clock.h"
#include "base/hash.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define FIXTURE_LIMIT_MS 20000

static const struct dist_transport *const tcp = &disti_transport_tcp;

int tcp_timeout_ms = FIXTURE_LIMIT_MS;
const struct disti_secret *tcp_key;

void tcp_rank_open(struct tcp_rank *rank, int number, int world, const char *host)
{
    memset(rank, 0, sizeof(*rank));
    rank->config = (struct dist_transport_config){
        .size = sizeof(rank->config),
        .rank = number,
        .world_size = world,
        .timeout_ms = tcp_timeout_ms,
        .job = TCP_TEST_JOB,
        .bind_host = host,
        .local_ranks = world,
        .secret = tcp_key ? tcp_key->bytes : NULL,
        .secret_bytes = tcp_key ? tcp_key->length : 0,
    };
    rank->state = calloc(1, tcp->state_size);
    assert_non_null(rank->state);
    assert_int_equal(tcp->open(rank->state, &rank->config), DIST_OK);
    assert_int_equal(tcp->address(rank->state, rank->blob, &rank->blob_bytes), DIST_OK);
}

void tcp_rank_close(struct tcp_rank *rank)
{
    tcp->close(rank->state);
    free(rank->state);
}

void tcp_pair_open(struct tcp_rank pair[2], const char *host)
{
    for (int i = 0; i < 2; i++)
        tcp_rank_open(&pair[i], i, 2, host);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            tcp->connect(pair[i].state, 1 - i, pair[1 - i].blob, pair[1 - i].blob_bytes), DIST_OK);
}

void tcp_pair_close(struct tcp_rank pair[2])
{
    tcp_rank_close(&pair[0]);
    tcp_rank_close(&pair[1]);
}

static void tcp_prepare(struct dist_request *request, int peer, uint64_t tag, size_t bytes)
{
    memset(request, 0, sizeof(*request));
    request->status = DIST_IN_PROGRESS;
    request->peer = peer;
    request->envelope = (struct dist_envelope){tag, 1, bytes};
}

void tcp_send(struct tcp_rank *rank, struct dist_request *request, int peer, uint64_t tag,
              const void *data, size_t bytes)
{
    tcp_prepare(request, peer, tag, bytes);
    request->data = data;
    tcp->send(rank->state, request);
}

void tcp_recv(struct tcp_rank *rank, struct dist_request *request, int peer, uint64_t tag,
              void *dst, size_t bytes)
{
    tcp_prepare(request, peer, tag, bytes);
    request->sink.dst = dst;
    request->sink.bytes = bytes;
    tcp->recv(rank->state, request);
}

void tcp_drive(struct tcp_rank *ranks, int count)
{
    for (int i = 0; i < count; i++)
        assert_true(tcp->progress(ranks[i].state) >= 0);
}

void tcp_drive_ms(struct tcp_rank *ranks, int count, int ms)
{
    int64_t deadline = disti_deadline_ms(ms);

    while (!disti_expired(deadline)) {
        tcp_drive(ranks, count);
        disti_sleep_ns(100 * 1000);
    }
}

dist_status tcp_finish(struct tcp_rank *ranks, int count, const struct dist_request *request)
{
    int64_t deadline = disti_deadline_ms(FIXTURE_LIMIT_MS);

    while (request->status == DIST_IN_PROGRESS && !disti_expired(deadline))
        tcp_drive(ranks, count);
    return request->status;
}

void tcp_exchange(struct tcp_rank pair[2], size_t bytes)
{
    struct dist_request requests[4];
    unsigned char *out = malloc(2 * bytes + 1), *in = calloc(2, bytes + 1);

    assert_true(out && in);
    for (size_t i = 0; i < 2 * bytes; i++)
        out[i] = (unsigned char)(i * 7 + i / 251);
    for (int i = 0; i < 2; i++) {
        tcp_recv(&pair[i], &requests[2 * i], 1 - i, 5, in + (size_t)i * bytes, bytes);
        tcp_send(&pair[i], &requests[2 * i + 1], 1 - i, 5, out + (size_t)(1 - i) * bytes, bytes);
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(tcp_finish(pair, 2, &requests[i]), DIST_OK);
    assert_memory_equal(in, out, 2 * bytes);
    free(out);
    free(in);
}

bool tcp_host_usable(const char *host)
{
    struct dist_transport_config config = {.size = sizeof(config),
                                           .world_size = 1,
                                           .timeout_ms = FIXTURE_LIMIT_MS,
                                           .job = TCP_TEST_JOB,
                                           .bind_host = host,
                                           .local_ranks = 1};
    void *state = calloc(1, tcp->state_size);
    bool usable = state && tcp->open(state, &config) == DIST_OK;

    if (state)
        tcp->close(state);
    free(state);
    return usable;
}

int tcp_count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

int raw_connect(const struct tcp_rank *rank)
{
    struct disti_tcp_address own;
    struct sockaddr_in address = {.sin_family = AF_INET};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_true(disti_tcp_address_decode(rank->blob, rank->blob_bytes, &own));
    address.sin_port = htons(own.endpoint[0].port);
    memcpy(&address.sin_addr, own.endpoint[0].host, 4);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

int raw_listen(struct tcp_rank *rank, int as)
{
    struct disti_tcp_address own;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    unsigned char blob[DISTI_TCP_ADDRESS_BYTES];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    assert_true(disti_tcp_address_decode(rank->blob, rank->blob_bytes, &own));
    own.endpoint[0].port = ntohs(address.sin_port);
    assert_int_equal(disti_tcp_address_encode(&own, blob), sizeof(blob));
    assert_int_equal(tcp->connect(rank->state, as, blob, sizeof(blob)), DIST_OK);
    return fd;
}

bool raw_write(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes) {
        ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        at += sent;
        bytes -= (size_t)sent;
    }
    return true;
}

size_t raw_hello(unsigned char *bytes, int from, int to, int world)
{
    struct disti_tcp_hello hello = {.world_size = (uint32_t)world,
                                    .from = (uint32_t)from,
                                    .to = (uint32_t)to,
                                    .credit = RAW_CREDIT,
                                    .job = disti_hash_text(DISTI_HASH_START, TCP_TEST_JOB),
                                    .checksum = getenv("DIST_CHECKSUM") != NULL};

    memset(hello.nonce, 7 + from, sizeof(hello.nonce));
    disti_tcp_hello_encode(&hello, bytes);
    return DISTI_TCP_HELLO_BYTES;
}

/* Flags in the byte of the step. */
#define RAW_FLAGS 0x80

void raw_prove(unsigned char *bytes, enum disti_tcp_step step, const unsigned char *received)
{
    static const struct disti_secret none;

    bytes[10] = (unsigned char)((bytes[10] & RAW_FLAGS) | step);
    disti_tcp_hello_prove(&none, bytes, received + 40, NULL, bytes + 72);
}

void raw_read_hello(struct tcp_rank *rank, int fd, unsigned char *bytes, enum disti_tcp_step step)
{
    int64_t deadline = disti_deadline_ms(FIXTURE_LIMIT_MS);
    size_t have = 0;

    while (have < DISTI_TCP_HELLO_BYTES) {
        ssize_t got;

        tcp_drive(rank, 1);
        got = recv(fd, bytes + have, DISTI_TCP_HELLO_BYTES - have, MSG_DONTWAIT);
        assert_true(got != 0 && !disti_expired(deadline));
        have += got > 0 ? (size_t)got : 0;
    }
    assert_int_equal(bytes[10] & ~RAW_FLAGS, step);
}

void raw_call(struct tcp_rank *rank, int fd, int as, int number)
{
    unsigned char hello[DISTI_TCP_HELLO_BYTES], received[DISTI_TCP_HELLO_BYTES];

    raw_hello(hello, as, rank->config.rank, rank->config.world_size);
    hello[11] = (unsigned char)number;
    assert_true(raw_write(fd, hello, sizeof(hello)));
    raw_read_hello(rank, fd, received, DISTI_TCP_CHALLENGE);
    raw_prove(hello, DISTI_TCP_PROOF, received);
    assert_true(raw_write(fd, hello, sizeof(hello)));
}

size_t raw_answer_call(struct tcp_rank *rank, int fd, int as, unsigned char *bytes)
{
    unsigned char received[DISTI_TCP_HELLO_BYTES];

    raw_read_hello(rank, fd, received, DISTI_TCP_CALL);
    raw_hello(bytes, as, rank->config.rank, rank->config.world_size);
    bytes[10] = (unsigned char)((bytes[10] & RAW_FLAGS) | DISTI_TCP_CHALLENGE);
    bytes[11] = received[11];
    assert_true(raw_write(fd, bytes, DISTI_TCP_HELLO_BYTES));
    raw_read_hello(rank, fd, received, DISTI_TCP_PROOF);
    raw_prove(bytes, DISTI_TCP_ANSWER, received);
    return DISTI_TCP_HELLO_BYTES;
}

size_t raw_message(unsigned char *bytes, uint64_t tag, const void *data, size_t size)
{
    struct dist_envelope envelope = {tag, 1, size};

    disti_tcp_frame_encode(DISTI_TCP_MESSAGE, &envelope, bytes);
    if (size)
        memcpy(bytes + DISTI_TCP_FRAME_BYTES, data, size);
    return DISTI_TCP_FRAME_BYTES + size;
}

int raw_join(struct tcp_rank *rank, int as)
{
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    int fd = raw_connect(rank);

    /* This rank never calls the address, because the client calls first. */
    assert_int_equal(tcp->connect(rank->state, as, rank->blob, rank->blob_bytes), DIST_OK);
    raw_call(rank, fd, as, 0);
    raw_read_hello(rank, fd, hello, DISTI_TCP_ANSWER);
    return fd;
}

bool raw_is_closed(struct tcp_rank *ranks, int count, int fd)
{
    int64_t deadline = disti_deadline_ms(FIXTURE_LIMIT_MS);
    char byte;

    while (!disti_expired(deadline)) {
        ssize_t got;

        tcp_drive(ranks, count);
        got = recv(fd, &byte, 1, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN))
            return true;
    }
    return false;
}
