/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agents of distrun: the one that serves, fed by three callers, and one that joins, fed by a
 * server. In a job without a secret, so that nothing has to be proved. A byte says what comes:
 *
 *     bits 0, 1   the caller
 *     bits 2, 3   0: bytes as they are   1: a frame   2: what comes first, as it should be
 *                 3: hangs up
 */
#include "tests/fuzz/fuzz.h"

#include "base/clock.h"
#include "launch/agents/agents.h"
#include "launch/agents/message.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AGENTS_CALLERS 3
#define AGENTS_PATIENCE_MS 20000
#define AGENTS_TURNS 4 /* in which what was sent has come, over the loopback address */

static struct disti_agents *agents_open(enum disti_agents_serve serve, int port)
{
    struct disti_agents_config config;
    struct disti_agents *agents;

    disti_agents_defaults(&config);
    config.endpoint_host = "127.0.0.1";
    config.endpoint_port = port;
    config.serve = serve;
    config.job = "job";
    config.min_nodes = 1;
    config.max_nodes = AGENTS_CALLERS + 1;
    config.max_restarts = 3;
    config.join_timeout_ms = AGENTS_PATIENCE_MS;
    config.last_call_timeout_ms = 0;
    FUZZ_MUST(disti_agents_open(&config, &agents) == DIST_OK);
    return agents;
}

/* What a node does on an event. */
static void agents_answer(struct disti_agents *agents, const struct disti_agents_event *event)
{
    const struct disti_agents_failure failure = {.rank = 0, .exit_code = 1};

    if (event->type == DISTI_AGENTS_RESTART)
        disti_agents_ready(agents);
    else if (event->type == DISTI_AGENTS_ROUND && event->round.round % 2)
        disti_agents_failed(agents, &failure);
    else if (event->type == DISTI_AGENTS_ROUND)
        disti_agents_succeeded(agents);
}

static void agents_move(struct disti_agents *agents)
{
    struct disti_agents_event event;

    for (int i = 0; i < AGENTS_TURNS; i++) {
        while (disti_agents_next_event(agents, &event))
            agents_answer(agents, &event);
    }
}

static void agents_hello(int fd)
{
    unsigned char value[AGENTS_NONCE + AGENTS_JOB] = {0};

    disti_agents_put_text(value + AGENTS_NONCE, "job", AGENTS_JOB);
    fuzz_send_frame(fd, AGENTS_HELLO, 0, 0, (struct fuzz_input){0}, value, sizeof(value));
}

static void agents_join(int fd)
{
    unsigned char value[DISTI_HMAC_BYTES + AGENTS_MEMBER_BYTES] = {0};
    const struct agents_member member = {.pid = 1,
                                         .node_rank = -1,
                                         .min_nodes = 1,
                                         .max_nodes = AGENTS_CALLERS + 1,
                                         .max_restarts = 3,
                                         .workers = 1,
                                         .master_port = 1,
                                         .store_port = 2,
                                         .host = "host",
                                         .address = "127.0.0.1"};

    disti_agents_put_member(value + DISTI_HMAC_BYTES, &member);
    fuzz_send_frame(fd, AGENTS_JOIN, 0, 0, (struct fuzz_input){0}, value, sizeof(value));
}

static void agents_challenge_and_welcome(int fd)
{
    unsigned char nonce[AGENTS_NONCE] = {0};
    unsigned char value[DISTI_HMAC_BYTES + AGENTS_WELCOME_BYTES] = {0};
    const struct agents_welcome welcome = {
        .pid = 1, .interval_ms = 5000, .silence_ms = 15000, .host = "host"};

    fuzz_send_frame(fd, AGENTS_CHALLENGE, 0, 0, (struct fuzz_input){0}, nonce, sizeof(nonce));
    disti_agents_put_welcome(value + DISTI_HMAC_BYTES, &welcome);
    fuzz_send_frame(fd, AGENTS_WELCOME, 0, 0, (struct fuzz_input){0}, value, sizeof(value));
}

/* Bytes or a frame. */
static void agents_say(int fd, uint8_t what, struct fuzz_input *input)
{
    struct fuzz_input piece;

    if (what >> 2 & 1) {
        fuzz_send_some_frame(fd, input);
    } else {
        piece = fuzz_take(input, fuzz_byte(input));
        fuzz_send(fd, piece.at, piece.left);
    }
}

void fuzz_agents_server(struct fuzz_input *input)
{
    struct disti_agents *agents = agents_open(DISTI_AGENTS_SERVE, 0);
    int callers[AGENTS_CALLERS] = {-1, -1, -1};

    while (input->left) {
        uint8_t what = fuzz_byte(input);
        int *fd = &callers[(what & 3) % AGENTS_CALLERS];

        if (*fd < 0)
            *fd = fuzz_connect(disti_agents_port(agents));
        if ((what >> 2 & 3) == 2) {
            agents_hello(*fd);
            agents_join(*fd);
        } else if ((what >> 2 & 3) == 3) {
            fuzz_hang_up(*fd);
            *fd = -1;
        } else {
            agents_say(*fd, what, input);
        }
        agents_move(agents);
    }
    for (int i = 0; i < AGENTS_CALLERS; i++)
        fuzz_hang_up(callers[i]);
    disti_agents_close(agents, "the end", 0);
}

/* A joining agent tries again after a refusal: as long as there is something to say, it is heard.
 */
static void agents_serve(struct disti_agents *agents, int *fd, struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input);

    if ((what >> 2 & 3) == 2) {
        agents_challenge_and_welcome(*fd);
    } else if ((what >> 2 & 3) == 3) {
        fuzz_hang_up(*fd);
        *fd = -1;
    } else {
        agents_say(*fd, what, input);
    }
    agents_move(agents);
}

void fuzz_agents_client(struct fuzz_input *input)
{
    int port, listen_fd = fuzz_listen(&port), fd = -1;
    struct disti_agents *agents = agents_open(DISTI_AGENTS_SERVE_NEVER, port);
    int64_t deadline = disti_deadline_ms(100);

    while (input->left && !disti_expired(deadline)) {
        agents_move(agents);
        if (fd < 0)
            fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            agents_serve(agents, &fd, input);
    }
    agents_move(agents);
    fuzz_hang_up(fd);
    close(listen_fd);
    disti_agents_close(agents, "the end", 0);
}
