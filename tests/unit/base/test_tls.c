/* SPDX-License-Identifier: BSD-3-Clause */
/* TLS sessions over a socket pair: transfer, refused peers, and the reported reasons. */
#include "tests/unit/base/unit.h"

#include <config.h>

#ifndef HAVE_OPENSSL
int main(void)
{
    return 77;
}
#else
#include "base/tls/context.h"
#include "tests/unit/base/certificates.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONG ((size_t)1 << 20)

static char why[DISTI_TLS_WHY];
static struct disti_tls_context *ours, *theirs; /* of different authorities */
static int fds[2];                              /* of the caller and of the called end */
static struct disti_tls *ends[2];

static struct disti_tls_context *context_of(const char *cert, const char *key, const char *ca)
{
    const struct disti_tls_files files = {certificates_path(cert, ".pem"),
                                          certificates_path(key, ".key"),
                                          certificates_path(ca, ".pem")};

    why[0] = '\0';
    return disti_tls_context_new(&files, why, sizeof(why));
}

static void expect_no_context(const char *cert, const char *key, const char *ca, const char *word)
{
    assert_null(context_of(cert, key, ca));
    if (!strstr(why, word))
        fail_msg("\"%s\" is not in: %s", word, why);
}

static void test_bad_files_are_rejected(void **state)
{
    (void)state;
    expect_no_context("none", "good", "ca", "cannot be read (No such file");
    expect_no_context("good", "good", "none", "DIST_TLS_CA");
    expect_no_context("expired", "expired", "ca", "expired: renew it");
    expect_no_context("early", "early", "ca", "clock");
    expect_no_context("good", "expired", "ca", "does not hold the key of DIST_TLS_CERT");
    expect_no_context("good", "good", "ca2", "DIST_TLS_CA must contain the CA that signed it");
    assert_int_equal(chmod(certificates_path("good", ".key"), 0604), 0);
    expect_no_context("good", "good", "ca", "chmod 600");
    assert_int_equal(chmod(certificates_path("good", ".key"), 0600), 0);
}

static void test_settings_must_be_complete(void **state)
{
    struct disti_tls_context *context = NULL;

    (void)state;
    assert_int_equal(disti_tls_open(&context), DIST_OK);
    assert_null(context);
    setenv("DIST_TLS_CERT", certificates_path("good", ".pem"), 1);
    setenv("DIST_TLS_CA", certificates_path("ca", ".pem"), 1);
    assert_int_equal(disti_tls_open(&context), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "DIST_TLS_KEY is not set"));
    setenv("DIST_TLS_KEY", certificates_path("good", ".key"), 1);
    assert_int_equal(disti_tls_open(&context), DIST_OK);
    assert_non_null(context);
    disti_tls_context_free(context);
    unsetenv("DIST_TLS_CERT");
    unsetenv("DIST_TLS_KEY");
    unsetenv("DIST_TLS_CA");
}

/* ---- sessions ---- */

static void begin(struct disti_tls_context *caller, struct disti_tls_context *called,
                  const char *host)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    ends[0] = caller ? disti_tls_call(caller, fds[0], host) : NULL;
    ends[1] = called ? disti_tls_accept(called, fds[1]) : NULL;
}

static void end(void)
{
    for (int i = 0; i < 2; i++) {
        disti_tls_free(ends[i]);
        close(fds[i]);
    }
}

/* Continues the handshake until neither end can continue. */
static void shake(void)
{
    char byte;

    for (int turn = 0; turn < 12; turn++)
        (void)disti_tls_recv(ends[turn & 1], &(struct iovec){&byte, 1}, 1);
}

static void expect_why(int which, const char *word)
{
    char byte;

    assert_int_equal(disti_tls_or_recv(ends[which], fds[which], &byte, 1), -1);
    assert_int_equal(errno, EPROTO);
    if (!strstr(disti_tls_why(ends[which]), word))
        fail_msg("\"%s\" is not in: %s", word, disti_tls_why(ends[which]));
    assert_int_equal(disti_tls_or_send(ends[which], fds[which], "x", 1), -1);
}

