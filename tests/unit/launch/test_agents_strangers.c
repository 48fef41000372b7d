/* SPDX-License-Identifier: BSD-3-Clause */
/* Malformed messages: clients that send them are refused and the job continues; a server that sends
 * them ends its agents. */
#include "tests/unit/launch/agents.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/net.h"
#include "launch/agents/message.h"

#define CLIENTS 40

static uint64_t seed = 1;
static struct disti_agents_event events[2];

static int any(int n)
{
    return (int)(unit_random(&seed) % (uint64_t)n);
}

static void randomize(unsigned char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)any(256);
}

static int call(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    return fd;
}

/* Makes a frame of a random op and value, mostly of a size that some op has; sometimes the header
 * is invalid. Returns the length of the frame, which may be less or more than the header requires.
 */
static size_t any_frame(unsigned char *bytes, size_t room)
{
    static const size_t sizes[] = {0,
                                   4,
                                   AGENTS_NONCE,
                                   AGENTS_NONCE + AGENTS_JOB,
                                   DISTI_HMAC_BYTES + AGENTS_MEMBER_BYTES,
                                   DISTI_HMAC_BYTES + AGENTS_WELCOME_BYTES,
                                   AGENTS_FAILURE_BYTES,
                                   AGENTS_ROUND_BYTES + 8};
    struct disti_wire_head head = {.op = (uint8_t)(AGENTS_HELLO - 1 + any(18)),
                                   .value_bytes = sizes[any(8)]};

    if (any(4) == 0)
        head.value_bytes = (uint64_t)any(600);
    assert_true(DISTI_WIRE_HEAD + head.value_bytes <= room);
    disti_wire_put_head(bytes, &head);
    if (any(2))
        randomize(bytes + DISTI_WIRE_HEAD, head.value_bytes);
    else
        memset(bytes + DISTI_WIRE_HEAD, any(3), head.value_bytes);
    if (any(5) == 0)
        bytes[any(DISTI_WIRE_HEAD)] = (unsigned char)any(256);
    return DISTI_WIRE_HEAD + (any(5) ? head.value_bytes : (size_t)any(20));
}

/* Sends a valid hello, so that the server reads the next frame. */
static void send_hello(int fd)
{
    unsigned char bytes[DISTI_WIRE_HEAD + AGENTS_NONCE + AGENTS_JOB] = {0};
    struct disti_wire_head head = {.op = AGENTS_HELLO, .value_bytes = AGENTS_NONCE + AGENTS_JOB};

    disti_wire_put_head(bytes, &head);
    disti_agents_put_text(bytes + DISTI_WIRE_HEAD + AGENTS_NONCE, "a job", AGENTS_JOB);
    assert_true(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == (ssize_t)sizeof(bytes));
}

static void test_random_frames_do_not_disturb_the_server(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents *agents[2] = {agents_first(&config)};
    unsigned char bytes[4096];
    int fds[CLIENTS], repeats = getenv("CHECK_LONG") ? 200 : 8;

    (void)state;
    for (int k = 0; k < repeats; k++) {
        for (int i = 0; i < CLIENTS; i++) {
            fds[i] = call(config.endpoint_port);
            if (any(2))
                send_hello(fds[i]);
            for (int f = any(3); f >= 0; f--)
                send(fds[i], bytes, any_frame(bytes, sizeof(bytes)), MSG_NOSIGNAL);
        }
        agents_expect_quiet(agents, 1, 3);
        for (int i = 0; i < CLIENTS; i++)
            close(fds[i]);
    }
    agents[1] = agents_open(&config);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    assert_int_equal(events[0].round.nodes, 2);
    agents_close_all(agents, 2);
}

/* The server closes the connection of a refused client after a few more frames, however many the
 * client sends. */
