/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rank 1 of three uses the shm transport. A stranger, another process of the same user, plays the
 * two other ranks: as rank 0 it connects to rank 1, as rank 2 it accepts the connection of rank 1.
 * Both then write to the memory that they share with rank 1. Each byte selects an event:
 *
 *     bits 0 to 2   0: rank 0 sends raw bytes                   4: rank 1 sends a message
 *                   1: rank 0 connects                          5: rank 2 answers a connection
 *                   2: writes a frame to shared memory          6: closes, or many callers connect
 *                   3: rank 1 posts a receive                   7: see shm_other
 *     bit 3         events 2, 3, 4, 6, 7: the peer; 0: rank 0; 1: rank 2
 *     bits 4, 5     event 1: the descriptor that is sent; 0: none; 1: memory; 2: memory that is too
 *                            short; 3: not memory
 *                   event 5: 0: accepts; 1: defers; 2: refuses; 3: closes
 *                   event 6: 0: closes; N: N * SHM_CROWD callers connect and send nothing
 *     bit 6         event 1: a doorbell is sent too
 *     bit 7         events 1 and 5: the input's bytes replace fields of the hello
 */
#include "tests/fuzz/fuzz.h"

#include "base/hash.h"
#include "transports/shm/shm.h"
#include "transports/shm/state.h"

#include <dist/backend.h>

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHM_JOB "fuzz"
#define SHM_RANK 1
#define SHM_ROOM 256
#define SHM_REQUESTS 8
#define SHM_CROWD 64 /* number of callers that connect together, times 1 to 3 */
#define SHM_CROWD_MOST 600
#define SHM_LATER_S 70 /* more than the rank's timeout */

static const struct dist_transport *const shm = &disti_transport_shm;

/* A connection of the stranger, as rank 0 or rank 2. */
struct shm_line {
    int rank, fd;
    struct shm_pair *pair;
    struct shm_out out;
};

struct shm_fuzz {
    void *state;
    struct shm_address address; /* the rank's address */
    int listener;
    struct shm_line lines[2];
    struct dist_request receives[SHM_REQUESTS], sends[SHM_REQUESTS];
    unsigned char room[SHM_REQUESTS][SHM_ROOM], data[128 << 10];
    int posted, sent, crowd;
    int crowds[SHM_CROWD_MOST];
};

static dist_status shm_fail(dist_status status, const char *format, ...)
{
    (void)format;
    return status;
}

static const struct dist_host shm_host = {.fail = shm_fail};

static int shm_socket(void)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    FUZZ_MUST(fd >= 0);
    return fd;
}

/* Rank 2 listens at its address. */
static void shm_listen(struct shm_fuzz *fuzz)
{
    struct shm_address address;
    struct sockaddr_un name;
    socklen_t size;

    FUZZ_MUST(disti_shm_machine_self(&address, NULL, 0) == DIST_OK);
    size = disti_shm_machine_socket(&address, &name);
    fuzz->listener = shm_socket();
    FUZZ_MUST(bind(fuzz->listener, (struct sockaddr *)&name, size) == 0);
    FUZZ_MUST(listen(fuzz->listener, 8) == 0);
    FUZZ_MUST(shm->connect(fuzz->state, 2, &address, sizeof(address)) == DIST_OK);
}

static void shm_open_rank(struct shm_fuzz *fuzz)
{
    static const struct dist_transport_config config = {.size = sizeof(config),
                                                        .rank = SHM_RANK,
                                                        .world_size = 3,
                                                        .timeout_ms = 60000,
                                                        .job = SHM_JOB,
                                                        .local_ranks = 3,
                                                        .host = &shm_host};
    size_t bytes;

    memset(fuzz, 0, sizeof(*fuzz));
    fuzz->lines[0] = (struct shm_line){.rank = 0, .fd = -1};
    fuzz->lines[1] = (struct shm_line){.rank = 2, .fd = -1};
    fuzz->state = calloc(1, shm->state_size);
    FUZZ_MUST(fuzz->state && shm->open(fuzz->state, &config) == DIST_OK);
    FUZZ_MUST(shm->address(fuzz->state, &fuzz->address, &bytes) == DIST_OK);
    shm_listen(fuzz);
}

static int shm_call(const struct shm_address *address)
{
    struct sockaddr_un name;
    socklen_t size = disti_shm_machine_socket(address, &name);
    int fd = shm_socket();

    FUZZ_MUST(connect(fd, (struct sockaddr *)&name, size) == 0);
    return fd;
}

static void shm_close_line(struct shm_line *line)
{
    if (line->fd >= 0)
        close(line->fd);
    line->fd = -1;
    disti_shm_memory_unmap(line->pair, line->out.size);
    line->pair = NULL;
}

/* Initializes the stranger's side of the ring that it writes. */
static void shm_share(struct shm_line *line, struct shm_pair *pair, size_t size, uint64_t key)
{
    int side = line->rank == 0 ? 0 : 1;

    line->pair = pair;
    line->out = (struct shm_out){.ring = pair->fifos + (size_t)side * size,
                                 .size = size,
                                 .key = key,
                                 .consumed_now = &pair->side[1 - side].consumed};
}