static void test_data_is_sent_after_the_handshake(void **state)
{
    unsigned char one[DISTI_TLS_BINDING], two[DISTI_TLS_BINDING];
    char received[16] = "";

    (void)state;
    begin(ours, ours, "127.0.0.1");
    assert_int_equal(disti_tls_binding(ends[0], one), 0);
    assert_int_equal(disti_tls_or_send(ends[0], fds[0], "hello", 5), 5);
    shake();
    assert_int_equal(disti_tls_or_send(ends[1], fds[1], "world", 5), 5);
    assert_int_equal(disti_tls_or_recv(ends[0], fds[0], received, 16), 5);
    assert_string_equal(received, "world");
    assert_int_equal(disti_tls_binding(ends[0], one), sizeof(one));
    assert_int_equal(disti_tls_binding(ends[1], two), sizeof(two));
    assert_memory_equal(one, two, sizeof(one));
    end();
    begin(ours, ours, "localhost");
    shake();
    assert_true(disti_tls_is_up(ends[0]) && disti_tls_is_up(ends[1]));
    assert_int_equal(disti_tls_binding(ends[0], two), sizeof(two));
    assert_memory_not_equal(one, two, sizeof(one));
    end();
}

/* Sends in both directions at once, in pieces that the sockets split. */
static void test_long_data_is_sent_in_both_directions(void **state)
{
    unsigned char *sent_bytes = malloc(LONG), *received[2] = {calloc(1, LONG), calloc(1, LONG)};
    size_t out[2] = {0}, in[2] = {0}, cut = 0;

    (void)state;
    begin(ours, ours, "127.0.0.1");
    for (int i = 0; i < 2; i++)
        disti_tls_trust(ends[i]);
    for (size_t i = 0; i < LONG; i++)
        sent_bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    for (int turn = 0; turn < 100000 && (in[0] < LONG || in[1] < LONG); turn++) {
        int from = turn & 1, to = (turn >> 1) & 1;
        size_t piece = LONG - out[from] < 50000 ? LONG - out[from] : 50000;
        struct iovec parts[2] = {{sent_bytes + out[from], piece / 3},
                                 {sent_bytes + out[from] + piece / 3, piece - piece / 3}};
        ssize_t n = piece ? disti_tls_send(ends[from], parts, 2) : 0;

        out[from] += n > 0 ? (size_t)n : 0;
        cut += n > 0 && (size_t)n < piece;
        if (turn % 7 > 4)
            continue;
        n = in[to] < LONG
                ? disti_tls_or_recv(ends[to], fds[to], received[to] + in[to], LONG - in[to])
                : 0;
        in[to] += n > 0 ? (size_t)n : 0;
    }
    assert_true(cut > 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(in[i], LONG);
        assert_memory_equal(received[i], sent_bytes, LONG);
        free(received[i]);
    }
    free(sent_bytes);
    end();
}

static void test_a_certificate_of_another_authority_is_refused(void **state)
{
    (void)state;
    begin(ours, theirs, "127.0.0.1");
    shake();
    expect_why(0, "its certificate is not valid");
    expect_why(1, "refused this end's certificate");
    end();
}

static void test_a_certificate_for_another_name_is_refused(void **state)
{
    static const char *const wrong[] = {"127.0.0.2", "otherhost", "::1"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        begin(ours, ours, wrong[i]);
        shake();
        expect_why(0, "mismatch");
        expect_why(1, "refused this end's certificate");
        end();
    }
    assert_null(disti_tls_call(ours, -1, ""));
}

/* An end that has a certificate but has not sent its proof may send only a limited number of
 * bytes. */