static void test_a_refused_client_is_disconnected(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents *agents = agents_first(&config);
    unsigned char frame[DISTI_WIRE_HEAD] = {0};
    const struct disti_wire_head head = {.op = AGENTS_BEAT};
    const int64_t until = disti_deadline_ms(WAIT_MS);
    int sent = 0, fd = call(config.endpoint_port);

    (void)state;
    disti_wire_put_head(frame, &head);
    while (send(fd, frame, sizeof(frame), MSG_NOSIGNAL) == (ssize_t)sizeof(frame)) {
        assert_false(disti_expired(until));
        assert_in_range(++sent, 1, 100);
        agents_expect_quiet(&agents, 1, 1);
    }
    close(fd);
    disti_agents_close(agents, NULL, 0);
}

/* Reads the next frame, and polls the agents meanwhile. */
static void read_frame(int fd, struct disti_wire_reader *reader, struct disti_agents **agents,
                       int n)
{
    int64_t deadline = disti_deadline_ms(WAIT_MS);

    disti_wire_next(reader);
    while (disti_wire_read(reader, fd) != DISTI_WIRE_FRAME) {
        assert_false(disti_expired(deadline));
        agents_expect_quiet(agents, n, 1);
    }
}

static void send_frame(int fd, uint8_t op, const unsigned char *value, size_t bytes)
{
    unsigned char frame[2048];
    struct disti_wire_head head = {.op = op, .value_bytes = bytes};

    disti_wire_put_head(frame, &head);
    memcpy(frame + DISTI_WIRE_HEAD, value, bytes);
    assert_true(send(fd, frame, DISTI_WIRE_HEAD + bytes, MSG_NOSIGNAL) ==
                (ssize_t)(DISTI_WIRE_HEAD + bytes));
}

/* Joins as an agent would, with a proof for the role `who`. Returns the op of the reply. */
static int join(int fd, const char *who, struct disti_agents **agents, int n)
{
    unsigned char value[DISTI_HMAC_BYTES + AGENTS_MEMBER_BYTES];
    struct agents_member member = {.node_rank = -1,
                                   .min_nodes = 2,
                                   .max_nodes = 3,
                                   .max_restarts = 1,
                                   .workers = 1,
                                   .host = "stranger",
                                   .address = "127.0.0.1"};
    struct agents_transcript transcript = {.secret = "a secret", .secret_bytes = 8, .job = "a job"};
    struct disti_wire_reader reader = {.limit = 4096};
    int op;

    send_hello(fd);
    read_frame(fd, &reader, agents, n);
    assert_int_equal(reader.head.op, AGENTS_CHALLENGE);
    memcpy(transcript.server_nonce, disti_wire_value(&reader), AGENTS_NONCE);
    disti_agents_put_member(value + DISTI_HMAC_BYTES, &member);
    disti_agents_prove(&transcript, who, value + DISTI_HMAC_BYTES, AGENTS_MEMBER_BYTES, value);
    send_frame(fd, AGENTS_JOIN, value, sizeof(value));
    read_frame(fd, &reader, agents, n);
    op = reader.head.op;
    disti_wire_next(&reader);
    return op;
}

/* The server accepts no proof that is made for the role of the server. */
static void test_the_servers_proof_does_not_admit_a_client(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 3);
    struct disti_agents *agents;
    int fd;

    (void)state;
    config.max_restarts = 1;
    agents = agents_first(&config);
    fd = call(config.endpoint_port);
    assert_int_equal(join(fd, "server", &agents, 1), AGENTS_REFUSED);
    close(fd);
    disti_agents_close(agents, NULL, 0);
}

/* An agent with the secret joins the round and then sends random bytes: the other agents drop it
 * and continue. */
