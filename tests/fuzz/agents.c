/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agents of distrun. Target agents_server is an agent that serves, and the input is what three
 * callers send. Target agents_client is an agent that joins, and the input is what the server
 * sends. The first byte configures the job:
 *
 *     bit 0       the job has a token, which all callers have too
 *     bit 1       all nodes must have the same number of workers
 *
 * One more byte for each event:
 *
 *     bits 0, 1   the caller that acts
 *     bits 2, 3   0: sends raw bytes   1: sends a frame   2: sends its valid first messages
 *                 3: closes the connection, or, if bit 4 is set, time passes
 *     Event 2 of a caller, defects of its first message:
 *     bit 4       another number of nodes
 *     bit 5       another number of workers
 *     bit 6       a request to be the first node
 *     bit 7       an invalid proof
 */
#include "tests/fuzz/fuzz.h"

#include "launch/agents/agents.h"
#include "launch/agents/message.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define AGENTS_CALLERS 3
#define AGENTS_PATIENCE_MS 20000
#define AGENTS_TURNS                                                                               \
    4 /* turns until data that were sent over the loopback address have arrived                    \
       */

#define AGENTS_SECRET_BIT 1
#define AGENTS_SAME_BIT 2
#define AGENTS_LATER_S 70
#define AGENTS_TRIES 256 /* maximum number of turns of the server of a joining agent */

static const char agents_secret[] = "the secret of this job";

static struct disti_agents *agents_open(enum disti_agents_serve serve, int port, uint8_t how)
{
    struct disti_agents_config config;
    struct disti_agents *agents;

    disti_agents_defaults(&config);
    config.endpoint_host = "127.0.0.1";
    config.endpoint_port = port;
    config.serve = serve;
    config.job = "job";
    config.secret = how & AGENTS_SECRET_BIT ? agents_secret : NULL;
    config.secret_bytes = how & AGENTS_SECRET_BIT ? sizeof(agents_secret) : 0;
    config.same_workers = how & AGENTS_SAME_BIT;
    config.min_nodes = 1;
    config.max_nodes = AGENTS_CALLERS + 1;
    config.max_restarts = 3;
    config.join_timeout_ms = AGENTS_PATIENCE_MS;
    /*
     * A token requires more messages: without this time the first round would begin before any
     * caller could prove its identity.
     */
    config.last_call_timeout_ms = how & AGENTS_SECRET_BIT ? 1000 : 0;
    FUZZ_MUST(disti_agents_open(&config, &agents) == DIST_OK);
    return agents;
}

/* Reacts to an event as a node does. */
static void agents_answer(struct disti_agents *agents, const struct disti_agents_event *event)
{
    const struct disti_agents_failure failure = {.rank = 0, .exit_code = 1};

    if (event->type == DISTI_AGENTS_RESTART)
        disti_agents_ready(agents);
    else if (event->type == DISTI_AGENTS_ROUND && event->round.round % 2)
        disti_agents_failed(agents, &failure);
    else if (event->type == DISTI_AGENTS_ROUND)
        disti_agents_ended(agents, 1);
}

static void agents_move(struct disti_agents *agents)
{
    struct disti_agents_event event;

    for (int i = 0; i < AGENTS_TURNS; i++) {
        while (disti_agents_next_event(agents, &event))
            agents_answer(agents, &event);
    }
}

/* Returns the data that a proof covers, without the nonces. */
static struct agents_transcript agents_transcript(uint8_t how)
{
    struct agents_transcript transcript = {.job = "job"};

    if (how & AGENTS_SECRET_BIT) {
        transcript.secret = agents_secret;
        transcript.secret_bytes = sizeof(agents_secret);
    }
    return transcript;
}

/* Stores the nonce of the last frame of that kind received, or zeros if there was none. */
static void agents_read_nonce(int fd, uint8_t op, unsigned char nonce[AGENTS_NONCE])
{
    unsigned char bytes[8192];
    ssize_t got = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    struct disti_wire_head head;

    for (ssize_t at = 0; at + DISTI_WIRE_HEAD + AGENTS_NONCE <= got;) {
        if (!disti_wire_get_head(bytes + at, &head) || head.value_bytes > sizeof(bytes))
            return;
        if (head.op == op)
            memcpy(nonce, bytes + at + DISTI_WIRE_HEAD + head.key_bytes, AGENTS_NONCE);
        at += DISTI_WIRE_HEAD + head.key_bytes + (ssize_t)head.value_bytes;
    }
}

static void agents_hello(int fd)
{
    unsigned char value[AGENTS_NONCE + AGENTS_JOB] = {0};

    disti_agents_put_text(value + AGENTS_NONCE, "job", AGENTS_JOB);
    fuzz_send_frame(fd, AGENTS_HELLO, 0, 0, (struct fuzz_input){0}, value, sizeof(value));
}

