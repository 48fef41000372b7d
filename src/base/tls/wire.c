/* SPDX-License-Identifier: BSD-3-Clause */
/* A BIO over a socket that does not block. OpenSSL's own would raise SIGPIPE. */
#include <config.h>

#ifdef HAVE_OPENSSL
#include "base/tls/wire.h"

#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>

static BIO_METHOD *wire_method;

/* Did the call fail only for now? Keeps why, if not since the socket is empty or full. */
static bool wire_again(struct disti_tls_wire *wire, ssize_t n)
{
    wire->error = n < 0 && errno != EAGAIN ? errno : 0;
    return n < 0 && (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM);
}

static int wire_read(BIO *bio, char *data, int bytes)
{
    struct disti_tls_wire *wire = BIO_get_data(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    if (wire->read >= wire->most) {
        wire->greedy = true;
        return -1;
    }
    do
        n = recv(wire->fd, data, (size_t)bytes, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (wire_again(wire, n))
        BIO_set_retry_read(bio);
    wire->read += n > 0 ? (size_t)n : 0;
    wire->closed |= n == 0;
    return (int)n;
}

static int wire_write(BIO *bio, const char *data, int bytes)
{
    struct disti_tls_wire *wire = BIO_get_data(bio);
    ssize_t n;

    BIO_clear_retry_flags(bio);
    do
        n = send(wire->fd, data, (size_t)bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (wire_again(wire, n))
        BIO_set_retry_write(bio);
    wire->full = n < 0 && !wire->error;
    return (int)n;
}

static long wire_control(BIO *bio, int what, long value, void *pointer)
{
    const struct disti_tls_wire *wire = BIO_get_data(bio);

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

BIO *disti_tls_wire_bio(struct disti_tls_wire *wire)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *bio;

    pthread_once(&once, wire_begin);
    bio = wire_method ? BIO_new(wire_method) : NULL;
    if (!bio)
        return NULL;
    BIO_set_data(bio, wire);
    BIO_set_init(bio, 1);
    return bio;
}
#endif
