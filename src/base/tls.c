/* SPDX-License-Identifier: BSD-3-Clause */
/* TLS 1.3: contexts (certificate, key, CAs) and sessions over non-blocking sockets. */
#include "base/tls/tls.h"

#include <config.h>

#include "base/log.h"
#include "base/process.h"
#include "base/settings/env.h"

#include <stdio.h>
#include <string.h>

dist_status disti_tls_open(struct disti_tls_context **context_p)
{
    const struct disti_tls_files files = {.cert = disti_env("DIST_TLS_CERT"),
                                          .key = disti_env("DIST_TLS_KEY"),
                                          .ca = disti_env("DIST_TLS_CA")};
    char why[DISTI_TLS_WHY];

    *context_p = NULL;
    if (!files.cert && !files.key && !files.ca)
        return DIST_OK;
    if (!files.cert || !files.key || !files.ca)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s is not set: TLS needs DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA "
                          "together, or none of them",
                          !files.cert  ? "DIST_TLS_CERT"
                          : !files.key ? "DIST_TLS_KEY"
                                       : "DIST_TLS_CA");
    *context_p = disti_tls_context_new(&files, why, sizeof(why));
    return *context_p ? DIST_OK : disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s", why);
}

#ifdef HAVE_OPENSSL
#include "base/file.h"
#include "base/tls/context.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- libssl, loaded once a process, when TLS is first used, or linked ---- */

#define LIBRARY_TEXT_OF(version) #version
#define LIBRARY_TEXT(version) LIBRARY_TEXT_OF(version)
/* The libssl that belongs to the linked libcrypto. */
#define LIBRARY_NAME "libssl.so." LIBRARY_TEXT(OPENSSL_SHLIB_VERSION)

static struct disti_tls_library library;
static char library_why[DISTI_TLS_WHY];

static void library_load(void)
{
    /*
     * Never unload: threads may still use it in exit(), and forked children must not run its
     * clean-up.
     */
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, NULL);
#ifdef HAVE_STATIC_LIBSSL
#define LIBRARY_FIND(name) library.name = (name);
    DISTI_TLS_FUNCTIONS(LIBRARY_FIND)
#else
    library.handle = dlopen(LIBRARY_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library.handle) {
        const char *why = dlerror();

        snprintf(library_why, sizeof(library_why), "%s", why ? why : LIBRARY_NAME);
        return;
    }