static void agents_join(int fd, uint8_t how, uint8_t what)
{
    unsigned char value[DISTI_HMAC_BYTES + AGENTS_MEMBER_BYTES] = {0};
    struct agents_transcript transcript = agents_transcript(how);
    const struct agents_member member = {.pid = 1,
                                         .node_rank = what & 64 ? 0 : -1,
                                         .min_nodes = 1,
                                         .max_nodes = AGENTS_CALLERS + 1 + (what >> 4 & 1),
                                         .max_restarts = 3,
                                         .workers = what & 32 ? 2 : 1,
                                         .same_workers = how & AGENTS_SAME_BIT,
                                         .master_port = 1,
                                         .store_port = 2,
                                         .host = "host",
                                         .address = "127.0.0.1"};

    agents_read_nonce(fd, AGENTS_CHALLENGE, transcript.server_nonce);
    disti_agents_put_member(value + DISTI_HMAC_BYTES, &member);
    disti_agents_prove(&transcript, "agent", value + DISTI_HMAC_BYTES, AGENTS_MEMBER_BYTES, value);
    value[0] ^= what >> 7;
    fuzz_send_frame(fd, AGENTS_JOIN, 0, 0, (struct fuzz_input){0}, value, sizeof(value));
}

static void agents_challenge_and_welcome(int fd, uint8_t how)
{
    unsigned char nonce[AGENTS_NONCE] = {0};
    unsigned char value[DISTI_HMAC_BYTES + AGENTS_WELCOME_BYTES] = {0};
    struct agents_transcript transcript = agents_transcript(how);
    const struct agents_welcome welcome = {
        .pid = 1, .interval_ms = 5000, .silence_ms = 15000, .host = "host"};

    agents_read_nonce(fd, AGENTS_HELLO, transcript.agent_nonce);
    fuzz_send_frame(fd, AGENTS_CHALLENGE, 0, 0, (struct fuzz_input){0}, nonce, sizeof(nonce));
    disti_agents_put_welcome(value + DISTI_HMAC_BYTES, &welcome);
    disti_agents_prove(&transcript, "server", value + DISTI_HMAC_BYTES, AGENTS_WELCOME_BYTES,
                       value);
    fuzz_send_frame(fd, AGENTS_WELCOME, 0, 0, (struct fuzz_input){0}, value, sizeof(value));
}

/* Sends bytes or a frame. */
static void agents_send(int fd, uint8_t what, struct fuzz_input *input)
{
    struct fuzz_input piece;

    if (what >> 2 & 1) {
        fuzz_send_some_frame(fd, input);
    } else {
        piece = fuzz_take(input, fuzz_byte(input));
        fuzz_send(fd, piece.at, piece.left);
    }
}

/* Sends nothing: lets time pass, or closes the connection. */
static void agents_send_nothing(int *fd, uint8_t what)
{
    if (what & 16) {
        fuzz_advance_clock(AGENTS_LATER_S);
        return;
    }
    fuzz_close(*fd);
    *fd = -1;
}

void fuzz_agents_server(struct fuzz_input *input)
{
    const uint8_t how = fuzz_byte(input);
    struct disti_agents *agents = agents_open(DISTI_AGENTS_SERVE, 0, how);
    int callers[AGENTS_CALLERS] = {-1, -1, -1};

    while (input->left) {
        uint8_t what = fuzz_byte(input);
        int *fd = &callers[(what & 3) % AGENTS_CALLERS];

        if (*fd < 0)
            *fd = fuzz_connect(disti_agents_port(agents));
        if ((what >> 2 & 3) == 2) {
            agents_hello(*fd);
            if (how & AGENTS_SECRET_BIT)
                agents_move(agents);
            agents_join(*fd, how, what);
        } else if ((what >> 2 & 3) == 3) {
            agents_send_nothing(fd, what);
        } else {
            agents_send(*fd, what, input);
        }
        agents_move(agents);
    }
    for (int i = 0; i < AGENTS_CALLERS; i++)
        fuzz_close(callers[i]);
    disti_agents_close(agents, "the end", 0);
}

/* Handles one event of the server to which a joining agent is connected. */
static void agents_serve(struct disti_agents *agents, int *fd, uint8_t how,
                         struct fuzz_input *input)
{
    uint8_t what = fuzz_byte(input);

    if ((what >> 2 & 3) == 2) {
        agents_challenge_and_welcome(*fd, how);
    } else if ((what >> 2 & 3) == 3) {
        agents_send_nothing(fd, what);
    } else {
        agents_send(*fd, what, input);
    }
    agents_move(agents);
}

void fuzz_agents_client(struct fuzz_input *input)
{
    const uint8_t how = fuzz_byte(input);
    int port, listen_fd = fuzz_listen(&port), fd = -1;
    struct disti_agents *agents = agents_open(DISTI_AGENTS_SERVE_NEVER, port, how);

    for (int turn = 0; input->left && turn < AGENTS_TRIES; turn++) {
        agents_move(agents);
        if (fd < 0)
            fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            agents_serve(agents, &fd, how, input);
        else
            fuzz_advance_clock(1); /* lets a refused agent try again */
    }
    agents_move(agents);
    fuzz_close(fd);
    close(listen_fd);
    disti_agents_close(agents, "the end", 0);
}