static void test_data_without_a_proof_is_limited(void **state)
{
    static const char sent_bytes[1024];
    char received[1024];
    size_t bytes = 0;

    (void)state;
    begin(ours, ours, "127.0.0.1");
    shake();
    while (disti_tls_or_send(ends[0], fds[0], sent_bytes, sizeof(sent_bytes)) ==
               (ssize_t)sizeof(sent_bytes) &&
           disti_tls_or_recv(ends[1], fds[1], received, sizeof(received)) ==
               (ssize_t)sizeof(received))
        bytes += sizeof(sent_bytes);
    assert_in_range(bytes, DISTI_TLS_HANDSHAKE_MOST / 2, DISTI_TLS_HANDSHAKE_MOST);
    expect_why(1, "64 KiB before it was authenticated");
    end();
}

static void test_an_expired_certificate_is_refused(void **state)
{
    struct disti_tls_context *old = context_of("good", "good", "ca");

    (void)state;
    old->lib->SSL_CTX_use_certificate_chain_file(old->ssl, certificates_path("expired", ".pem"));
    old->lib->SSL_CTX_use_PrivateKey_file(old->ssl, certificates_path("expired", ".key"),
                                          SSL_FILETYPE_PEM);
    begin(ours, old, "127.0.0.1");
    shake();
    expect_why(0, "expired");
    end();
    begin(old, ours, "127.0.0.1");
    shake();
    expect_why(1, "expired");
    expect_why(0, "refused");
    end();
    disti_tls_context_free(old);
}

static void test_a_peer_without_a_certificate_is_refused(void **state)
{
    struct disti_tls_context bare = {.lib = ours->lib};

    (void)state;
    bare.ssl = ours->lib->SSL_CTX_new(ours->lib->TLS_method());
    begin(&bare, ours, "127.0.0.1");
    shake();
    expect_why(1, "showed no certificate");
    end();
    bare.lib->SSL_CTX_free(bare.ssl);
}

static void test_TLS_1_2_is_refused(void **state)
{
    struct disti_tls_context *old = context_of("good", "good", "ca");

    (void)state;
    old->lib->SSL_CTX_ctrl(old->ssl, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, NULL);
    old->lib->SSL_CTX_ctrl(old->ssl, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_2_VERSION, NULL);
    begin(old, ours, "127.0.0.1");
    shake();
    expect_why(1, "does not use TLS 1.3");
    end();
    begin(ours, old, "127.0.0.1");
    shake();
    expect_why(0, "does not use TLS 1.3");
    end();
    disti_tls_context_free(old);
}

static void test_plain_text_is_refused(void **state)
{
    unsigned char sent_bytes[8];

    (void)state;
    begin(NULL, ours, NULL);
    assert_int_equal(write(fds[0], "DIST, and what a store reads", 28), 28);
    expect_why(1, "does not use TLS: set DIST_TLS_CERT");
    assert_true(read(fds[0], sent_bytes, sizeof(sent_bytes)) > 2);
    assert_true(disti_tls_looks_like(sent_bytes));
    end();
}

