/* SPDX-License-Identifier: BSD-3-Clause */
/* The store and clients with another secret, without one, or with the proof of another client. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/net.h"
#include "ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>

#define WAIT_MS 20000
#define WORLD 3

static struct disti_store_server *server;
static struct disti_secret secret, another;
static const struct disti_secret none;

static int open_job(void **state)
{
    (void)state;
    disti_secret_set_token(&secret, "a secret of 24 bytes, or so");
    disti_secret_set_token(&another, "a secret of 24 bytes, or sO");
    assert_int_equal(disti_store_server_listen("127.0.0.1", 0, WORLD, 0, &server), DIST_OK);
    server->secret = secret;
    return disti_store_server_run(server);
}

static dist_status connect_with(int rank, const struct disti_secret *with,
                                struct disti_store **store_p)
{
    struct disti_store_target target = {.host = "127.0.0.1",
                                        .port = disti_store_server_port(server),
                                        .rank = rank,
                                        .world_size = WORLD,
                                        .secret = with};

    *store_p = NULL;
    return disti_store_reach(&target, WAIT_MS, disti_deadline_ms(WAIT_MS), store_p);
}

/* Refused clients have used up no rank: all ranks can still join, and they get the same key. */
static int close_job(void **state)
{
    struct disti_store *stores[WORLD];

    (void)state;
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(connect_with(r, &secret, &stores[r]), DIST_OK);
        assert_memory_equal(disti_store_key(stores[r]), disti_store_key(stores[0]),
                            DISTI_STORE_KEY);
    }
    for (int r = 0; r < WORLD; r++)
        disti_store_close(stores[r]);
    disti_store_server_stop(server, WAIT_MS);
    return 0;
}

static void expect_refused(const struct disti_secret *with, const char *says)
{
    struct disti_store *store;

    assert_int_equal(connect_with(1, with, &store), DIST_ERR_RENDEZVOUS);
    assert_null(store);
    assert_non_null(strstr(dist_last_error(), says));
}

static void test_other_secrets_are_refused(void **state)
{
    (void)state;
    expect_refused(&another, "has a different secret");
    snprintf(another.path, sizeof(another.path), "/where/it/is");
    expect_refused(&another, "/where/it/is: use a file");
    expect_refused(NULL, "requires a secret");
    expect_refused(NULL, "DIST_SECRET_FILE");
}

/* Expects that the store refuses the client and closes the connection. */
static void expect_closed(int fd)
{
    char text[512];
    size_t bytes;

    assert_int_equal(ranks_read_reply(fd, text, sizeof(text), &bytes), DIST_ERR_MISMATCH);
    assert_int_equal(recv(fd, text, 1, 0), 0);
    close(fd);
}

static void send_proof(int fd, const unsigned char *proof)
{
    ranks_put_frame(fd, DISTI_WIRE_PROOF, 2, proof, DISTI_HMAC_BYTES);
}

/* A hello and a proof that are valid on one connection are repeated on another. */
static void test_a_replayed_proof_is_refused(void **state)
{
    unsigned char proof[DISTI_HMAC_BYTES], welcome[DISTI_WIRE_WELCOME];
    struct disti_wire_handshake handshake = {0}, again;
    int first = ranks_open_connection(server), second = ranks_open_connection(server);
    size_t bytes;

    (void)state;
    ranks_send_hello(first, &handshake, 1, WORLD);
    assert_true(ranks_read_challenge(first, &handshake));
    disti_wire_prove_client(&handshake, &secret, proof);
    ranks_send_hello(second, &again, 1, WORLD);
    assert_true(ranks_read_challenge(second, &again));
    assert_memory_equal(handshake.hello, again.hello, sizeof(handshake.hello));
    assert_memory_not_equal(handshake.challenge, again.challenge, DISTI_NONCE_BYTES);
    send_proof(second, proof);
    expect_closed(second);
    send_proof(first, proof);
    assert_int_equal(ranks_read_reply(first, welcome, sizeof(welcome), &bytes), DIST_OK);
    ranks_put_frame(first, DISTI_WIRE_GOODBYE, 0, "", 0);
    close(first);
}

/* The store's own proof, a proof without a secret, and a guess, many times. */
static void test_a_reflected_proof_is_refused(void **state)
{
    unsigned char proof[DISTI_HMAC_BYTES] = {0}, welcome[DISTI_WIRE_WELCOME] = {0};
    struct disti_wire_handshake handshake = {0};
    const int tries = getenv("CHECK_LONG") ? 20000 : 200;

    (void)state;
    for (int i = 0; i < tries; i++) {
        int fd = ranks_open_connection(server);

        ranks_send_hello(fd, &handshake, 1, WORLD);
        assert_true(ranks_read_challenge(fd, &handshake));
        if (i % 3 == 0)
            disti_wire_prove_server(&handshake, welcome, &secret, proof);
        else if (i % 3 == 1)
            disti_wire_prove_client(&handshake, &none, proof);
        else
            memcpy(proof, handshake.challenge, sizeof(proof));
        send_proof(fd, proof);
        expect_closed(fd);
    }
}