#define LIBRARY_FIND(name)                                                                         \
    *(void **)&library.name = dlsym(library.handle, #name);                                        \
    if (!library.name)                                                                             \
        snprintf(library_why, sizeof(library_why), LIBRARY_NAME " has no " #name);
    DISTI_TLS_FUNCTIONS(LIBRARY_FIND)
#endif
}

/* ---- certificate, key and trust ---- */

/* OpenSSL would prompt on the terminal for a key's passphrase; this callback refuses. */
static int context_no_passphrase(char *text, int size, int writing, void *arg)
{
    (void)text, (void)size, (void)writing, (void)arg;
    return 0;
}

/* An open file of a context, and the name under which OpenSSL opens exactly this file. */
struct context_file {
    const char *setting, *path;
    int fd;
    char own[64];
    const char *name;
};

static bool context_wrong(const struct context_file *file, const char *what, char *why, size_t size)
{
    snprintf(why, size, "%s: the file %.100s %s", file->setting, file->path, what);
    ERR_clear_error();
    return false;
}

/*
 * Opens the file. Returns true if it is owned by this user or root, is not reached through another
 * user's link, and other users have none of the permissions in `closed_to`.
 */
static bool context_open(struct context_file *file, mode_t closed_to, char *why, size_t size)
{
    struct stat status;
    char what[96];

    file->fd = disti_file_open(file->path);
    if (file->fd < 0 || fstat(file->fd, &status) != 0) {
        snprintf(what, sizeof(what), "cannot be read (%s)",
                 errno == EPERM ? "it is a link of another user's" : strerror(errno));
        return context_wrong(file, what, why, size);
    }
    if (!disti_file_owner_is_safe(status.st_uid))
        return context_wrong(file, "belongs to another user: copy it, if you trust it", why, size);
    if (status.st_mode & closed_to & S_IROTH)
        return context_wrong(file, "can be opened by every user: chmod 600 it, and change the key",
                             why, size);
    if (status.st_mode & closed_to)
        return context_wrong(file, "can be changed by other users: chmod go-w it", why, size);
    snprintf(file->own, sizeof(file->own), DISTI_PROCESS_OWN "/fd/%d", file->fd);
    /* Without /proc, OpenSSL opens the file again by its path. */
    file->name = access(file->own, R_OK) == 0 ? file->own : file->path;
    return true;
}

/* True if a peer with the same CAs would accept this rank's certificate at present. */
static bool context_fits(struct disti_tls_context *context, const struct context_file *cert,
                         char *why, size_t size)
{
    X509 *own = library.SSL_CTX_get0_certificate(context->ssl);
    X509_STORE_CTX *check = X509_STORE_CTX_new();
    int error = X509_V_ERR_OUT_OF_MEM;
    char what[140];

    if (check &&
        X509_STORE_CTX_init(check, library.SSL_CTX_get_cert_store(context->ssl), own, NULL)) {
        /* The file may contain a chain. */
        STACK_OF(X509) *chain = NULL;

        library.SSL_CTX_ctrl(context->ssl, SSL_CTRL_GET_CHAIN_CERTS, 0, &chain);
        X509_STORE_CTX_set0_untrusted(check, chain);
        (void)X509_verify_cert(check);
        error = X509_STORE_CTX_get_error(check);
    }
    X509_STORE_CTX_free(check);
    if (error == X509_V_OK)
        return true;
    snprintf(what, sizeof(what), "%.60s: %s", X509_verify_cert_error_string(error),
             error == X509_V_ERR_CERT_HAS_EXPIRED ? "renew it"
             : error == X509_V_ERR_CERT_NOT_YET_VALID
                 ? "check the clock of this machine"
                 : "DIST_TLS_CA must contain the CA that signed it");
    return context_wrong(cert, what, why, size);
}

static bool context_load(struct disti_tls_context *context, const struct disti_tls_files *files,
                         char *why, size_t size)
{
    struct context_file of[3] = {
        {"DIST_TLS_CERT", files->cert, .fd = -1},
        {"DIST_TLS_KEY", files->key, .fd = -1},
        {"DIST_TLS_CA", files->ca, .fd = -1},
    };
    bool loaded = context_open(&of[0], S_IWOTH, why, size) &&
                  context_open(&of[1], S_IRWXO, why, size) &&
                  context_open(&of[2], S_IWOTH, why, size);

    if (!loaded)
        goto out;
    if (library.SSL_CTX_use_certificate_chain_file(context->ssl, of[0].name) != 1)
        loaded = context_wrong(
            &of[0], "begins with no certificate that can be used: give one in PEM form", why, size);
    else if (library.SSL_CTX_use_PrivateKey_file(context->ssl, of[1].name, SSL_FILETYPE_PEM) != 1)
        loaded = context_wrong(&of[1],
                               "does not hold the key of DIST_TLS_CERT, in PEM form and without a "
                               "passphrase: give that key",
                               why, size);
    else if (library.SSL_CTX_load_verify_file(context->ssl, of[2].name) != 1)
        loaded = context_wrong(&of[2], "holds no certificate of an authority: give it in PEM form",
                               why, size);
    else
        loaded = context_fits(context, &of[0], why, size);
out:
    for (int i = 0; i < 3; i++) {
        if (of[i].fd >= 0)
            close(of[i].fd);
    }
    return loaded;
}

struct disti_tls_context *disti_tls_context_new(const struct disti_tls_files *files, char *why,
                                                size_t size)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct disti_tls_context *context;

    pthread_once(&once, library_load);
    if (library_why[0]) {
        snprintf(why, size,
                 "TLS needs OpenSSL's libssl (Debian package libssl3), which cannot be loaded: "
                 "%.150s",
                 library_why);
        return NULL;
    }
    context = calloc(1, sizeof(*context));
    if (context)
        *context = (struct disti_tls_context){.lib = &library,
                                              .ssl = library.SSL_CTX_new(library.TLS_method())};
    if (!context || !context->ssl) {
        snprintf(why, size, "TLS cannot be set up: no memory");
        free(context);
        return NULL;
    }
    library.SSL_CTX_ctrl(context->ssl, SSL_CTRL_MODE,
                         SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                             SSL_MODE_RELEASE_BUFFERS,
                         NULL);
    library.SSL_CTX_ctrl(context->ssl, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    /* Accept an end without close_notify, since the protocols over TLS have their own goodbyes. */
    library.SSL_CTX_set_options(context->ssl, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_TICKET);
    library.SSL_CTX_set_num_tickets(context->ssl, 0);
    library.SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                               NULL);
    library.SSL_CTX_set_default_passwd_cb(context->ssl, context_no_passphrase);
    if (!library.SSL_CTX_ctrl(context->ssl, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL))
        snprintf(why, size,
                 "TLS 1.3 is not available: this machine's OpenSSL was built without it, or "
                 "its configuration (openssl.cnf) forbids it");
    else if (context_load(context, files, why, size))
        return context;
    disti_tls_context_free(context);
    return NULL;
}

