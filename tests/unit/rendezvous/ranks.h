/* SPDX-License-Identifier: BSD-3-Clause */
/* Test ranks as forked processes, each with a result; nothing is waited for for ever. */
#ifndef TESTS_UNIT_RENDEZVOUS_RANKS_H
#define TESTS_UNIT_RENDEZVOUS_RANKS_H

#include "tests/unit/base/unit.h"

#include <dist/dist.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/client.h"
#include "store/server.h"

#define RANKS_MAX 48
#define RANKS_LIMIT_MS 60000 /* for one set of ranks; a test that takes this long has failed */

/* In a rank: says what failed and ends the process. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition,        \
                    dist_last_error());                                                            \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)

/* The last error holds each of these words; ends with NULL. */
#define CHECK_SAYS(...) CHECK(ranks_say((const char *[]){__VA_ARGS__, NULL}))
static inline bool ranks_say(const char *const *words)
{
    for (; *words; words++) {
        if (!strstr(dist_last_error(), *words)) {
            fprintf(stderr, "no \"%s\" in \"%s\"\n", *words, dist_last_error());
            return false;
        }
    }
    return true;
}

typedef void (*ranks_fn)(int rank, void *arg);

struct ranks {
    int count;
    pid_t pids[RANKS_MAX];
    int codes[RANKS_MAX]; /* exit code, or 128 + signal */
};

static inline void ranks_start(struct ranks *ranks, int count, ranks_fn fn, void *arg)
{
    ranks->count = count;
    fflush(NULL);
    for (int r = 0; r < count; r++) {
        ranks->pids[r] = fork();
        assert_true(ranks->pids[r] >= 0);
        if (ranks->pids[r] == 0) {
            fn(r, arg);
            _exit(0);
        }
    }
}

static inline void ranks_finish(struct ranks *ranks)
{
    int64_t deadline = disti_deadline_ms(RANKS_LIMIT_MS * unit_patience());

    for (int r = 0; r < ranks->count; r++) {
        int how = 0;

        while (waitpid(ranks->pids[r], &how, WNOHANG) == 0) {
            if (disti_expired(deadline))
                kill(ranks->pids[r], SIGKILL);
            disti_sleep_ns(2000000);
        }
        ranks->codes[r] = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
    }
}

/* A server in this process, which is rank 0's. */
static inline dist_status ranks_serve(const char *host, int port, int world_size,
                                      struct disti_store_server **server_p)
{
    struct disti_store_server *server;
    dist_status status = disti_store_server_listen(host, port, world_size, 0, &server);

    *server_p = NULL;
    if (status != DIST_OK)
        return status;
    server->holder = 0;
    status = disti_store_server_run(server);
    if (status != DIST_OK)
        disti_store_server_forget(server);
    else
        *server_p = server;
    return status;
}

/* ---- the handshake by hand, on a blocking socket ---- */

static inline void ranks_put_frame(int fd, uint8_t op, uint32_t id, const void *value, size_t bytes)
{
    struct disti_wire_head head = {.op = op, .id = id, .value_bytes = bytes};
    unsigned char frame[DISTI_WIRE_HEAD + 512];

    disti_wire_put_head(frame, &head);
    memcpy(frame + DISTI_WIRE_HEAD, value, bytes);
    (void)!send(fd, frame, DISTI_WIRE_HEAD + bytes, MSG_NOSIGNAL);
}

/* Packs a hello; the nonce is of this test. */
static inline void ranks_pack_hello(struct disti_wire_handshake *said, int rank, int world_size)
{
    struct disti_wire_id id = {.rank = rank, .world_size = (uint32_t)world_size, .host = "h"};

    memset(id.proof, 'n', sizeof(id.proof));
    disti_wire_put_id(said->hello, &id);
}

static inline void ranks_say_hello(int fd, struct disti_wire_handshake *said, int rank,
                                   int world_size)
{
    ranks_pack_hello(said, rank, world_size);
    ranks_put_frame(fd, DISTI_WIRE_HELLO, 1, said->hello, sizeof(said->hello));
}

/* Reads a reply with a value of at most that size; its status. */
static inline dist_status ranks_hear(int fd, void *value, size_t room, size_t *bytes_p)
{
    unsigned char bytes[DISTI_WIRE_HEAD];
    struct disti_wire_head head;

    if (recv(fd, bytes, sizeof(bytes), MSG_WAITALL) != sizeof(bytes) ||
        !disti_wire_get_head(bytes, &head) || head.value_bytes > room)
        return DIST_ERR_INTERNAL;
    *bytes_p = (size_t)head.value_bytes;
    if (*bytes_p && recv(fd, value, *bytes_p, MSG_WAITALL) != (ssize_t)*bytes_p)
        return DIST_ERR_INTERNAL;
    return head.arg;
}

static inline bool ranks_hear_challenge(int fd, struct disti_wire_handshake *said)
{
    size_t bytes = 0;

    return ranks_hear(fd, said->challenge, sizeof(said->challenge), &bytes) == DIST_OK &&
           bytes == sizeof(said->challenge);
}

/* With no secret. */
static inline void ranks_say_proof(int fd, const struct disti_wire_handshake *said)
{
    static const struct disti_secret none;
    unsigned char proof[DISTI_HMAC_BYTES];

    disti_wire_prove_client(said, &none, proof);
    ranks_put_frame(fd, DISTI_WIRE_PROOF, 2, proof, sizeof(proof));
}

/* Comes in as that rank, and reads the welcome. */
static inline bool ranks_enter(int fd, int rank, int world_size)
{
    unsigned char welcome[DISTI_WIRE_WELCOME];
    struct disti_wire_handshake said = {0};
    size_t bytes = 0;

    ranks_say_hello(fd, &said, rank, world_size);
    if (!ranks_hear_challenge(fd, &said))
        return false;
    ranks_say_proof(fd, &said);
    return ranks_hear(fd, welcome, sizeof(welcome), &bytes) == DIST_OK && bytes == sizeof(welcome);
}

/* Somebody calls, who has not said anything yet. */
static inline int ranks_stranger(const struct disti_store_server *server)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)disti_store_server_port(server)),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Connects as a rank that has no secret. */
static inline dist_status ranks_connect(const char *host, int port, int rank, int world_size,
                                        int timeout_ms, struct disti_store **store_p)
{
    /* Of a rank that dies with it open: not lost to valgrind. */
    static struct disti_store *volatile last;
    struct disti_store_target target = {
        .host = host, .port = port, .rank = rank, .world_size = world_size};
    dist_status status =
        disti_store_reach(&target, timeout_ms, disti_deadline_ms(timeout_ms), store_p);

    last = status == DIST_OK ? *store_p : NULL;
    (void)last;
    return status;
}

/* Runs fn in `count` processes; every one must end with 0. */
static inline void ranks_run(int count, ranks_fn fn, void *arg)
{
    struct ranks ranks;

    ranks_start(&ranks, count, fn, arg);
    ranks_finish(&ranks);
    for (int r = 0; r < count; r++)
        assert_int_equal(ranks.codes[r], 0);
}

#endif