/*
 * Returns a descriptor for event 1: of memory, of memory that is too short, of standard input, or
 * -1.
 */
static int shm_memory(struct shm_line *line, int kind)
{
    struct shm_pair *pair;
    int fd = -1;

    if (kind == 1 && disti_shm_memory_make(SHM_FIFO_MIN, &fd, &pair) == DIST_OK)
        shm_share(line, pair, SHM_FIFO_MIN, 1);
    else if (kind == 2 && (fd = memfd_create("short", MFD_CLOEXEC | MFD_ALLOW_SEALING)) >= 0)
        FUZZ_MUST(ftruncate(fd, 4096) == 0);
    else if (kind == 3)
        fd = dup(STDIN_FILENO);
    return fd;
}

/* Replaces some valid bytes by the input's bytes. */
static void shm_overlay(struct shm_hello *hello, struct fuzz_input *input)
{
    size_t at = fuzz_byte(input);
    struct fuzz_input over = fuzz_take(input, fuzz_byte(input) & 7);

    for (size_t i = 0; i < over.left; i++)
        ((unsigned char *)hello)[(at + i) % sizeof(*hello)] = over.at[i];
}

static void shm_send_hello(struct shm_line *line, enum shm_hello_kind kind, uint8_t what,
                           struct fuzz_input *input)
{
    int fds[SHM_HELLO_FDS], count = 0;
    static const uint64_t probe = 7;
    struct shm_hello hello;

    disti_shm_hello_init(&hello, kind, line->rank, SHM_RANK,
                         disti_hash_text(DISTI_HASH_START, SHM_JOB));
    hello.key = 1;
    hello.fifo_bytes = SHM_FIFO_MIN;
    hello.probe_address = (uint64_t)(uintptr_t)&probe;
    hello.probe = probe;
    if (what & 128)
        shm_overlay(&hello, input);
    fds[count] = kind == SHM_CALL ? shm_memory(line, what >> 4 & 3) : -1;
    count += fds[count] >= 0;
    if (what & 64)
        fds[count++] = eventfd(0, EFD_CLOEXEC);
    disti_shm_hello_send(line->fd, &hello, fds, count);
    while (count-- > 0)
        close(fds[count]);
}