/* The first half of a caller's hello, and then end of file. */
static void test_an_incomplete_handshake_is_reported(void **state)
{
    unsigned char hello[4096];
    int pair[2];
    ssize_t length;

    (void)state;
    begin(ours, ours, "127.0.0.1");
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    (void)disti_tls_or_recv(ends[0], fds[0], hello, 1);
    length = read(fds[1], hello, sizeof(hello));
    assert_true(length > 100);
    disti_tls_free(ends[1]);
    close(fds[1]);
    fds[1] = pair[1];
    ends[1] = disti_tls_accept(ours, fds[1]);
    assert_int_equal(write(pair[0], hello, (size_t)length / 2), length / 2);
    assert_int_equal(disti_tls_or_recv(ends[1], fds[1], hello, 1), -1);
    assert_int_equal(errno, EAGAIN);
    close(pair[0]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(disti_tls_or_recv(ends[1], fds[1], hello, 1), 0);
    assert_non_null(strstr(disti_tls_why(ends[1]), "ended the connection during the TLS"));
    end();
}

static void test_a_closed_session_is_no_error(void **state)
{
    char received[8];

    (void)state;
    begin(ours, ours, "127.0.0.1");
    shake();
    assert_int_equal(disti_tls_or_send(ends[0], fds[0], "last", 4), 4);
    shutdown(fds[0], SHUT_WR);
    assert_int_equal(disti_tls_or_recv(ends[1], fds[1], received, 8), 4);
    assert_int_equal(disti_tls_or_recv(ends[1], fds[1], received, 8), 0);
    assert_int_equal(disti_tls_or_recv(ends[1], fds[1], received, 8), 0);
    assert_string_equal(disti_tls_why(ends[1]), "");
    end();
}

/* A bit is changed in transit. */
static void test_damaged_data_is_detected(void **state)
{
    unsigned char record[256];
    ssize_t length;
    int pair[2];

    (void)state;
    begin(ours, ours, "127.0.0.1");
    shake();
    assert_int_equal(disti_tls_or_send(ends[0], fds[0], "payload", 7), 7);
    length = read(fds[1], record, sizeof(record));
    assert_true(length > 12);
    record[length - 1] ^= 1;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    assert_int_equal(write(pair[0], record, (size_t)length), length);
    assert_true(dup2(pair[1], fds[1]) == fds[1]);
    expect_why(1, "the TLS session failed");
    close(pair[0]);
    close(pair[1]);
    end();
}

/* A peer that does not complete its handshake may send only a limited number of bytes. */
static void test_an_endless_handshake_is_limited(void **state)
{
    static unsigned char record[5 + 16384] = {0x16, 3, 1, 0x40, 0};
    char byte;
    int sent;

    (void)state;
    begin(NULL, ours, NULL);
    for (sent = 0; sent < 8 && !disti_tls_why(ends[1])[0]; sent++) {
        size_t at = 0;

        /* A hello of 131000 bytes, as the header in the first record says. */
        memcpy(record + 5, (unsigned char[]){1, 1, 0xff, 0xb8}, sent ? 0 : 4);
        while (at < sizeof(record)) {
            ssize_t n = write(fds[0], record + at, sizeof(record) - at);

            at += n > 0 ? (size_t)n : 0;
            if (disti_tls_or_recv(ends[1], fds[1], &byte, 1) < 0 && errno != EAGAIN)
                break;
        }
    }
    expect_why(1, "more than 64 KiB");
    assert_true(sent <= 5);
    end();
}

static int begin_all(void **state)
{
    (void)state;
    certificates_make();
    ours = context_of("good", "good", "ca");
    theirs = context_of("other", "other", "ca2");
    return ours && theirs ? 0 : -1;
}

static int end_all(void **state)
{
    (void)state;
    disti_tls_context_free(ours);
    disti_tls_context_free(theirs);
    return certificates_clear();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_files_are_rejected),
        cmocka_unit_test(test_settings_must_be_complete),
        cmocka_unit_test(test_data_is_sent_after_the_handshake),
        cmocka_unit_test(test_long_data_is_sent_in_both_directions),
        cmocka_unit_test(test_a_certificate_of_another_authority_is_refused),
        cmocka_unit_test(test_a_certificate_for_another_name_is_refused),
        cmocka_unit_test(test_data_without_a_proof_is_limited),
        cmocka_unit_test(test_an_expired_certificate_is_refused),
        cmocka_unit_test(test_a_peer_without_a_certificate_is_refused),
        cmocka_unit_test(test_TLS_1_2_is_refused),
        cmocka_unit_test(test_plain_text_is_refused),
        cmocka_unit_test(test_an_incomplete_handshake_is_reported),
        cmocka_unit_test(test_a_closed_session_is_no_error),
        cmocka_unit_test(test_damaged_data_is_detected),
        cmocka_unit_test(test_an_endless_handshake_is_limited),
    };

    unsetenv("DIST_TLS_CERT");
    unsetenv("DIST_TLS_KEY");
    unsetenv("DIST_TLS_CA");
    return cmocka_run_group_tests(tests, begin_all, end_all);
}
#endif
