/* SPDX-License-Identifier: BSD-3-Clause */
/* Who speaks nonsense to agents is refused, and the job goes on; a server that does ends them. */
#include "tests/unit/launch/agents.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/net/socket.h"
#include "launch/agents/message.h"

#define STRANGERS 40

static uint64_t seed = 1;
static struct disti_agents_event events[4];

static int any(int n)
{
    return (int)(unit_random(&seed) % (uint64_t)n);
}

static void scribble(unsigned char *bytes, size_t size)
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

/* A frame of any op and any value, mostly of a size that some op has; sometimes the head is bad. */
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
        scribble(bytes + DISTI_WIRE_HEAD, head.value_bytes);
    else
        memset(bytes + DISTI_WIRE_HEAD, any(3), head.value_bytes);
    if (any(5) == 0)
        bytes[any(DISTI_WIRE_HEAD)] = (unsigned char)any(256);
    return DISTI_WIRE_HEAD + (any(5) ? head.value_bytes : (size_t)any(20));
}

/* A right hello, so that the server listens to the next frame. */
static void say_hello(int fd)
{
    unsigned char bytes[DISTI_WIRE_HEAD + AGENTS_NONCE + AGENTS_JOB] = {0};
    struct disti_wire_head head = {.op = AGENTS_HELLO, .value_bytes = AGENTS_NONCE + AGENTS_JOB};

    disti_wire_put_head(bytes, &head);
    disti_agents_put_text(bytes + DISTI_WIRE_HEAD + AGENTS_NONCE, "a job", AGENTS_JOB);
    assert_true(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == (ssize_t)sizeof(bytes));
}

static void test_server_is_spoken_to(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents *agents[2] = {agents_first(&config)};
    unsigned char bytes[4096];
    int fds[STRANGERS], repeats = getenv("CHECK_LONG") ? 200 : 8;

    (void)state;
    for (int k = 0; k < repeats; k++) {
        for (int i = 0; i < STRANGERS; i++) {
            fds[i] = call(config.endpoint_port);
            if (any(2))
                say_hello(fds[i]);
            for (int f = any(3); f >= 0; f--)
                send(fds[i], bytes, any_frame(bytes, sizeof(bytes)), MSG_NOSIGNAL);
        }
        agents_move(agents, 1, 3);
        for (int i = 0; i < STRANGERS; i++)
            close(fds[i]);
    }
    agents[1] = agents_open(&config);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    assert_int_equal(events[0].round.nodes, 2);
    agents_close_all(agents, 2);
}

/* Reads until the server hangs up: a proof of another's is worth nothing, nor is one for "server".
 */
static void test_proof_is_needed(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents *agents = agents_first(&config);
    unsigned char bytes[DISTI_WIRE_HEAD + DISTI_HMAC_BYTES + AGENTS_MEMBER_BYTES] = {0};
    struct disti_wire_head head = {.op = AGENTS_JOIN,
                                   .value_bytes = DISTI_HMAC_BYTES + AGENTS_MEMBER_BYTES};
    struct agents_member member = {.node_rank = -1,
                                   .min_nodes = 2,
                                   .max_nodes = 2,
                                   .workers = 1,
                                   .host = "stranger",
                                   .address = "127.0.0.1"};
    struct agents_transcript transcript = {.secret = "a secret", .secret_bytes = 8, .job = "a job"};
    struct disti_wire_reader reader = {.limit = 4096};
    unsigned char *value = bytes + DISTI_WIRE_HEAD;
    int fd = call(config.endpoint_port);

    (void)state;
    say_hello(fd);
    agents_move(&agents, 1, 20);
    assert_int_equal(disti_wire_read(&reader, fd), DISTI_WIRE_FRAME);
    assert_int_equal(reader.head.op, AGENTS_CHALLENGE);
    memcpy(transcript.server_nonce, disti_wire_value(&reader), AGENTS_NONCE);
    disti_wire_next(&reader);
    disti_wire_put_head(bytes, &head);
    disti_agents_put_member(value + DISTI_HMAC_BYTES, &member);
    disti_agents_prove(&transcript, "server", value + DISTI_HMAC_BYTES, AGENTS_MEMBER_BYTES, value);
    assert_true(send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == (ssize_t)sizeof(bytes));
    agents_move(&agents, 1, 20);
    assert_int_equal(disti_wire_read(&reader, fd), DISTI_WIRE_FRAME);
    assert_int_equal(reader.head.op, AGENTS_REFUSED);
    disti_wire_next(&reader);
    close(fd);
    disti_agents_close(agents, NULL, 0);
}

/* A server without the secret, which says anything: the agent believes nothing, and ends. */
static void test_agent_is_spoken_to(void **state)
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

        assert_int_equal(disti_listen("127.0.0.1", 0, &listener, &config.endpoint_port), DIST_OK);
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

/* What is read of any bytes is within its bounds. */
static void test_any_bytes(void **state)
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
            scribble(bytes, 1600);
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

static void test_there_and_back(void **state)
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
        cmocka_unit_test(test_server_is_spoken_to), cmocka_unit_test(test_proof_is_needed),
        cmocka_unit_test(test_agent_is_spoken_to),  cmocka_unit_test(test_any_bytes),
        cmocka_unit_test(test_there_and_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
