/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 1 of three uses the tcp transport. A stranger plays the two other ranks on up to three
 * sockets: as rank 0 it connects to rank 1, as rank 2 it accepts connections of rank 1. The first
 * byte configures the world:
 *
 *     bit 0       frames have checksums
 *     bit 1       the world has a token, which the stranger has too
 *     bit 2       nothing listens at the address of rank 2
 *     bit 3       the stranger's frames have wrong checksums, as if they were damaged
 *     bit 4       at the address of rank 2 the stranger answers as another rank
 *     bit 5       at the address of rank 2 the stranger does not prove its identity
 *
 * One more byte for each event:
 *
 *     bits 0, 1   the socket
 *     bits 2, 3   0: sends raw bytes   1: sends a frame   2: handshake   3: closes the socket
 *     bit 4       before the event, rank 1 posts a receive
 *     bits 5, 6   event 2: 0: connects again, and joins   1: sends the first message only
 *                 2: sends the proof for the last nonce received, also when none is expected
 *                 3: makes rank 1 connect, and answers correctly
 *     bit 5       event 3: in place of closing, rank 1 probes messages, and cancels some
 *     bit 6       event 3: in place of closing, time passes
 *     bit 7       before the event, rank 1 sends a message
 */
#include "tests/fuzz/fuzz.h"

#include "backends/registry.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/kernels/crc32c.h"
#include "transports/tcp/tcp.h"
#include "transports/tcp/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TCP_SOCKETS 3
#define TCP_RECEIVES 8
#define TCP_ROOM 256
#define TCP_JOB "fuzz"
#define TCP_TURNS 3
#define TCP_PATIENCE_MS 20000
#define TCP_LATER_S 70 /* more than the rank's timeout */
#define TCP_CALLER 0
#define TCP_RANK 1
#define TCP_CALLED 2

#define TCP_CHECKSUM 1
#define TCP_SECRET 2
#define TCP_NOBODY 4
#define TCP_DAMAGED 8
#define TCP_OTHER 16
#define TCP_UNPROVEN 32

static const struct dist_transport *const tcp = &disti_transport_tcp;
/* Longer than a block of the hash. */
static const uint8_t tcp_key[80] = "the key of this world";

struct tcp_line {
    int fd;
    uint32_t as; /* the rank that the stranger pretends to be */
    unsigned char nonce[DISTI_NONCE_BYTES];
};

struct tcp_fuzz {
    struct dist_transport_config config;
    void *state;
    int port, listen_fd;
    struct tcp_line lines[TCP_SOCKETS];
    struct dist_request receives[TCP_RECEIVES], sends[TCP_RECEIVES];
    unsigned char room[TCP_RECEIVES][TCP_ROOM], data[TCP_ROOM];
    int posted, sent;
    uint8_t how; /* configuration of the world */
    struct disti_secret secret;
    bool proved; /* the stranger has proved once that it is a rank */
};

