/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A rank of three at the tcp transport, called by a stranger on up to three sockets of a pair. A
 * byte says what comes:
 *
 *     bits 0, 1   the socket
 *     bits 2, 3   0: bytes as they are   1: a frame   2: a hello that is right   3: hangs up
 *     bit 4       the rank posts a receive before
 */
#include "tests/fuzz/fuzz.h"

#include "backends/registry.h"
#include "base/hash.h"
#include "transports/tcp/tcp.h"
#include "transports/tcp/wire.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TCP_SOCKETS 3
#define TCP_RECEIVES 8
#define TCP_ROOM 256
#define TCP_JOB "fuzz"
#define TCP_TURNS 3

static const struct dist_transport *const tcp = &disti_transport_tcp;

struct tcp_fuzz {
    void *state;
    int port, sockets[TCP_SOCKETS];
    struct dist_request receives[TCP_RECEIVES];
    unsigned char room[TCP_RECEIVES][TCP_ROOM];
    int posted;
};

static void tcp_open(struct tcp_fuzz *fuzz)
{
    static const struct dist_transport_config config = {.size = sizeof(config),
                                                        .rank = 1,
                                                        .world_size = 3,
                                                        .timeout_ms = 60000,
                                                        .job = TCP_JOB,
                                                        .bind_host = "127.0.0.1",
                                                        .local_ranks = 3,
                                                        .host = &disti_host};
    unsigned char blob[DIST_ADDRESS_MAX];
    struct disti_tcp_address own;
    size_t bytes;

    *fuzz = (struct tcp_fuzz){.sockets = {-1, -1, -1}};
    fuzz->state = calloc(1, tcp->state_size);
    FUZZ_MUST(fuzz->state && tcp->open(fuzz->state, &config) == DIST_OK);
    FUZZ_MUST(tcp->address(fuzz->state, blob, &bytes) == DIST_OK);
    FUZZ_MUST(disti_tcp_address_decode(blob, bytes, &own));
    fuzz->port = own.endpoint[0].port;
    own.sockets = TCP_SOCKETS;
    bytes = disti_tcp_address_encode(&own, blob);
    /* The address is never called: we are the ones who call. */
    FUZZ_MUST(tcp->connect(fuzz->state, 0, blob, bytes) == DIST_OK);
}

static void tcp_drive(struct tcp_fuzz *fuzz)
{
    for (int i = 0; i < TCP_TURNS; i++)
        FUZZ_MUST(tcp->progress(fuzz->state) >= 0);
}

static void tcp_post(struct tcp_fuzz *fuzz)
{
    struct dist_request *request = &fuzz->receives[fuzz->posted];
    size_t bytes = (size_t)(fuzz->posted % 4) * 64;

    if (fuzz->posted == TCP_RECEIVES)
        return;
    request->status = DIST_IN_PROGRESS;
    request->envelope = (struct dist_envelope){(uint64_t)fuzz->posted % 2, 1, bytes};
    request->sink.dst = fuzz->room[fuzz->posted];
    request->sink.bytes = bytes;
    fuzz->posted++;
    tcp->recv(fuzz->state, request);
}

static void tcp_hello(int fd, int socket)
{
    struct disti_tcp_hello hello = {.world_size = 3,
                                    .to = 1,
                                    .credit = 1 << 20,
                                    .job = disti_hash_text(DISTI_HASH_START, TCP_JOB),
                                    .socket = socket};
    unsigned char bytes[DISTI_TCP_HELLO_BYTES];

    disti_tcp_hello_encode(&hello, bytes);
    fuzz_send(fd, bytes, sizeof(bytes));
}

/* Numbers of up to two bytes, so that frames are about each other; the payload is zeroes. */
static void tcp_frame(int fd, struct fuzz_input *input)
{
    unsigned char frame[DISTI_TCP_FRAME_BYTES + TCP_ROOM] = {0};
    uint8_t kind = fuzz_byte(input), shift = fuzz_byte(input), payload;
    struct dist_envelope envelope = {fuzz_byte(input), 0, 0};

    envelope.fingerprint = (uint64_t)fuzz_byte(input) << (shift & 15);
    envelope.bytes = (uint64_t)fuzz_byte(input) << (shift >> 4);
    payload = fuzz_byte(input);
    disti_tcp_frame_encode((enum disti_tcp_kind)kind, &envelope, frame);
    fuzz_send(fd, frame, DISTI_TCP_FRAME_BYTES + payload);
}

static void tcp_act(struct tcp_fuzz *fuzz, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input), which = (what & 3) % TCP_SOCKETS;
    int *fd = &fuzz->sockets[which];
    struct fuzz_input piece;

    if (what & 16)
        tcp_post(fuzz);
    if (*fd < 0)
        *fd = fuzz_connect(fuzz->port);
    switch (what >> 2 & 3) {
    case 0:
        piece = fuzz_take(input, fuzz_byte(input));
        fuzz_send(*fd, piece.at, piece.left);
        break;
    case 1:
        tcp_frame(*fd, input);
        break;
    case 2:
        tcp_hello(*fd, which);
        break;
    default:
        fuzz_hang_up(*fd);
        *fd = -1;
    }
}

void fuzz_tcp(struct fuzz_input *input)
{
    struct tcp_fuzz fuzz;

    tcp_open(&fuzz);
    while (input->left) {
        tcp_act(&fuzz, input);
        tcp_drive(&fuzz);
    }
    for (int i = 0; i < TCP_SOCKETS; i++)
        fuzz_hang_up(fuzz.sockets[i]);
    tcp_drive(&fuzz);
    tcp->close(fuzz.state);
    free(fuzz.state);
}