static void shm_send_bytes(struct shm_line *line, struct fuzz_input *input)
{
    struct fuzz_input piece = fuzz_take(input, fuzz_byte(input));

    send(line->fd, piece.at, piece.left, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* If rank 1 has connected to rank 2, maps the memory that rank 1 shares, and answers as `what`
 * selects. */
static void shm_answer(struct shm_fuzz *fuzz, uint8_t what, struct fuzz_input *input)
{
    static const enum shm_hello_kind kinds[] = {SHM_ACCEPT, SHM_DEFER, SHM_REFUSE};
    struct shm_line *line = &fuzz->lines[1];
    int fd = accept4(fuzz->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    int fds[SHM_HELLO_FDS];
    struct shm_hello hello;
    struct shm_pair *pair;

    if (fd < 0)
        return;
    shm_close_line(line);
    line->fd = fd;
    FUZZ_MUST(disti_shm_hello_receive(fd, &hello, fds) == 1);
    if (disti_shm_memory_map(fds[0], (size_t)hello.fifo_bytes, &pair) == DIST_OK)
        shm_share(line, pair, (size_t)hello.fifo_bytes, hello.key);
    for (int i = 0; i < SHM_HELLO_FDS; i++)
        close(fds[i]);
    if ((what >> 4 & 3) < 3)
        shm_send_hello(line, kinds[what >> 4 & 3], what | 64, input);
    else
        shm_close_line(line);
}

/*
 * Writes a frame. The length in its header may differ from that of the payload, which is zero
 * except for its first byte.
 */
static void shm_frame(struct shm_line *line, struct fuzz_input *input)
{
    uint8_t kind = fuzz_byte(input), shift = fuzz_byte(input);
    struct dist_envelope envelope = {fuzz_byte(input), fuzz_byte(input), 0};
    size_t claimed, payload_bytes;
    struct shm_frame *frame;

    envelope.bytes = (uint64_t)fuzz_byte(input) << (shift & 15);
    payload_bytes = fuzz_byte(input);
    claimed = fuzz_byte(input);
    frame = line->pair ? disti_shm_fifo_reserve(&line->out, payload_bytes) : NULL;
    if (!frame)
        return;
    frame->kind = kind;
    frame->bytes = (uint32_t)(claimed ? claimed << (shift >> 4) : payload_bytes);
    frame->envelope = envelope;
    memset(disti_shm_frame_payload(frame, payload_bytes), 0, payload_bytes);
    if (payload_bytes > 0)
        *disti_shm_frame_payload(frame, payload_bytes) = fuzz_byte(input);
    /* A loan contains an address that the rank can read, or one that it cannot. */
    if (kind == SHM_LENT && payload_bytes == sizeof(struct shm_loan)) {
        const struct shm_loan loan = {shift & 16 ? 8 : (uint64_t)(uintptr_t)line,
                                      frame->payload[0]};

        memcpy(frame->payload, &loan, sizeof(loan));
    }
    disti_shm_fifo_publish(&line->out, frame, payload_bytes);
}

static void shm_request(struct dist_request *request, int number, int peer)
{
    static const size_t sizes[] = {0, 64, 128, 192};

    request->status = DIST_IN_PROGRESS;
    request->peer = peer;
    request->envelope = (struct dist_envelope){(uint64_t)number % 2, 1, sizes[number % 4]};
}

static void shm_post(struct shm_fuzz *fuzz, int peer)
{
    struct dist_request *request = &fuzz->receives[fuzz->posted];

    if (fuzz->posted == SHM_REQUESTS)
        return;
    shm_request(request, fuzz->posted, peer);
    request->sink.dst = fuzz->room[fuzz->posted++];
    request->sink.bytes = request->envelope.bytes;
    shm->recv(fuzz->state, request);
}

/* Rank 1 sends a message. Every second message is too long to be copied at once. */
static void shm_send(struct shm_fuzz *fuzz, int peer)
{
    struct dist_request *request = &fuzz->sends[fuzz->sent];

    if (fuzz->sent == SHM_REQUESTS)
        return;
    shm_request(request, fuzz->sent, peer);
    if (fuzz->sent++ % 2)
        request->envelope.bytes = sizeof(fuzz->data);
    request->data = fuzz->data;
    shm->send(fuzz->state, request);
}

static void shm_crowd(struct shm_fuzz *fuzz, int count)
{
    for (; count > 0 && fuzz->crowd < SHM_CROWD_MOST; count--)
        fuzz->crowds[fuzz->crowd++] = shm_call(&fuzz->address);
}

static bool shm_seen(void *arg, int peer, const struct dist_envelope *envelope)
{
    (void)arg;
    FUZZ_MUST(peer == 0 || peer == 2);
    return envelope->bytes == 0;
}

/*
 * Event 7. Bits 4, 5:
 *            0: sets a byte of the stranger's side in shared memory
 *            1: rank 1 probes messages, and cancels those of one of the two tags
 *            2: time passes
 *            3: calls the transport's describe and reach
 */
static void shm_other(struct shm_fuzz *fuzz, struct shm_line *line, uint8_t what,
                      struct fuzz_input *input)
{
    struct dist_reach reach;
    char text[128];
    size_t at;

    switch (what >> 4 & 3) {
    case 0:
        at = fuzz_byte(input);
        if (line->pair)
            ((unsigned char *)&line->pair
                 ->side[line->rank == 0 ? 0 : 1])[(at & 63) * 8 % sizeof(struct shm_side) +
                                                  (at >> 6)] = fuzz_byte(input);
        break;
    case 1:
        shm->probe_tag(fuzz->state, 0);
        shm->unexpected(fuzz->state, 0, 0, SHM_REQUESTS, shm_seen, NULL);
        shm->cancel(fuzz->state, (uint64_t)fuzz->posted % 2, 1);
        break;
    case 2:
        fuzz_advance_clock(SHM_LATER_S);
        break;
    default:
        shm->describe(fuzz->state, line->rank, text, sizeof(text));
        FUZZ_MUST(shm->reach(fuzz->state, &fuzz->address, sizeof(fuzz->address), &reach) ==
                  DIST_OK);
    }
}

static void shm_act(struct shm_fuzz *fuzz, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input);
    struct shm_line *line = &fuzz->lines[(what & 7) > 1 && what & 8 ? 1 : 0];

    if ((what & 7) == 1)
        shm_close_line(line);
    if (line->fd < 0 && (what & 7) < 2)
        line->fd = shm_call(&fuzz->address);
    switch (what & 7) {
    case 0:
        shm_send_bytes(line, input);
        break;
    case 1:
        shm_send_hello(line, SHM_CALL, what, input);
        break;
    case 2:
        shm_frame(line, input);
        break;
    case 3:
        shm_post(fuzz, line->rank);
        break;
    case 4:
        shm_send(fuzz, line->rank);
        break;
    case 5:
        shm_answer(fuzz, what, input);
        break;
    case 6:
        if (what >> 4 & 3)
            shm_crowd(fuzz, SHM_CROWD * (what >> 4 & 3));
        else
            shm_close_line(line);
        break;
    default:
        shm_other(fuzz, line, what, input);
    }
}

static void shm_drive(struct shm_fuzz *fuzz)
{
    shm->arm(fuzz->state);
    shm->disarm(fuzz->state);
    FUZZ_MUST(shm->progress(fuzz->state) >= 0);
}

void fuzz_shm(struct fuzz_input *input)
{
    static struct shm_fuzz fuzz;

    shm_open_rank(&fuzz);
    while (input->left) {
        shm_act(&fuzz, input);
        shm_drive(&fuzz);
    }
    for (int i = 0; i < 2; i++)
        shm_close_line(&fuzz.lines[i]);
    while (fuzz.crowd > 0)
        close(fuzz.crowds[--fuzz.crowd]);
    shm_drive(&fuzz);
    shm->close(fuzz.state);
    close(fuzz.listener);
    free(fuzz.state);
}