static void tcp_open(struct tcp_fuzz *fuzz, uint8_t how)
{
    struct dist_transport_config config = {.size = sizeof(config),
                                           .rank = TCP_RANK,
                                           .world_size = 3,
                                           .timeout_ms = 60000,
                                           .job = TCP_JOB,
                                           .bind_host = "127.0.0.1",
                                           .local_ranks = 3,
                                           .host = &disti_host};
    unsigned char blob[DIST_ADDRESS_MAX];
    struct disti_tcp_address own;
    size_t bytes;
    int port;

    *fuzz = (struct tcp_fuzz){.lines = {{.fd = -1}, {.fd = -1}, {.fd = -1}}, .how = how};
    if (how & TCP_SECRET) {
        config.secret = tcp_key;
        config.secret_bytes = sizeof(tcp_key);
        disti_secret_set_bytes(&fuzz->secret, tcp_key, sizeof(tcp_key));
    }
    fuzz->config = config; /* must live as long as the transport is open */
    setenv("DIST_CHECKSUM", how & TCP_CHECKSUM ? "1" : "0", 1);
    fuzz->state = calloc(1, tcp->state_size);
    FUZZ_MUST(fuzz->state && tcp->open(fuzz->state, &fuzz->config) == DIST_OK);
    FUZZ_MUST(tcp->address(fuzz->state, blob, &bytes) == DIST_OK);
    FUZZ_MUST(disti_tcp_address_decode(blob, bytes, &own));
    fuzz->port = own.endpoint[0].port;
    own.sockets = TCP_SOCKETS;
    bytes = disti_tcp_address_encode(&own, blob);
    /* The rank never connects to this address: the stranger calls. */
    FUZZ_MUST(tcp->connect(fuzz->state, TCP_CALLER, blob, bytes) == DIST_OK);
    fuzz->listen_fd = fuzz_listen(&port);
    own.endpoint[0].port = (uint16_t)port;
    if (how & TCP_NOBODY)
        close(fuzz->listen_fd);
    if (how & TCP_NOBODY)
        fuzz->listen_fd = -1;
    bytes = disti_tcp_address_encode(&own, blob);
    FUZZ_MUST(tcp->connect(fuzz->state, TCP_CALLED, blob, bytes) == DIST_OK);
}

static void tcp_drive(struct tcp_fuzz *fuzz)
{
    for (int i = 0; i < TCP_TURNS; i++)
        FUZZ_MUST(tcp->progress(fuzz->state) >= 0);
}

static void tcp_post(struct tcp_fuzz *fuzz, int peer)
{
    struct dist_request *request = &fuzz->receives[fuzz->posted];
    size_t bytes = (size_t)(fuzz->posted % 4) * 64;

    if (fuzz->posted == TCP_RECEIVES)
        return;
    request->status = DIST_IN_PROGRESS;
    request->peer = peer;
    request->envelope = (struct dist_envelope){(uint64_t)fuzz->posted % 2, 1, bytes};
    request->sink.dst = fuzz->room[fuzz->posted];
    request->sink.bytes = bytes;
    fuzz->posted++;
    tcp->recv(fuzz->state, request);
}

static void tcp_send(struct tcp_fuzz *fuzz, int peer)
{
    struct dist_request *request = &fuzz->sends[fuzz->sent];
    size_t bytes = (size_t)(fuzz->sent % 4) * 64;

    if (fuzz->sent == TCP_RECEIVES)
        return;
    request->status = DIST_IN_PROGRESS;
    request->peer = peer;
    request->envelope = (struct dist_envelope){(uint64_t)fuzz->sent % 2, 1, bytes};
    request->data = fuzz->data;
    fuzz->sent++;
    tcp->send(fuzz->state, request);
}

static void tcp_hello(const struct tcp_fuzz *fuzz, const struct tcp_line *line, int socket,
                      enum disti_tcp_step step)
{
    struct disti_tcp_hello hello = {.world_size = 3,
                                    .from = line->as,
                                    .to = TCP_RANK,
                                    .credit = 1 << 20,
                                    .job = disti_hash_text(DISTI_HASH_START, TCP_JOB),
                                    .socket = socket,
                                    .checksum = fuzz->how & TCP_CHECKSUM,
                                    .step = step};
    unsigned char bytes[DISTI_TCP_HELLO_BYTES];

    if (step == DISTI_TCP_CHALLENGE && fuzz->how & TCP_OTHER)
        hello.from = TCP_CALLER;
    disti_tcp_hello_encode(&hello, bytes);
    if (step == DISTI_TCP_PROOF || step == DISTI_TCP_ANSWER) {
        disti_tcp_hello_prove(&fuzz->secret, bytes, line->nonce, NULL, hello.proof);
        hello.proof[0] ^= step == DISTI_TCP_ANSWER && fuzz->how & TCP_UNPROVEN;
        disti_tcp_hello_encode(&hello, bytes);
    }
    fuzz_send(line->fd, bytes, sizeof(bytes));
}

