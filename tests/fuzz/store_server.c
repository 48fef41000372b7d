/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store's server. The input is what three callers send. Each byte selects an event:
 *
 *     bits 0, 1   the caller
 *     bits 2, 3   0: sends raw bytes   1: sends a frame   2: handshake   3: closes the connection
 *     bits 4, 5   event 2: 0: connects again, and joins as its rank   1: as any rank
 *                 2: sends a valid hello only   3: sends the last proof, also when none is expected
 */
#include "tests/fuzz/fuzz.h"

#include "store/store.h"
#include "store/wire.h"

#include <sys/socket.h>

#define SERVER_CALLERS 3

struct server_caller {
    int fd;
    struct disti_wire_handshake said;
};

static void server_hello(struct server_caller *caller, int rank)
{
    struct disti_wire_id id = {.rank = rank, .world_size = 2, .pid = 1, .host = "host"};

    caller->said.binding_bytes = 0;
    disti_wire_put_id(caller->said.hello, &id);
    fuzz_send_frame(caller->fd, DISTI_WIRE_HELLO, 1, 0, (struct fuzz_input){0}, caller->said.hello,
                    sizeof(caller->said.hello));
}

static void server_proof(const struct server_caller *caller)
{
    static const struct disti_secret none;
    unsigned char proof[DISTI_HMAC_BYTES];

    disti_wire_prove_client(&caller->said, &none, proof);
    fuzz_send_frame(caller->fd, DISTI_WIRE_PROOF, 2, 0, (struct fuzz_input){0}, proof,
                    sizeof(proof));
}

static void server_read_reply(int fd, uint32_t id, void *value, size_t bytes)
{
    struct disti_wire_head head;

    FUZZ_MUST(fuzz_read_frame(fd, &head, value, bytes));
    FUZZ_MUST(head.op == DISTI_WIRE_REPLY && head.id == id);
}

/*
 * Connects and joins. The server must answer a caller that proves its identity, whatever the other
 * callers do.
 */
static void server_enter(struct server_caller *caller, int port, int rank)
{
    char welcome[1];

    fuzz_close(caller->fd);
    caller->fd = fuzz_connect(port);
    server_hello(caller, rank);
    server_read_reply(caller->fd, 1, caller->said.challenge, sizeof(caller->said.challenge));
    server_proof(caller);
    server_read_reply(caller->fd, 2, welcome, sizeof(welcome));
}

static void server_handshake(struct server_caller *caller, int port, int rank, uint8_t how)
{
    switch (how & 3) {
    case 0:
        server_enter(caller, port, rank);
        break;
    case 1:
        server_enter(caller, port, -1);
        break;
    case 2:
        server_hello(caller, rank);
        break;
    default:
        server_proof(caller);
    }
}

static void server_act(int port, struct server_caller *callers, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input), who = (what & 3) % SERVER_CALLERS;
    struct server_caller *caller = &callers[who];
    struct fuzz_input piece = {0};

    if (caller->fd < 0)
        caller->fd = fuzz_connect(port);
    switch (what >> 2 & 3) {
    case 0:
        piece = fuzz_take(input, fuzz_byte(input));
        fuzz_send(caller->fd, piece.at, piece.left);
        break;
    case 1:
        fuzz_send_some_frame(caller->fd, input);
        break;
    case 2:
        server_handshake(caller, port, who % 2, what >> 4);
        break;
    default:
        fuzz_close(caller->fd);
        caller->fd = -1;
    }
}

/* When nothing more can be read, the server must close the connection, having answered everything.
 */
static void server_end(int fd)
{
    if (fd < 0)
        return;
    shutdown(fd, SHUT_WR);
    do
        fuzz_await(fd);
    while (fuzz_drain(fd));
    fuzz_close(fd);
}

void fuzz_store_server(struct fuzz_input *input)
{
    struct disti_store_server *server;
    struct server_caller callers[SERVER_CALLERS] = {{.fd = -1}, {.fd = -1}, {.fd = -1}};

    FUZZ_MUST(disti_store_server_listen("127.0.0.1", 0, 2, 0, &server) == DIST_OK);
    FUZZ_MUST(disti_store_server_run(server) == DIST_OK);
    while (input->left)
        server_act(disti_store_server_port(server), callers, input);
    for (int i = 0; i < SERVER_CALLERS; i++)
        server_end(callers[i].fd);
    disti_store_server_stop(server, 0);
}
