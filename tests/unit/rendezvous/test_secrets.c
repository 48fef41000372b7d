/* SPDX-License-Identifier: BSD-3-Clause */
/* The store and those who have another secret, none, or somebody else's proof. */
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

static dist_status come(int rank, const struct disti_secret *with, struct disti_store **store_p)
{
    struct disti_store_target target = {.host = "127.0.0.1",
                                        .port = disti_store_server_port(server),
                                        .rank = rank,
                                        .world_size = WORLD,
                                        .secret = with};

    *store_p = NULL;
    return disti_store_reach(&target, WAIT_MS, disti_deadline_ms(WAIT_MS), store_p);
}

/* Whoever was refused has taken no place: all ranks can still come, and have one key. */
static int close_job(void **state)
{
    struct disti_store *stores[WORLD];

    (void)state;
    for (int r = 0; r < WORLD; r++) {
        assert_int_equal(come(r, &secret, &stores[r]), DIST_OK);
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

    assert_int_equal(come(1, with, &store), DIST_ERR_RENDEZVOUS);
    assert_null(store);
    assert_non_null(strstr(dist_last_error(), says));
}

static void test_other_secrets(void **state)
{
    (void)state;
    expect_refused(&another, "has a different secret");
    snprintf(another.path, sizeof(another.path), "/where/it/is");
    expect_refused(&another, "/where/it/is: use a file");
    expect_refused(NULL, "requires a secret");
    expect_refused(NULL, "DIST_SECRET_FILE");
}

/* The store hangs up, after a refusal. */
static void expect_shown_out(int fd)
{
    char text[512];
    size_t bytes;

    assert_int_equal(ranks_hear(fd, text, sizeof(text), &bytes), DIST_ERR_MISMATCH);
    assert_int_equal(recv(fd, text, 1, 0), 0);
    close(fd);
}

static void say(int fd, const unsigned char *proof)
{
    ranks_put_frame(fd, DISTI_WIRE_PROOF, 2, proof, DISTI_HMAC_BYTES);
}

/* What was right on one connection is said again on another, hello and all. */
static void test_replay(void **state)
{
    unsigned char proof[DISTI_HMAC_BYTES], welcome[DISTI_WIRE_WELCOME];
    struct disti_wire_handshake said = {0}, again;
    int first = ranks_stranger(server), second = ranks_stranger(server);
    size_t bytes;

    (void)state;
    ranks_say_hello(first, &said, 1, WORLD);
    assert_true(ranks_hear_challenge(first, &said));
    disti_wire_prove_client(&said, &secret, proof);
    ranks_say_hello(second, &again, 1, WORLD);
    assert_true(ranks_hear_challenge(second, &again));
    assert_memory_equal(said.hello, again.hello, sizeof(said.hello));
    assert_memory_not_equal(said.challenge, again.challenge, DISTI_NONCE_BYTES);
    say(second, proof);
    expect_shown_out(second);
    say(first, proof);
    assert_int_equal(ranks_hear(first, welcome, sizeof(welcome), &bytes), DIST_OK);
    ranks_put_frame(first, DISTI_WIRE_GOODBYE, 0, "", 0);
    close(first);
}

/* The store's own proof, sent back to it; nothing at all; many that are guessed. */
static void test_reflected(void **state)
{
    unsigned char proof[DISTI_HMAC_BYTES] = {0}, welcome[DISTI_WIRE_WELCOME] = {0};
    struct disti_wire_handshake said = {0};
    const int tries = getenv("CHECK_LONG") ? 20000 : 200;

    (void)state;
    for (int i = 0; i < tries; i++) {
        int fd = ranks_stranger(server);

        ranks_say_hello(fd, &said, 1, WORLD);
        assert_true(ranks_hear_challenge(fd, &said));
        if (i % 3 == 0)
            disti_wire_prove_server(&said, welcome, &secret, proof);
        else if (i % 3 == 1)
            disti_wire_prove_client(&said, &none, proof);
        else
            memcpy(proof, said.challenge, sizeof(proof));
        say(fd, proof);
        expect_shown_out(fd);
    }
}

/* A proof that is right for rank 1 does not make its bearer rank 2. */
static void test_another_rank(void **state)
{
    unsigned char proof[DISTI_HMAC_BYTES];
    struct disti_wire_handshake said = {0}, other = {0};
    int fd = ranks_stranger(server);

    (void)state;
    ranks_say_hello(fd, &said, 2, WORLD);
    assert_true(ranks_hear_challenge(fd, &said));
    ranks_pack_hello(&other, 1, WORLD);
    memcpy(other.challenge, said.challenge, sizeof(other.challenge));
    disti_wire_prove_client(&other, &secret, proof);
    say(fd, proof);
    expect_shown_out(fd);
}

/* Requests, and a second hello, before the proof: nobody answers those. */
static void test_out_of_turn(void **state)
{
    struct disti_wire_handshake said = {0};

    (void)state;
    for (int op = DISTI_WIRE_HELLO; op <= DISTI_WIRE_LEAVE; op++) {
        int fd = ranks_stranger(server);
        char byte;

        ranks_say_hello(fd, &said, 1, WORLD);
        assert_true(ranks_hear_challenge(fd, &said));
        ranks_put_frame(fd, (uint8_t)op, 3, said.hello, sizeof(said.hello));
        assert_true(recv(fd, &byte, 1, 0) <= 0);
        close(fd);
    }
}

/* Somebody has the store's port, and no secret: the rank sees that, whatever he answers. */
static void impostor(int listener, bool with_flag)
{
    struct disti_wire_handshake said = {0};
    unsigned char head[DISTI_WIRE_HEAD], welcome[DISTI_WIRE_WELCOME] = {0};
    struct disti_wire_head reply = {.op = DISTI_WIRE_REPLY};
    int fd = accept(listener, NULL, NULL);

    for (int step = 0; step < 2; step++) {
        size_t expected = step ? DISTI_HMAC_BYTES : DISTI_WIRE_ID;
        size_t bytes = step ? sizeof(welcome) : sizeof(said.challenge);

        if (recv(fd, head, sizeof(head), MSG_WAITALL) != sizeof(head))
            break; /* the rank has left at the challenge */
        reply.id = disti_wire_get32(head + 8);
        /* The proof that he is given is the one that he tries, below. */
        CHECK(recv(fd, step ? welcome + 16 : said.hello, expected, MSG_WAITALL) ==
              (ssize_t)expected);
        said.challenge[DISTI_NONCE_BYTES] = with_flag;
        reply.value_bytes = bytes;
        disti_wire_put_head(head, &reply);
        (void)!send(fd, head, sizeof(head), MSG_NOSIGNAL);
        (void)!send(fd, step ? welcome : said.challenge, bytes, MSG_NOSIGNAL);
    }
    (void)!recv(fd, head, 1, 0);
    _exit(0);
}

static void meet_impostor(bool with_flag, const char *says)
{
    struct disti_store_target target = {
        .host = "127.0.0.1", .rank = 1, .world_size = WORLD, .secret = &secret};
    struct disti_store *store = NULL;
    int listener, fd;
    pid_t child;

    assert_int_equal(disti_listen("127.0.0.1", 0, 0, &listener, &target.port), DIST_OK);
    fd = dup(listener); /* the library's own is closed in a child */
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
    assert_non_null(strstr(dist_last_error(), says));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

static void test_impostors(void **state)
{
    (void)state;
    meet_impostor(true, "did not prove");
    meet_impostor(false, "has no secret");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_other_secrets, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_replay, open_job, NULL),
        cmocka_unit_test_setup_teardown(test_reflected, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_another_rank, open_job, close_job),
        cmocka_unit_test_setup_teardown(test_out_of_turn, open_job, close_job),
        cmocka_unit_test(test_impostors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