/* A proof that is valid for rank 1 is not valid for rank 2. */
static void test_a_proof_of_another_rank_is_refused(void **state)
{
    unsigned char proof[DISTI_HMAC_BYTES];
    struct disti_wire_handshake handshake = {0}, other = {0};
    int fd = ranks_open_connection(server);

    (void)state;
    ranks_send_hello(fd, &handshake, 2, WORLD);
    assert_true(ranks_read_challenge(fd, &handshake));
    ranks_pack_hello(&other, 1, WORLD);
    memcpy(other.challenge, handshake.challenge, sizeof(other.challenge));
    disti_wire_prove_client(&other, &secret, proof);
    send_proof(fd, proof);
    expect_closed(fd);
}

/* Requests and a second hello before the proof get no answer. */
static void test_requests_before_the_proof_are_refused(void **state)
{
    struct disti_wire_handshake handshake = {0};

    (void)state;
    for (int op = DISTI_WIRE_HELLO; op <= DISTI_WIRE_LEAVE; op++) {
        int fd = ranks_open_connection(server);
        char byte;

        ranks_send_hello(fd, &handshake, 1, WORLD);
        assert_true(ranks_read_challenge(fd, &handshake));
        ranks_put_frame(fd, (uint8_t)op, 3, handshake.hello, sizeof(handshake.hello));
        assert_true(recv(fd, &byte, 1, 0) <= 0);
        close(fd);
    }
}

/* A process without the secret listens on the store's port: the rank detects that, whatever it
 * answers. */
static void impostor(int listener, bool with_flag)
{
    struct disti_wire_handshake handshake = {0};
    unsigned char head[DISTI_WIRE_HEAD], welcome[DISTI_WIRE_WELCOME] = {0};
    struct disti_wire_head reply = {.op = DISTI_WIRE_REPLY};
    int fd = accept(listener, NULL, NULL);

    for (int step = 0; step < 2; step++) {
        size_t expected = step ? DISTI_HMAC_BYTES : DISTI_WIRE_ID;
        size_t bytes = step ? sizeof(welcome) : sizeof(handshake.challenge);

        if (recv(fd, head, sizeof(head), MSG_WAITALL) != sizeof(head))
            break; /* the rank has closed the connection after the challenge */
        reply.id = disti_wire_get32(head + 8);
        /* Returns the rank's own proof as the server's proof. */
        CHECK(recv(fd, step ? welcome + 16 : handshake.hello, expected, MSG_WAITALL) ==
              (ssize_t)expected);
        handshake.challenge[DISTI_NONCE_BYTES] = with_flag;
        reply.value_bytes = bytes;
        disti_wire_put_head(head, &reply);
        (void)!send(fd, head, sizeof(head), MSG_NOSIGNAL);
        (void)!send(fd, step ? welcome : handshake.challenge, bytes, MSG_NOSIGNAL);
    }
    (void)!recv(fd, head, 1, 0);
    _exit(0);
}

static void meet_impostor(bool with_flag, const char *message)
{
    struct disti_store_target target = {
        .host = "127.0.0.1", .rank = 1, .world_size = WORLD, .secret = &secret};
    struct disti_store *store = NULL;
    int listener, fd;
    pid_t child;

    assert_int_equal(disti_listen("127.0.0.1", 0, 0, &listener, &target.port), DIST_OK);
    fd = dup(listener); /* the library's descriptor is closed in a child */
    disti_descriptor_close(listener);
    fcntl(fd, F_SETFL, 0);
    fflush(NULL);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        impostor(fd, with_flag);
    }
    close(fd);
    assert_int_equal(disti_store_reach(&target, WAIT_MS, disti_deadline_ms(WAIT_MS), &store),
                     DIST_ERR_RENDEZVOUS);
    assert_null(store);
    assert_non_null(strstr(dist_last_error(), message));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void test_a_server_without_the_secret_is_refused(void **state)
{
    (void)state;
    meet_impostor(true, "did not prove");
    meet_impostor(false, "has no secret");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_secrets_are_refused, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_a_replayed_proof_is_refused, open_job, NULL),
        cmocka_unit_test_setup_teardown(test_a_reflected_proof_is_refused, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_a_proof_of_another_rank_is_refused, open_job,
                                        close_job),
        cmocka_unit_test_setup_teardown(test_requests_before_the_proof_are_refused, open_job,
                                        close_job),
        cmocka_unit_test(test_a_server_without_the_secret_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