static void test_a_member_that_sends_nonsense_is_dropped(void **state)
{
    int repeats = getenv("CHECK_LONG") ? 300 : 20;

    (void)state;
    for (int k = 0; k < repeats; k++) {
        struct disti_agents_config config = agents_config(0, 2, 3);
        struct disti_agents *agents[2];
        unsigned char bytes[4096];
        size_t size;
        int fd;

        config.max_restarts = 1;
        agents[0] = agents_first(&config);
        agents[1] = agents_open(&config);
        fd = call(config.endpoint_port);
        assert_int_equal(join(fd, "agent", agents, 2), AGENTS_WELCOME);
        agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
        assert_int_equal(events[0].round.nodes, 3);
        size = any_frame(bytes, sizeof(bytes));
        if (bytes[5] != AGENTS_ENDED) /* an agent that reports success may leave */
            send(fd, bytes, size, MSG_NOSIGNAL);
        randomize(bytes, sizeof(bytes));
        send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL);
        agents_expect(agents, 2, DISTI_AGENTS_RESTART, events);
        disti_agents_ready(agents[0]);
        disti_agents_ready(agents[1]);
        agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
        assert_int_equal(events[0].round.nodes, 2);
        agents_close_all(agents, 2);
        close(fd);
    }
}

/* Accepts an agent's connection and welcomes it as its server would. Returns the connection. */
static int welcome(int listener, struct disti_agents *agents)
{
    unsigned char nonce[AGENTS_NONCE] = {0}, value[DISTI_HMAC_BYTES + AGENTS_WELCOME_BYTES];
    struct agents_welcome text = {.interval_ms = 100, .silence_ms = 200, .host = "liar"};
    struct agents_transcript transcript = {.secret = "a secret", .secret_bytes = 8, .job = "a job"};
    struct disti_wire_reader reader = {.limit = 4096};
    int fd;

    agents_expect_quiet(&agents, 1, 1);
    while ((fd = accept(listener, NULL, NULL)) < 0)
        agents_expect_quiet(&agents, 1, 1);
    read_frame(fd, &reader, &agents, 1);
    memcpy(transcript.agent_nonce, disti_wire_value(&reader), AGENTS_NONCE);
    send_frame(fd, AGENTS_CHALLENGE, nonce, sizeof(nonce));
    read_frame(fd, &reader, &agents, 1);
    disti_wire_next(&reader);
    disti_agents_put_welcome(value + DISTI_HMAC_BYTES, &text);
    disti_agents_prove(&transcript, "server", value + DISTI_HMAC_BYTES, AGENTS_WELCOME_BYTES,
                       value);
    send_frame(fd, AGENTS_WELCOME, value, sizeof(value));
    return fd;
}