void disti_tls_context_free(struct disti_tls_context *context)
{
    if (!context)
        return;
    library.SSL_CTX_free(context->ssl);
    free(context);
}
/* ---- a BIO over the socket; OpenSSL's own would raise SIGPIPE ---- */

struct wire {
    int fd;
    int error;        /* errno of the last call; 0: none, or EAGAIN */
    size_t read, max; /* bytes received, and their limit */
    bool closed;      /* the peer has closed the connection */
    bool full;        /* the socket had no room for the last write */
    bool greedy;      /* more than `max` bytes have arrived */
};

static BIO_METHOD *wire_method;

/* True if a call that failed with this error may succeed later. */
static bool wire_error_is_temporary(int error)
{
    return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

/* True if the call may succeed later. Stores the error unless the socket is just empty or full. */
static bool wire_should_retry(struct wire *wire, ssize_t n)
{
    wire->error = n < 0 && errno != EAGAIN ? errno : 0;
    return n < 0 && wire_error_is_temporary(errno);
}

static int wire_read(BIO *bio, char *data, int bytes)
{
    struct wire *wire = BIO_get_data(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    if (wire->read >= wire->max) {
        wire->greedy = true;
        return -1;
    }
    do
        n = recv(wire->fd, data, (size_t)bytes, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (wire_should_retry(wire, n))
        BIO_set_retry_read(bio);
    wire->read += n > 0 ? (size_t)n : 0;
    wire->closed |= n == 0;
    return (int)n;
}

static int wire_write(BIO *bio, const char *data, int bytes)
{
    struct wire *wire = BIO_get_data(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    do
        n = send(wire->fd, data, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (wire_should_retry(wire, n))
        BIO_set_retry_write(bio);
    wire->full = n < 0 && !wire->error;
    return (int)n;
}

static long wire_control(BIO *bio, int what, long value, void *pointer)
{
    const struct wire *wire = BIO_get_data(bio);

    (void)value, (void)pointer;
    return what == BIO_CTRL_FLUSH || (what == BIO_CTRL_EOF && wire->closed);
}

static void wire_begin(void)
{
    wire_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "libdist socket");
    if (!wire_method)
        return;
    BIO_meth_set_read(wire_method, wire_read);
    BIO_meth_set_write(wire_method, wire_write);
    BIO_meth_set_ctrl(wire_method, wire_control);
}

/* ---- sessions ---- */

#define SESSION_RECORD 16384 /* maximum payload of a record (RFC 8446) */

struct disti_tls {
    SSL *ssl;
    struct wire wire;
    bool up;
    bool ended;         /* the peer has closed the connection, or the session is broken */
    bool broken;        /* the cause is in `why` */
    size_t early_bytes; /* bytes in `early`, sent before the end of the handshake */
    unsigned char early[DISTI_TLS_EARLY];
    size_t record_bytes; /* size of a record that is not completely written; 0: none */
    size_t owed;         /* bytes of it that the owner will pass again */
    unsigned char record[SESSION_RECORD]; /* that record, or the data of the next one */
    char why[DISTI_TLS_WHY];
};

static void session_set_error(struct disti_tls *tls, const char *format, const char *detail)
{
    snprintf(tls->why, sizeof(tls->why), format, detail);
}

/* Stores a description of the error in tls->why, from the peer's alert or OpenSSL's error. */
static void session_explain(struct disti_tls *tls)
{
    static const unsigned char alert[] = {0x15, 3, 3, 0, 2, SSL3_AL_FATAL, SSL_AD_PROTOCOL_VERSION};
    unsigned long error = ERR_peek_last_error();
    const char *text = ERR_reason_error_string(error);
    long verified = library.SSL_get_verify_result(tls->ssl);
    int reason = ERR_GET_REASON(error);

    tls->ended = tls->broken = true;
    /* OpenSSL sends no alert to a peer that does not use TLS, so send this one. */
    if (reason == SSL_R_WRONG_VERSION_NUMBER)
        (void)!send(tls->wire.fd, alert, sizeof(alert), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (tls->wire.greedy)
        session_set_error(tls, "it sent more than %s before it was authenticated", "64 KiB");
    else if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST)
        session_set_error(
            tls, "%s: set DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA on all ranks, or on none",
            "it does not use TLS");
    else if (reason == SSL_R_UNSUPPORTED_PROTOCOL || reason == SSL_R_TLSV1_ALERT_PROTOCOL_VERSION)
        session_set_error(tls, "it does not use TLS 1.3 (%s)", text);
    else if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE)
        session_set_error(tls, "%s",
                          "it showed no certificate: set its DIST_TLS_CERT and DIST_TLS_KEY");
    else if (reason >= SSL_AD_REASON_OFFSET && !ERR_FATAL_ERROR(error))
        session_set_error(tls, "it refused this end's certificate or handshake (%s): see its log",
                          text);
    else if (verified != X509_V_OK)
        session_set_error(tls,
                          "its certificate is not valid (%s): check DIST_TLS_CA, and the subject "
                          "alternative names of its DIST_TLS_CERT",
                          X509_verify_cert_error_string(verified));
    else
        session_set_error(tls, "the TLS session failed (%s)", text ? text : "unknown reason");
}

static ssize_t session_error(int error)
{
    errno = error;
    return -1;
}

/* Handles the result of a failed call. Returns -1 with errno set, or 0 at the end of the stream. */
static ssize_t session_failed(struct disti_tls *tls, int result)
{
    int error = tls->wire.error, kind = library.SSL_get_error(tls->ssl, result);

    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)
        return session_error(error ? error : EAGAIN);
    tls->ended |= kind == SSL_ERROR_ZERO_RETURN || tls->wire.closed;
    if (!tls->up && (tls->ended || error == ECONNRESET))
        session_set_error(tls, "%s",
                          "it ended the connection during the TLS handshake; perhaps it "
                          "has no DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA");
    if (tls->ended)
        return 0;
    /*
     * Do not mark the session as ended after a socket error: the peer's last data can still be read
     * and may contain the cause.
     */
    if (kind != SSL_ERROR_SYSCALL || !error) {
        session_explain(tls);
        error = EPROTO;
    }
    ERR_clear_error();
    return session_error(error);
}

/*
 * Writes tls->record to the socket. Returns false with errno set if it is not written completely.
 */
static bool session_put_record(struct disti_tls *tls)
{
    int written;

    ERR_clear_error();
    written = library.SSL_write(tls->ssl, tls->record, (int)tls->record_bytes);
    if (written > 0) {
        tls->record_bytes = 0;
        return true;
    }
    if (session_failed(tls, written) == 0)
        errno = EPIPE;
    return false;
}

/* Continues the handshake, then sends the early data. Returns 1 if the handshake has finished. */
static ssize_t session_advance(struct disti_tls *tls)
{
    int result;

    if (!tls->up) {
        ERR_clear_error();
        result = library.SSL_do_handshake(tls->ssl);
        if (result != 1)
            return session_failed(tls, result);
        tls->up = true;
        memcpy(tls->record, tls->early, tls->early_bytes);
        tls->record_bytes = tls->early_bytes;
    }
    /*
     * If the write fails for good, drop the record without an error: the peer may have sent an
     * alert with the cause, which the next read reports.
     */
    if (tls->record_bytes && !tls->owed && !session_put_record(tls) &&
        !wire_error_is_temporary(errno))
        tls->record_bytes = 0;
    return tls->broken ? session_error(EPROTO) : 1;
}

ssize_t disti_tls_recv(struct disti_tls *tls, const struct iovec *parts, int count)
{
    size_t got = 0;
    ssize_t end = tls->ended ? 0 : session_advance(tls);

    if (tls->broken)
        return session_error(EPROTO);
    for (int i = 0; i < count && end > 0; i++)
        for (size_t at = 0; at < parts[i].iov_len;) {
            size_t left = parts[i].iov_len - at;
            int n;

            ERR_clear_error();
            n = library.SSL_read(tls->ssl, (char *)parts[i].iov_base + at,
                                 left < INT32_MAX ? (int)left : INT32_MAX);
            if (n <= 0) {
                end = session_failed(tls, n);
                break;
            }
            at += (size_t)n;
            got += (size_t)n;
        }
    /* Return data received before the end first; the next call reports the end again. */
    return got ? (ssize_t)got : end;
}

/* Copies up to `capacity` bytes of the parts, starting at byte `skip`. */
static size_t session_gather(const struct iovec *parts, int count, size_t skip, unsigned char *to,
                             size_t capacity)
{
    size_t copied = 0;

    for (int i = 0; i < count && copied < capacity; i++) {
        size_t from = skip < parts[i].iov_len ? skip : parts[i].iov_len;
        size_t n = parts[i].iov_len - from;

        skip -= from;
        if (n > capacity - copied)
            n = capacity - copied;
        if (n)
            memcpy(to + copied, (const char *)parts[i].iov_base + from, n);
        copied += n;
    }
    return copied;
}

ssize_t disti_tls_send(struct disti_tls *tls, const struct iovec *parts, int count)
{
    size_t sent = tls->owed;

    if (tls->ended)
        return session_error(tls->broken ? EPROTO : EPIPE);
    if (!tls->up) { /* buffers the data until the handshake has finished */
        size_t capacity = sizeof(tls->early) - tls->early_bytes;
        size_t taken = session_gather(parts, count, 0, tls->early + tls->early_bytes, capacity);
        ssize_t up;

        tls->early_bytes += taken;
        up = session_advance(tls);
        if (up == 0)
            return session_error(EPIPE);
        if (up < 0 && errno != EAGAIN)
            return -1;
        return taken ? (ssize_t)taken : session_error(EAGAIN);
    }
    /*
     * First write the rest of the incomplete record. The owner passes its last byte again, followed
     * by new data.
     */
    if (tls->record_bytes && !session_put_record(tls))
        return -1;
    tls->owed = 0;
    while ((tls->record_bytes =
                session_gather(parts, count, sent, tls->record, sizeof(tls->record))) > 0) {
        sent += tls->record_bytes;
        if (session_put_record(tls))
            continue;
        tls->owed = 1;
        return wire_error_is_temporary(errno) && sent > 1 ? (ssize_t)sent - 1 : -1;
    }
    return (ssize_t)sent;
}

void disti_tls_trust(struct disti_tls *tls)
{
    if (tls)
        tls->wire.max = SIZE_MAX;
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
        library.SSL_export_keying_material(tls->ssl, binding, DISTI_TLS_BINDING, label,
                                           sizeof(label) - 1, NULL, 0, 1) != 1)
        return 0;
    return DISTI_TLS_BINDING;
}

static struct disti_tls *session_new(struct disti_tls_context *context, int fd)
{
    struct disti_tls *tls = calloc(1, sizeof(*tls));
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *bio;

    if (!tls)
        return NULL;
    tls->wire.fd = fd;
    tls->wire.max = DISTI_TLS_HANDSHAKE_MOST;
    tls->ssl = library.SSL_new(context->ssl);
    pthread_once(&once, wire_begin);
    bio = tls->ssl && wire_method ? BIO_new(wire_method) : NULL;
    if (!bio) {
        disti_tls_free(tls);
        return NULL;
    }
    BIO_set_data(bio, &tls->wire);
    BIO_set_init(bio, 1);
    library.SSL_set_bio(tls->ssl, bio, bio);
    return tls;
}

struct disti_tls *disti_tls_call(struct disti_tls_context *context, int fd, const char *host)
{
    struct disti_tls *tls = session_new(context, fd);
    X509_VERIFY_PARAM *rules = tls ? library.SSL_get0_param(tls->ssl) : NULL;
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
    library.SSL_set_connect_state(tls->ssl);
    return tls;
}

struct disti_tls *disti_tls_accept(struct disti_tls_context *context, int fd)
{
    struct disti_tls *tls = session_new(context, fd);

    if (tls)
        library.SSL_set_accept_state(tls->ssl);
    return tls;
}

void disti_tls_free(struct disti_tls *tls)
{
    if (!tls)
        return;
    library.SSL_free(tls->ssl);
    explicit_bzero(tls, sizeof(*tls));
    free(tls);
}
#else

/* ---- a build without OpenSSL ---- */

struct disti_tls_context *disti_tls_context_new(const struct disti_tls_files *files, char *why,
                                                size_t size)
{
    (void)files;
    snprintf(why, size,
             "DIST_TLS_CERT, DIST_TLS_KEY and DIST_TLS_CA enable TLS, but this libdist was built "
             "without OpenSSL: build it with OpenSSL (Debian package libssl-dev), or unset them");
    return NULL;
}

void disti_tls_context_free(struct disti_tls_context *context)
{
    (void)context;
}

struct disti_tls *disti_tls_call(struct disti_tls_context *context, int fd, const char *host)
{
    (void)context, (void)fd, (void)host;
    return NULL;
}

struct disti_tls *disti_tls_accept(struct disti_tls_context *context, int fd)
{
    (void)context, (void)fd;
    return NULL;
}

void disti_tls_free(struct disti_tls *tls)
{
    (void)tls;
}

ssize_t disti_tls_recv(struct disti_tls *tls, const struct iovec *parts, int count)
{
    (void)tls, (void)parts, (void)count;
    errno = ENOTSUP;
    return -1;
}

ssize_t disti_tls_send(struct disti_tls *tls, const struct iovec *parts, int count)
{
    return disti_tls_recv(tls, parts, count);
}

void disti_tls_trust(struct disti_tls *tls)
{
    (void)tls;
}

bool disti_tls_is_up(const struct disti_tls *tls)
{
    (void)tls;
    return false;
}

bool disti_tls_waits_to_send(const struct disti_tls *tls)
{
    (void)tls;
    return false;
}

const char *disti_tls_why(const struct disti_tls *tls)
{
    (void)tls;
    return "";
}

size_t disti_tls_binding(struct disti_tls *tls, unsigned char binding[DISTI_TLS_BINDING])
{
    (void)tls, (void)binding;
    return 0;
}
#endif
