/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of the store. The input is what the server sends. The first byte configures the
 * handshake:
 *
 *     bits 0, 1   0, 2: sends a valid challenge and welcome   1: sends neither
 *                 3: sends the challenge only
 *     bit 2       the input's bytes replace fields of both, before they are signed
 *
 * One more byte for each event:
 *
 *     bits 0, 1   0, 2: sends raw bytes   1: sends a frame   3: replies to the next request
 *     bit 2       event 3: the value may be twice as long
 */
#include "tests/fuzz/fuzz.h"

#include "base/clock.h"
#include "base/thread.h"
#include "store/client.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENT_PATIENCE_MS 20000

struct client_server {
    int listen_fd;
    struct fuzz_input *input;
    int fd;
    atomic_bool proved;  /* the server has proved that it is the job's store */
    bool stops_replying; /* raw bytes may have replaced a reply, or the client has said goodbye */
};

static void client_answer(struct client_server *server, uint32_t id, int32_t arg, const void *value,
                          size_t bytes)
{
    fuzz_send_frame(server->fd, DISTI_WIRE_REPLY, id, arg, (struct fuzz_input){0}, value, bytes);
}

/* Replaces some valid bytes by the input's bytes. */
static void client_overlay(struct fuzz_input *input, unsigned char *value, size_t bytes)
{
    size_t at = fuzz_byte(input);
    struct fuzz_input piece = fuzz_take(input, fuzz_byte(input));

    for (; at < bytes && piece.left; at++)
        value[at] = fuzz_byte(&piece);
}

static bool client_challenge(struct client_server *server, struct disti_wire_handshake *said,
                             bool overlay)
{
    struct disti_wire_head head;

    memset(said, 0, sizeof(*said));
    if (!fuzz_read_frame(server->fd, &head, said->hello, sizeof(said->hello)))
        return false;
    if (overlay)
        client_overlay(server->input, said->challenge, sizeof(said->challenge));
    client_answer(server, head.id, DIST_OK, said->challenge, sizeof(said->challenge));
    return true;
}

static void client_welcome(struct client_server *server, const struct disti_wire_handshake *said,
                           bool overlay)
{
    static const struct disti_secret none;
    const struct disti_wire_id id = {.rank = 1, .world_size = 2, .pid = 1, .host = "host"};
    unsigned char value[DISTI_WIRE_WELCOME] = {0}, proof[DISTI_HMAC_BYTES];
    struct disti_wire_head head;

    if (!fuzz_read_frame(server->fd, &head, proof, sizeof(proof)))
        return;
    disti_wire_put_id(value, &id);
    if (overlay)
        client_overlay(server->input, value, sizeof(value));
    disti_wire_prove_server(said, value, &none, value + 16);
    server->proved = true;
    client_answer(server, head.id, DIST_OK, value, sizeof(value));
}

static void client_handshake(struct client_server *server)
{
    uint8_t how = fuzz_byte(server->input);
    struct disti_wire_handshake said = {0};

    if ((how & 3) != 1 && client_challenge(server, &said, how & 4) && !(how & 1))
        client_welcome(server, &said, how & 4);
}

/* Waits for the next request and replies to it. The client has only one request at a time. */
static void client_reply(struct client_server *server, bool longer)
{
    uint8_t arg = fuzz_byte(server->input);
    struct fuzz_input value = fuzz_take(server->input, (size_t)fuzz_byte(server->input) << longer);
    struct disti_wire_head head;
    char request[1];

    if (server->stops_replying || !fuzz_read_frame(server->fd, &head, request, sizeof(request)))
        return;
    server->stops_replying = head.op == DISTI_WIRE_GOODBYE;
    client_answer(server, head.id, (int8_t)arg, value.at, value.left);
}

static void client_send(struct client_server *server)
{
    uint8_t what = fuzz_byte(server->input);
    struct fuzz_input piece;

    if ((what & 3) == 3) {
        client_reply(server, what & 4);
    } else if (what & 1) {
        fuzz_send_some_frame(server->fd, server->input);
    } else {
        piece = fuzz_take(server->input, fuzz_byte(server->input));
        fuzz_send(server->fd, piece.at, piece.left);
        server->stops_replying = true;
    }
}

/* Sends everything, and reads until the client closes. */
static void *client_serve(void *arg)
{
    struct client_server *server = arg;

    server->fd = accept(server->listen_fd, NULL, NULL);
    FUZZ_MUST(server->fd >= 0);
    client_handshake(server);
    while (server->input->left)
        client_send(server);
    shutdown(server->fd, SHUT_WR);
    for (char byte; read(server->fd, &byte, 1) > 0;)
        ;
    close(server->fd);
    return NULL;
}

static void client_call_all(struct disti_store *store)
{
    const int ranks[] = {0, 1};
    const struct disti_party party = {.group = 3, .ranks = ranks, .count = 2};
    struct disti_notice notice;
    char bytes[2][8] = {{0}}, host[DISTI_HOST_SIZE];
    int64_t first;

    disti_store_take_numbers(store, 2, &first);
    disti_store_all_gather(store, &party, "key", bytes[0], bytes, sizeof(bytes[0]),
                           CLIENT_PATIENCE_MS);
    disti_store_broadcast(store, &party, "key", bytes, sizeof(bytes), CLIENT_PATIENCE_MS);
    disti_store_seen_host(store, host);
    disti_store_leave(store, &party, "key", NULL, NULL, 0, CLIENT_PATIENCE_MS, NULL, NULL);
    while (disti_store_notice(store, &notice))
        ;
}

void fuzz_store_client(struct fuzz_input *input)
{
    struct disti_store_target target = {.host = "127.0.0.1", .rank = 0, .world_size = 2};
    struct disti_store_tries tries = {0};
    struct client_server server = {.input = input};
    struct disti_store *store = NULL;
    pthread_t thread;

    server.listen_fd = fuzz_listen(&target.port);
    FUZZ_MUST(fcntl(server.listen_fd, F_SETFL, 0) == 0);
    FUZZ_MUST(disti_thread_create(&thread, client_serve, &server) == 0);
    if (disti_store_try(&target, disti_deadline_ms(CLIENT_PATIENCE_MS), &tries, &store) ==
        DIST_OK) {
        FUZZ_MUST(server.proved);
        client_call_all(store);
        disti_store_close(store);
    }
    pthread_join(thread, NULL);
    close(server.listen_fd);
}