/*
 * Waits for the rank's message of that step of the handshake. Returns false if the rank has closed
 * the connection.
 */
static bool tcp_read(struct tcp_fuzz *fuzz, struct tcp_line *line, enum disti_tcp_step step,
                     int *socket_p)
{
    int64_t deadline = disti_deadline_ms(TCP_PATIENCE_MS);
    unsigned char bytes[DISTI_TCP_HELLO_BYTES];
    struct disti_tcp_hello hello;

    for (size_t have = 0; have < sizeof(bytes);) {
        ssize_t got = recv(line->fd, bytes + have, sizeof(bytes) - have, MSG_DONTWAIT);

        if (got == 0 || (got < 0 && errno != EAGAIN))
            return false;
        have += got > 0 ? (size_t)got : 0;
        FUZZ_MUST(!disti_expired(deadline));
        tcp_drive(fuzz);
    }
    FUZZ_MUST(disti_tcp_hello_decode(bytes, &hello) && hello.step == step);
    memcpy(line->nonce, hello.nonce, sizeof(line->nonce));
    *socket_p = hello.socket;
    return true;
}

/* Connects to rank 1 as rank 0, and proves this identity. */
static void tcp_enter(struct tcp_fuzz *fuzz, struct tcp_line *line, int socket)
{
    int said;

    fuzz_close(line->fd);
    *line = (struct tcp_line){.fd = fuzz_connect(fuzz->port), .as = TCP_CALLER};
    FUZZ_MUST(line->fd >= 0);
    tcp_hello(fuzz, line, socket, DISTI_TCP_CALL);
    FUZZ_MUST(tcp_read(fuzz, line, DISTI_TCP_CHALLENGE, &said));
    tcp_hello(fuzz, line, socket, DISTI_TCP_PROOF);
    fuzz->proved = true;
}

