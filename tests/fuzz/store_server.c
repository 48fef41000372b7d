/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store's server, fed by three callers. A byte says who does what:
 *
 *     bits 0, 1   the caller
 *     bits 2, 3   0: bytes as they are   1: a frame   2: a hello that is right   3: hangs up
 */
#include "tests/fuzz/fuzz.h"

#include "store/store.h"
#include "store/wire.h"

#include <poll.h>
#include <sys/socket.h>

#define SERVER_CALLERS 3
#define SERVER_PATIENCE_MS 20000

static void server_hello(int fd, int rank)
{
    struct disti_wire_id id = {.rank = rank, .world_size = 2, .pid = 1, .host = "host"};
    unsigned char value[DISTI_WIRE_ID];

    disti_wire_put_id(value, &id);
    fuzz_send_frame(fd, DISTI_WIRE_HELLO, 1, 0, (struct fuzz_input){0}, value, sizeof(value));
}

static void server_act(int port, int *callers, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input), who = (what & 3) % SERVER_CALLERS;
    struct fuzz_input piece = {0};

    if (callers[who] < 0)
        callers[who] = fuzz_connect(port);
    switch (what >> 2 & 3) {
    case 0:
        piece = fuzz_take(input, fuzz_byte(input));
        fuzz_send(callers[who], piece.at, piece.left);
        break;
    case 1:
        fuzz_send_some_frame(callers[who], input);
        break;
    case 2:
        server_hello(callers[who], who % 2);
        break;
    default:
        fuzz_hang_up(callers[who]);
        callers[who] = -1;
    }
}

/* Once it has nothing more to read, the server hangs up, and has answered all of it. */
static void server_end(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    if (fd < 0)
        return;
    shutdown(fd, SHUT_WR);
    do
        FUZZ_MUST(poll(&ready, 1, SERVER_PATIENCE_MS) == 1);
    while (fuzz_drain(fd));
    fuzz_hang_up(fd);
}

void fuzz_store_server(struct fuzz_input *input)
{
    struct disti_store_server *server;
    int callers[SERVER_CALLERS] = {-1, -1, -1};

    FUZZ_MUST(disti_store_server_listen("127.0.0.1", 0, 2, &server) == DIST_OK);
    FUZZ_MUST(disti_store_server_run(server) == DIST_OK);
    while (input->left)
        server_act(disti_store_server_port(server), callers, input);
    for (int i = 0; i < SERVER_CALLERS; i++)
        server_end(callers[i]);
    disti_store_server_stop(server, 0);
}
