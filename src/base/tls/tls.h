/* SPDX-License-Identifier: BSD-3-Clause */
/* TLS 1.3 over a non-blocking socket. Both ends have certificates and verify each other's. */
#ifndef DISTI_BASE_TLS_TLS_H
#define DISTI_BASE_TLS_TLS_H

#include <dist/dist.h>

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

/*
 * A session wraps a connected socket and behaves as the socket does:
 *
 *      owner --disti_tls_send--> [ early ] --> [ one record ] --> socket
 *      owner <--disti_tls_recv-------------- [ one record ] <---- socket
 *
 * Data that the owner sends before the handshake has finished are buffered in `early`. Each call of
 * disti_tls_recv or disti_tls_send continues the handshake. The protocols above TLS start with a
 * hello and wait for its answer, so they need no extra states for the handshake.
 *
 * When the socket accepts only part of a record, disti_tls_send returns one byte less than it has
 * taken. So the owner calls again with the remainder of the same message, at least one byte, and
 * the message does not count as sent while part of it is still in the buffer.
 */
#define DISTI_TLS_EARLY 1024
#define DISTI_TLS_BINDING 32
#define DISTI_TLS_WHY 256
/* Bytes read from an unauthenticated peer; enough for long certificate chains. */
#define DISTI_TLS_HANDSHAKE_MOST (64 << 10)

struct disti_tls_context; /* certificate, key and trusted CAs */
struct disti_tls;         /* a session */

/* Paths of PEM files. */
struct disti_tls_files {
    const char *cert, *key, *ca;
};

/*
 * Creates a context from the settings; *context_p is NULL if they do not enable TLS. Reports a
 * failure with its fix.
 */
dist_status disti_tls_open(struct disti_tls_context **context_p);
/* Creates a context from these files. Returns NULL with the cause in `why`. */
struct disti_tls_context *disti_tls_context_new(const struct disti_tls_files *files, char *why,
                                                size_t size);
/* Frees the context. Its sessions remain valid. NULL is accepted. */
void disti_tls_context_free(struct disti_tls_context *context);

/*
 * Creates the session of the connecting side. The peer's certificate must have `host`, a name or a
 * numeric address, among its subject alternative names. The caller keeps the socket. Returns NULL
 * without memory or without a host.
 */
struct disti_tls *disti_tls_call(struct disti_tls_context *context, int fd, const char *host);
/* Creates the session of the accepting side. Returns NULL without memory. */
struct disti_tls *disti_tls_accept(struct disti_tls_context *context, int fd);
/*
 * Frees the session without close_notify, since the protocols have their own goodbyes. NULL is
 * accepted.
 */
void disti_tls_free(struct disti_tls *tls);

/*
 * As recv and sendmsg with MSG_DONTWAIT and MSG_NOSIGNAL. A short count or EAGAIN: the socket has
 * no more data or room. A short count may also mean that memory is short; then
 * disti_tls_waits_to_send is false. EPROTO: disti_tls_why has the cause.
 */
ssize_t disti_tls_recv(struct disti_tls *tls, const struct iovec *parts, int count);
ssize_t disti_tls_send(struct disti_tls *tls, const struct iovec *parts, int count);

/*
 * Call when the peer is authenticated. Until then at most DISTI_TLS_HANDSHAKE_MOST bytes are read
 * from it, including records without data for the owner. NULL is accepted.
 */
void disti_tls_trust(struct disti_tls *tls);
/* True if the handshake has finished. */
bool disti_tls_is_up(const struct disti_tls *tls);
/* True if data wait for room in the socket. */
bool disti_tls_waits_to_send(const struct disti_tls *tls);
/*
 * Returns the error as text for a user; "": no error or no session. If the peer closed the
 * connection during the handshake, which is reported as end of stream and not EPROTO, the text is
 * only a guess at the cause.
 */
const char *disti_tls_why(const struct disti_tls *tls);

/*
 * Gets the channel binding (RFC 9266), which only the two ends of the session can compute. A proof
 * over it is valid on no other connection. Returns its size; 0: there is no session, or the
 * handshake has not finished.
 */
size_t disti_tls_binding(struct disti_tls *tls, unsigned char binding[DISTI_TLS_BINDING]);

/* True if bytes read from a socket begin a TLS record of a handshake or alert. */
static inline bool disti_tls_looks_like(const unsigned char *bytes)
{
    return (bytes[0] == 0x15 || bytes[0] == 0x16) && bytes[1] == 3;
}

/* These functions use the session or, if it is NULL, the socket. */
static inline ssize_t disti_tls_or_recv(struct disti_tls *tls, int fd, void *data, size_t bytes)
{
    if (tls)
        return disti_tls_recv(tls, &(struct iovec){data, bytes}, 1);
    return recv(fd, data, bytes, MSG_DONTWAIT);
}

static inline ssize_t disti_tls_or_sendmsg(struct disti_tls *tls, int fd,
                                           const struct msghdr *message)
{
    if (tls)
        return disti_tls_send(tls, message->msg_iov, (int)message->msg_iovlen);
    return sendmsg(fd, message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static inline ssize_t disti_tls_or_send(struct disti_tls *tls, int fd, const void *data,
                                        size_t bytes)
{
    if (tls)
        return disti_tls_send(tls, &(struct iovec){(void *)(uintptr_t)data, bytes}, 1);
    return send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
}

#endif
