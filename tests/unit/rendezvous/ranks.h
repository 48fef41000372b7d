/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs test ranks as forked processes with exit codes; every wait has a time limit. */
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
#define RANKS_LIMIT_MS 60000 /* for one set of ranks; if they take longer, the test fails */

/* In a rank: if the condition is false, prints it and ends the process. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (last error: %s)\n", __FILE__, __LINE__, #condition,        \
                    dist_last_error());                                                            \
            _exit(99);                                                                             \
        }                                                                                          \
    } while (0)

/* Checks that the last error contains each of these strings. */
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

/* Starts a store server in this process, as if rank 0 held it. */
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

/* ---- the handshake on a blocking socket, without the library's client ---- */

static inline void ranks_put_frame(int fd, uint8_t op, uint32_t id, const void *value, size_t bytes)
{
    struct disti_wire_head head = {.op = op, .id = id, .value_bytes = bytes};
    unsigned char frame[DISTI_WIRE_HEAD + 512];

    disti_wire_put_head(frame, &head);
    memcpy(frame + DISTI_WIRE_HEAD, value, bytes);
    (void)!send(fd, frame, DISTI_WIRE_HEAD + bytes, MSG_NOSIGNAL);
}

/* Encodes a hello; the nonce is fixed. */
static inline void ranks_pack_hello(struct disti_wire_handshake *handshake, int rank,
                                    int world_size)
{
    struct disti_wire_id id = {.rank = rank, .world_size = (uint32_t)world_size, .host = "h"};

    memset(id.proof, 'n', sizeof(id.proof));
    disti_wire_put_id(handshake->hello, &id);
}

static inline void ranks_send_hello(int fd, struct disti_wire_handshake *handshake, int rank,
                                    int world_size)
{
    ranks_pack_hello(handshake, rank, world_size);
    ranks_put_frame(fd, DISTI_WIRE_HELLO, 1, handshake->hello, sizeof(handshake->hello));
}

/* Reads a reply whose value has at most `room` bytes. Returns its status. */
static inline dist_status ranks_read_reply(int fd, void *value, size_t room, size_t *bytes_p)
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

static inline bool ranks_read_challenge(int fd, struct disti_wire_handshake *handshake)
{
    size_t bytes = 0;

    return ranks_read_reply(fd, handshake->challenge, sizeof(handshake->challenge), &bytes) ==
               DIST_OK &&
           bytes == sizeof(handshake->challenge);
}

/* Sends the proof of a client without a secret. */
static inline void ranks_send_proof(int fd, const struct disti_wire_handshake *handshake)
{
    static const struct disti_secret none;
    unsigned char proof[DISTI_HMAC_BYTES];

    disti_wire_prove_client(handshake, &none, proof);
    ranks_put_frame(fd, DISTI_WIRE_PROOF, 2, proof, sizeof(proof));
}

/* Completes the handshake as that rank and reads the welcome. False: that failed. */
static inline bool ranks_join(int fd, int rank, int world_size)
{
    unsigned char welcome[DISTI_WIRE_WELCOME];
    struct disti_wire_handshake handshake = {0};
    size_t bytes = 0;

    ranks_send_hello(fd, &handshake, rank, world_size);
    if (!ranks_read_challenge(fd, &handshake))
        return false;
    ranks_send_proof(fd, &handshake);
    return ranks_read_reply(fd, welcome, sizeof(welcome), &bytes) == DIST_OK &&
           bytes == sizeof(welcome);
}

/* Opens a connection to the server and sends nothing. */
static inline int ranks_open_connection(const struct disti_store_server *server)
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
    /* Keeps the store of a rank that is killed reachable, so that valgrind reports no leak. */
    static struct disti_store *volatile last;
    struct disti_store_target target = {
        .host = host, .port = port, .rank = rank, .world_size = world_size};
    dist_status status =
        disti_store_reach(&target, timeout_ms, disti_deadline_ms(timeout_ms), store_p);

    last = status == DIST_OK ? *store_p : NULL;
    (void)last;
    return status;
}

/* Runs fn in `count` processes; each must exit with 0. */
static inline void ranks_run(int count, ranks_fn fn, void *arg)
{
    struct ranks ranks;

    ranks_start(&ranks, count, fn, arg);
    ranks_finish(&ranks);
    for (int r = 0; r < count; r++)
        assert_int_equal(ranks.codes[r], 0);
}

#endif