/* Makes rank 1 connect to rank 2, and answers it correctly if it does. */
static void tcp_answer(struct tcp_fuzz *fuzz, struct tcp_line *line)
{
    int fd, socket;

    tcp_post(fuzz, TCP_CALLED);
    tcp_drive(fuzz);
    fd = fuzz->listen_fd < 0 ? -1 : accept4(fuzz->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    fuzz_close(line->fd);
    *line = (struct tcp_line){.fd = fd, .as = TCP_CALLED};
    if (!tcp_read(fuzz, line, DISTI_TCP_CALL, &socket))
        return;
    tcp_hello(fuzz, line, socket, DISTI_TCP_CHALLENGE);
    if (!tcp_read(fuzz, line, DISTI_TCP_PROOF, &socket))
        return;
    FUZZ_MUST(!(fuzz->how & TCP_OTHER));
    tcp_hello(fuzz, line, socket, DISTI_TCP_ANSWER);
    fuzz->proved = fuzz->proved || !(fuzz->how & TCP_UNPROVEN);
}

static void tcp_handshake(struct tcp_fuzz *fuzz, int which, uint8_t how)
{
    struct tcp_line *line = &fuzz->lines[which];

    switch (how & 3) {
    case 0:
        tcp_enter(fuzz, line, which);
        break;
    case 1:
        tcp_hello(fuzz, line, which, DISTI_TCP_CALL);
        break;
    case 2:
        tcp_hello(fuzz, line, which, DISTI_TCP_PROOF);
        break;
    default:
        tcp_answer(fuzz, line);
    }
}

static void tcp_seal(unsigned char *frame, size_t bytes, bool damaged)
{
    uint32_t sum = disti_crc32c(0, frame + DISTI_TCP_SUM_BYTES, bytes - DISTI_TCP_SUM_BYTES);

    disti_tcp_frame_put_sum(frame, sum ^ damaged);
}

/*
 * Sends a frame. Its numbers are small, so that frames refer to each other; its payload is zeros.
 */
static void tcp_frame(const struct tcp_fuzz *fuzz, int fd, struct fuzz_input *input)
{
    unsigned char frame[DISTI_TCP_FRAME_BYTES + TCP_ROOM] = {0};
    uint8_t kind = fuzz_byte(input), shift = fuzz_byte(input), payload;
    struct dist_envelope envelope = {fuzz_byte(input), 0, 0};

    envelope.fingerprint = (uint64_t)fuzz_byte(input) << (shift & 15);
    envelope.bytes = (uint64_t)fuzz_byte(input) << (shift >> 4);
    payload = fuzz_byte(input);
    disti_tcp_frame_encode((enum disti_tcp_kind)kind, &envelope, frame);
    if (fuzz->how & TCP_CHECKSUM)
        tcp_seal(frame, DISTI_TCP_FRAME_BYTES + (size_t)payload, fuzz->how & TCP_DAMAGED);
    fuzz_send(fd, frame, DISTI_TCP_FRAME_BYTES + payload);
}

static bool tcp_seen(void *arg, int peer, const struct dist_envelope *envelope)
{
    ++*(int *)arg;
    FUZZ_MUST(peer == TCP_CALLER || peer == TCP_CALLED);
    return envelope->bytes == 0;
}

/* Rank 1 probes messages that have no receive, and cancels those of one of the two tags. */
static void tcp_probe_messages(struct tcp_fuzz *fuzz)
{
    int seen = 0;

    tcp->probe_tag(fuzz->state, 0);
    tcp->unexpected(fuzz->state, 0, 0, TCP_RECEIVES, tcp_seen, &seen);
    FUZZ_MUST(seen <= 2 * TCP_RECEIVES);
    tcp->cancel(fuzz->state, fuzz->posted % 2, 1);
}

static void tcp_act(struct tcp_fuzz *fuzz, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input), which = (what & 3) % TCP_SOCKETS;
    struct tcp_line *line = &fuzz->lines[which];
    struct fuzz_input piece;

    if (line->fd < 0)
        *line = (struct tcp_line){.fd = fuzz_connect(fuzz->port), .as = TCP_CALLER};
    if (what & 16)
        tcp_post(fuzz, (int)line->as);
    if (what & 128)
        tcp_send(fuzz, (int)line->as);
    switch (what >> 2 & 3) {
    case 0:
        piece = fuzz_take(input, fuzz_byte(input));
        fuzz_send(line->fd, piece.at, piece.left);
        break;
    case 1:
        tcp_frame(fuzz, line->fd, input);
        break;
    case 2:
        tcp_handshake(fuzz, which, what >> 5);
        break;
    default:
        if (what & 32) {
            tcp_probe_messages(fuzz);
            break;
        }
        if (what & 64) {
            fuzz_advance_clock(TCP_LATER_S);
            break;
        }
        fuzz_close(line->fd);
        line->fd = -1;
    }
}

/* Checks that a stranger that never proved its identity has completed no receive and no send of
 * rank 1. */
static void tcp_check(const struct tcp_fuzz *fuzz)
{
    for (int i = 0; i < fuzz->posted; i++)
        FUZZ_MUST(fuzz->proved || fuzz->receives[i].status != DIST_OK);
    for (int i = 0; i < fuzz->sent; i++)
        FUZZ_MUST(fuzz->proved || fuzz->sends[i].status != DIST_OK);
}

void fuzz_tcp(struct fuzz_input *input)
{
    struct tcp_fuzz fuzz;

    tcp_open(&fuzz, fuzz_byte(input));
    while (input->left) {
        tcp_act(&fuzz, input);
        tcp_drive(&fuzz);
    }
    for (int i = 0; i < TCP_SOCKETS; i++)
        fuzz_close(fuzz.lines[i].fd);
    tcp_drive(&fuzz);
    tcp_check(&fuzz);
    tcp->close(fuzz.state);
    if (fuzz.listen_fd >= 0)
        close(fuzz.listen_fd);
    free(fuzz.state);
}