/* The agent ends after any frames of a server, and each of its events is valid. */
static void test_nonsense_of_the_server_ends_the_agent(void **state)
{
    int repeats = getenv("CHECK_LONG") ? 300 : 20;

    (void)state;
    for (int k = 0; k < repeats; k++) {
        struct disti_agents_config config = agents_config(0, 2, 2);
        struct disti_agents_event event = {.type = DISTI_AGENTS_NOTE};
        int64_t deadline = disti_deadline_ms(WAIT_MS);
        struct disti_agents *agents;
        unsigned char bytes[4096];
        int listener, fd;

        assert_int_equal(disti_listen("127.0.0.1", 0, 0, &listener, &config.endpoint_port),
                         DIST_OK);
        config.serve = DISTI_AGENTS_SERVE_NEVER;
        agents = agents_open(&config);
        fd = welcome(listener, agents);
        while (event.type < DISTI_AGENTS_FINISHED || event.type == DISTI_AGENTS_NOTE) {
            assert_false(disti_expired(deadline));
            send(fd, bytes, any_frame(bytes, sizeof(bytes)), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (!disti_agents_next_event(agents, &event))
                event.type = DISTI_AGENTS_NOTE;
            else if (event.type == DISTI_AGENTS_RESTART)
                disti_agents_ready(agents);
        }
        disti_agents_close(agents, NULL, 0);
        close(fd);
        close(listener);
    }
}

/* A server without the secret sends random frames: the agent ignores their content and ends. */
static void test_an_agent_ignores_a_server_without_the_secret(void **state)
{
    int repeats = getenv("CHECK_LONG") ? 1000 : 60;

    (void)state;
    for (int k = 0; k < repeats; k++) {
        struct disti_agents_config config = agents_config(0, 2, 2);
        struct disti_agents *agents;
        struct disti_agents_event event = {.type = DISTI_AGENTS_NOTE};
        unsigned char bytes[4096];
        int64_t deadline = disti_deadline_ms(WAIT_MS);
        int listener, fd = -1;

        assert_int_equal(disti_listen("127.0.0.1", 0, 0, &listener, &config.endpoint_port),
                         DIST_OK);
        config.serve = DISTI_AGENTS_SERVE_NEVER;
        config.join_timeout_ms = 60;
        agents = agents_open(&config);
        while (event.type == DISTI_AGENTS_NOTE || !event.text[0]) {
            disti_agents_next_event(agents, &event);
            assert_false(disti_expired(deadline));
            if (fd < 0 && (fd = accept(listener, NULL, NULL)) < 0)
                continue;
            send(fd, bytes, any_frame(bytes, sizeof(bytes)), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        assert_int_equal(event.type, DISTI_AGENTS_BROKEN);
        disti_agents_close(agents, NULL, 0);
        close(fd);
        close(listener);
    }
}

/* Values parsed from random bytes are within their bounds. */
static void test_parsing_random_bytes_stays_within_bounds(void **state)
{
    static int workers[DISTI_AGENTS_NODES_MAX];
    static unsigned char bytes[AGENTS_LIMIT_SERVER];
    struct disti_wire_reader frame = {.body = bytes};
    struct disti_agents_failure failure;
    struct disti_agents_round round;
    struct agents_member member;
    int read = 0;

    (void)state;
    for (int i = 0; i < 20000; i++) {
        memset(bytes, 0, 1600);
        for (int k = any(6); k > 0; k--)
            bytes[any(60)] = (unsigned char)any(any(2) ? 3 : 256);
        if (any(20) == 0)
            randomize(bytes, 1600);
        frame.head.value_bytes = AGENTS_FAILURE_BYTES;
        read += disti_agents_get_failure(&frame, &failure) && strlen(failure.text) < 1024;
        frame.head.value_bytes = AGENTS_ROUND_BYTES + 4 * (uint64_t)any(4);
        if (disti_agents_get_round(&frame, &round, workers))
            assert_true(round.node_rank >= 0 && round.node_rank < round.nodes &&
                        round.world_size >= round.nodes && round.first_rank < round.world_size);
        if (disti_agents_get_member(bytes, &member))
            assert_true(member.host[0] && member.workers >= 1 && member.min_nodes >= 1 &&
                        member.min_nodes <= member.max_nodes);
    }
    assert_true(read > 0);
}

static void test_a_failure_is_encoded_and_decoded(void **state)
{
    unsigned char bytes[AGENTS_FAILURE_BYTES];
    struct disti_wire_reader frame = {.body = bytes, .head.value_bytes = AGENTS_FAILURE_BYTES};
    struct disti_agents_failure f = {.cause = DISTI_AGENTS_WORKER_FAILED,
                                     .host = "node1",
                                     .node_rank = 1,
                                     .rank = 5,
                                     .local_rank = 2,
                                     .pid = 77,
                                     .exit_code = -3,
                                     .time_ms = INT64_C(1) << 40,
                                     .is_final = true,
                                     .text = "line\none"};
    struct disti_agents_failure back;

    (void)state;
    disti_agents_put_failure(bytes, &f);
    assert_true(disti_agents_get_failure(&frame, &back));
    assert_string_equal(back.text, "line?one");
    assert_string_equal(back.host, "node1");
    assert_int_equal(back.exit_code, -3);
    assert_true(back.is_final && !back.is_consequence && back.time_ms == f.time_ms);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_frames_do_not_disturb_the_server),
        cmocka_unit_test(test_a_refused_client_is_disconnected),
        cmocka_unit_test(test_the_servers_proof_does_not_admit_a_client),
        cmocka_unit_test(test_a_member_that_sends_nonsense_is_dropped),
        cmocka_unit_test(test_nonsense_of_the_server_ends_the_agent),
        cmocka_unit_test(test_an_agent_ignores_a_server_without_the_secret),
        cmocka_unit_test(test_parsing_random_bytes_stays_within_bounds),
        cmocka_unit_test(test_a_failure_is_encoded_and_decoded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
