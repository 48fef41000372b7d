/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A client of the store, to which the other end says what the input has: first its answer to the
 * hello, as a byte says (even: a welcome that is right), then frames, or bytes as they are.
 */
#include "tests/fuzz/fuzz.h"

#include "base/clock.h"
#include "base/thread.h"
#include "store/client.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENT_PATIENCE_MS 20000

struct client_server {
    int listen_fd;
    struct fuzz_input *input;
};

static void client_welcome(int fd)
{
    struct disti_wire_id id = {.rank = 1, .world_size = 2, .pid = 1, .host = "host"};
    unsigned char value[DISTI_WIRE_WELCOME] = {0};

    disti_wire_put_id(value, &id);
    fuzz_send_frame(fd, DISTI_WIRE_REPLY, 1, 0, (struct fuzz_input){0}, value, sizeof(value));
}

/* Says all at once, and listens until the client has gone. */
static void *client_serve(void *arg)
{
    struct client_server *server = arg;
    struct fuzz_input *input = server->input, piece;
    bool known = !(fuzz_byte(input) & 1);
    int fd = accept(server->listen_fd, NULL, NULL);

    FUZZ_MUST(fd >= 0);
    if (known)
        client_welcome(fd);
    while (input->left) {
        if (fuzz_byte(input) & 1) {
            fuzz_send_some_frame(fd, input);
        } else {
            piece = fuzz_take(input, fuzz_byte(input));
            fuzz_send(fd, piece.at, piece.left);
        }
    }
    shutdown(fd, SHUT_WR);
    for (char byte; read(fd, &byte, 1) > 0;)
        ;
    close(fd);
    return NULL;
}

static void client_ask(struct disti_store *store)
{
    const int ranks[] = {0, 1};
    const struct disti_party party = {.group = 3, .ranks = ranks, .count = 2};
    struct disti_notice notice;
    char bytes[2][8] = {{0}}, host[DISTI_STORE_HOST];
    int64_t first;

    disti_store_take_numbers(store, 2, &first);
    disti_store_all_gather(store, &party, "key", bytes[0], bytes, sizeof(bytes[0]),
                           CLIENT_PATIENCE_MS);
    disti_store_broadcast(store, &party, "key", bytes, sizeof(bytes), CLIENT_PATIENCE_MS);
    disti_store_seen_host(store, host);
    disti_store_leave(store, &party, "key", CLIENT_PATIENCE_MS);
    while (disti_store_notice(store, &notice))
        ;
}

void fuzz_store_client(struct fuzz_input *input)
{
    struct disti_store_target target = {
        .host = "127.0.0.1", .rank = 0, .world_size = 2};
    struct disti_store_tries tries = {0};
    struct client_server server = {.input = input};
    struct disti_store *store = NULL;
    pthread_t thread;

    server.listen_fd = fuzz_listen(&target.port);
    FUZZ_MUST(fcntl(server.listen_fd, F_SETFL, 0) == 0);
    FUZZ_MUST(disti_thread_create(&thread, client_serve, &server) == 0);
    if (disti_store_try(&target, disti_deadline_ms(CLIENT_PATIENCE_MS), &tries, &store) ==
        DIST_OK) {
        client_ask(store);
        disti_store_close(store);
    }
    pthread_join(thread, NULL);
    close(server.listen_fd);
}
