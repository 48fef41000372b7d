/* SPDX-License-Identifier: BSD-3-Clause */
/* A session: the handshake, and records in and out. */
#include <config.h>

#ifdef HAVE_OPENSSL
#include "base/tls/context.h"
#include "base/tls/wire.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SESSION_RECORD 16384 /* RFC 8446: the most that a record holds */

struct disti_tls {
    const struct disti_tls_library *lib;
    SSL *ssl;
    struct disti_tls_wire wire;
    bool up;
    bool ended;         /* the peer has closed, or the session is broken */
    bool broken;        /* as `why` says */
    size_t early_bytes; /* said before the handshake has ended */
    unsigned char early[DISTI_TLS_EARLY];
    size_t record_bytes;                  /* taken, and not yet whole on the socket; 0: none */
    size_t owed;                          /* of these, which the owner will come with again */
    unsigned char record[SESSION_RECORD]; /* for that one, and to gather the next */
    char why[DISTI_TLS_WHY];
};

static void session_why(struct disti_tls *tls, const char *format, const char *detail)
{
    snprintf(tls->why, sizeof(tls->why), format, detail);
}

/* OpenSSL has no answer to who does not speak TLS: with this alert he can know what is wrong. */
static void session_tell_clear(const struct disti_tls *tls)
{
    static const unsigned char alert[] = {0x15, 3, 3, 0, 2, SSL3_AL_FATAL, SSL_AD_PROTOCOL_VERSION};

    (void)!send(tls->wire.fd, alert, sizeof(alert), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Alerts of the peer, which may have looked at our certificate; what OpenSSL says of the rest. */
static void session_explain(struct disti_tls *tls)
{
    unsigned long error = ERR_peek_last_error();
    const char *text = ERR_reason_error_string(error);
    long verified = tls->lib->SSL_get_verify_result(tls->ssl);
    int reason = ERR_GET_REASON(error);

    tls->ended = tls->broken = true;
    if (reason == SSL_R_WRONG_VERSION_NUMBER)
        session_tell_clear(tls);
    if (tls->wire.greedy)
        session_why(tls, "it sent more than %s without a proof that it belongs here", "64 KiB");
    else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)
        session_why(tls,
                    "%s: set DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA on all ranks, or on none",
                    "it does not speak TLS");
    else if (reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION)
        session_why(tls, "it does not speak TLS 1.3 (%s)", text);
    else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        session_why(tls, "%s", "it showed no certificate: set its DIST_TLS_CERT and DIST_TLS_KEY");
    else if (reason >= SSL_AD_REASON_OFFSET && !ERR_FATAL_ERROR(error))
        session_why(tls, "it refused this end's certificate or handshake (%s): see its log", text);
    else if (verified != X509_V_OK)
        session_why(tls,
                    "its certificate does not hold (%s): see DIST_TLS_CA, and the subject "
                    "alternative names of its DIST_TLS_CERT",
                    X509_verify_cert_error_string(verified));
    else
        session_why(tls, "the TLS session failed (%s)", text ? text : "no reason is known");
}

static ssize_t session_error(int error)
{
    errno = error;
    return -1;
}

/* Later it may do. */
static bool session_for_now(int error)
{
    return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

/* After a call that gave `result`: -1 and errno, or 0 at the end of the stream. */
static ssize_t session_failed(struct disti_tls *tls, int result)
{
    int error = tls->wire.error, kind = tls->lib->SSL_get_error(tls->ssl, result);

    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)
        return session_error(error ? error : EAGAIN);
    tls->ended |= kind == SSL_ERROR_ZERO_RETURN || tls->wire.closed;
    if (!tls->up && (tls->ended || error == ECONNRESET))
        session_why(tls, "%s",
                    "it ended the connection during the TLS handshake; perhaps it "
                    "has no DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA");
    if (tls->ended)
        return 0;
    /* What the peer has said before may still be read, and say why. */
    if (kind != SSL_ERROR_SYSCALL || !error) {
        session_explain(tls);
        error = EPROTO;
    }
    ERR_clear_error();
    return session_error(error);
}

/* Puts tls->record on the socket. False, and errno: it is not there whole. */
static bool session_put_record(struct disti_tls *tls)
{
    int written;

    ERR_clear_error();
    written = tls->lib->SSL_write(tls->ssl, tls->record, (int)tls->record_bytes);
    if (written > 0) {
        tls->record_bytes = 0;
        return true;
    }
    if (session_failed(tls, written) == 0)
        errno = EPIPE;
    return false;
}

/* Goes on with the handshake, and then with what was said early. 1: it has ended. */
static ssize_t session_go_up(struct disti_tls *tls)
{
    int result;

    if (!tls->up) {
        ERR_clear_error();
        result = tls->lib->SSL_do_handshake(tls->ssl);
        if (result != 1)
            return session_failed(tls, result);
        tls->up = true;
        memcpy(tls->record, tls->early, tls->early_bytes);
        tls->record_bytes = tls->early_bytes;
    }
    /* Who has hung up may have said why. */
    if (tls->record_bytes && !tls->owed && !session_put_record(tls) && !session_for_now(errno))
        tls->record_bytes = 0;
    return tls->broken ? session_error(EPROTO) : 1;
}

/* Reads until there is no more or `room` is full. *end_p: what the last call did, if not full. */
static size_t session_read(struct disti_tls *tls, char *to, size_t room, ssize_t *end_p)
{
    size_t got = 0;

    while (got < room) {
        size_t left = room - got;
        int n;

        ERR_clear_error();
        n = tls->lib->SSL_read(tls->ssl, to + got, left < INT32_MAX ? (int)left : INT32_MAX);
        if (n <= 0) {
            *end_p = session_failed(tls, n);
            break;
        }
        got += (size_t)n;
    }
    return got;
}

ssize_t disti_tls_recv(struct disti_tls *tls, const struct iovec *parts, int count)
{
    size_t got = 0;
    ssize_t end = tls->ended ? 0 : session_go_up(tls);

    if (tls->broken)
        return session_error(EPROTO);
    for (int i = 0; i < count && end > 0; i++)
        got += session_read(tls, parts[i].iov_base, parts[i].iov_len, &end);
    /* What came before an end is the owner's first; the next call says the same again. */
    return got ? (ssize_t)got : end;
}

/* Copies up to `room` bytes of the parts, from byte `skip` on. */
static size_t session_gather(const struct iovec *parts, int count, size_t skip, unsigned char *to,
                             size_t room)
{
    size_t copied = 0;

    for (int i = 0; i < count && copied < room; i++) {
        size_t from = skip < parts[i].iov_len ? skip : parts[i].iov_len;
        size_t n = parts[i].iov_len - from;

        skip -= from;
        if (n > room - copied)
            n = room - copied;
        if (n)
            memcpy(to + copied, (const char *)parts[i].iov_base + from, n);
        copied += n;
    }
    return copied;
}

/* Before the handshake has ended: keeps it, and goes on with that. */
static ssize_t session_send_early(struct disti_tls *tls, const struct iovec *parts, int count)
{
    size_t room = sizeof(tls->early) - tls->early_bytes;
    size_t taken = session_gather(parts, count, 0, tls->early + tls->early_bytes, room);
    ssize_t up;

    tls->early_bytes += taken;
    up = session_go_up(tls);
    if (up == 0)
        return session_error(EPIPE);
    if (up < 0 && errno != EAGAIN)
        return -1;
    return taken ? (ssize_t)taken : session_error(EAGAIN);
}

ssize_t disti_tls_send(struct disti_tls *tls, const struct iovec *parts, int count)
{
    size_t sent = tls->owed;

    if (tls->ended)
        return session_error(tls->broken ? EPROTO : EPIPE);
    if (!tls->up)
        return session_send_early(tls, parts, count);
    /* The owner comes with the byte that he is owed, and what follows it. */
    if (tls->record_bytes && !session_put_record(tls))
        return -1;
    tls->owed = 0;
    while ((tls->record_bytes =
                session_gather(parts, count, sent, tls->record, sizeof(tls->record))) > 0) {
        sent += tls->record_bytes;
        if (session_put_record(tls))
            continue;
        tls->owed = 1;
        return session_for_now(errno) && sent > 1 ? (ssize_t)sent - 1 : -1;
    }
    return (ssize_t)sent;
}

void disti_tls_trust(struct disti_tls *tls)
{
    if (tls)
        tls->wire.most = SIZE_MAX;
}

bool disti_tls_is_up(const struct disti_tls *tls)
{
    return tls->up;
}

bool disti_tls_waits_to_send(const struct disti_tls *tls)
{
    return tls->wire.full;
}

const char *disti_tls_why(const struct disti_tls *tls)
{
    return tls ? tls->why : "";
}

size_t disti_tls_binding(struct disti_tls *tls, unsigned char binding[DISTI_TLS_BINDING])
{
    static const char label[] = "EXPORTER-Channel-Binding";

    if (!tls || !tls->up ||
        tls->lib->SSL_export_keying_material(tls->ssl, binding, DISTI_TLS_BINDING, label,
                                             sizeof(label) - 1, NULL, 0, 1) != 1)
        return 0;
    return DISTI_TLS_BINDING;
}

static struct disti_tls *session_new(struct disti_tls_context *context, int fd)
{
    struct disti_tls *tls = calloc(1, sizeof(*tls));
    BIO *bio;

    if (!tls)
        return NULL;
    tls->lib = context->lib;
    tls->wire.fd = fd;
    tls->wire.most = DISTI_TLS_HANDSHAKE_MOST;
    tls->ssl = tls->lib->SSL_new(context->ssl);
    bio = tls->ssl ? disti_tls_wire_bio(&tls->wire) : NULL;
    if (!bio) {
        disti_tls_free(tls);
        return NULL;
    }
    tls->lib->SSL_set_bio(tls->ssl, bio, bio);
    return tls;
}

struct disti_tls *disti_tls_call(struct disti_tls_context *context, int fd, const char *host)
{
    struct disti_tls *tls = session_new(context, fd);
    X509_VERIFY_PARAM *rules = tls ? tls->lib->SSL_get0_param(tls->ssl) : NULL;
    unsigned char numeric[16];
    bool named;

    if (!tls)
        return NULL;
    if (inet_pton(AF_INET, host, numeric) == 1 || inet_pton(AF_INET6, host, numeric) == 1) {
        named = X509_VERIFY_PARAM_set1_ip_asc(rules, host) == 1;
    } else {
        X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
        named = host[0] && X509_VERIFY_PARAM_set1_host(rules, host, 0) == 1;
    }
    if (!named) {
        disti_tls_free(tls);
        return NULL;
    }
    tls->lib->SSL_set_connect_state(tls->ssl);
    return tls;
}

struct disti_tls *disti_tls_accept(struct disti_tls_context *context, int fd)
{
    struct disti_tls *tls = session_new(context, fd);

    if (tls)
        tls->lib->SSL_set_accept_state(tls->ssl);
    return tls;
}

void disti_tls_free(struct disti_tls *tls)
{
    if (!tls)
        return;
    tls->lib->SSL_free(tls->ssl);
    explicit_bzero(tls, sizeof(*tls));
    free(tls);
}
#endif
