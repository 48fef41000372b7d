/* SPDX-License-Identifier: BSD-3-Clause */
/* TLS 1.3 over a socket that does not block: each end has a certificate and looks at the other's.
 */
#ifndef DISTI_BASE_TLS_TLS_H
#define DISTI_BASE_TLS_TLS_H

#include <dist/dist.h>

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/uio.h>

/*
 * A session stands between its owner and a connected socket, and behaves as the socket would:
 *
 *      owner --disti_tls_send--> [ early ] --> [ one record ] --> socket
 *      owner <--disti_tls_recv-------------- [ one record ] <---- socket
 *
 * What is sent before the handshake has ended waits in `early`. Whoever then asks for the answer
 * (disti_tls_recv) moves the handshake on. The protocols above greet, and wait for an answer, and
 * so need no states for it.
 *
 * Of a record that the socket has not taken whole the last byte counts as not sent. So an owner
 * whose message is cut comes again with the rest of the same message, and nothing that he counts as
 * sent lies here.
 */
#define DISTI_TLS_EARLY 1024
#define DISTI_TLS_BINDING 32
#define DISTI_TLS_WHY 256
/* Bytes that are read from who has not proved that he belongs here: room for long chains. */
#define DISTI_TLS_HANDSHAKE_MOST (64 << 10)

struct disti_tls_context; /* certificate, key, and who is trusted */
struct disti_tls;         /* a session */

/* PEM files. */
struct disti_tls_files {
    const char *cert, *key, *ca;
};

/*
 * Those of the settings; *context_p is NULL where they do not ask for TLS. A failure is reported,
 * and says what to do.
 */
dist_status disti_tls_open(struct disti_tls_context **context_p);
/* From these files. NULL: `why` says what is wrong. */
struct disti_tls_context *disti_tls_context_new(const struct disti_tls_files *files, char *why,
                                                size_t size);
/* Sessions that it has begun go on. NULL is accepted. */
void disti_tls_context_free(struct disti_tls_context *context);

/*
 * A session of who has called `host`, a name or a numeric address: the certificate of who answers
 * must have it among its subject alternative names. The socket stays the caller's. NULL: no memory,
 * or no host.
 */
struct disti_tls *disti_tls_call(struct disti_tls_context *context, int fd, const char *host);
/* Of who has been called. */
struct disti_tls *disti_tls_accept(struct disti_tls_context *context, int fd);
/* Says nothing to the peer: the protocols have goodbyes of their own. NULL is accepted. */
void disti_tls_free(struct disti_tls *tls);

/*
 * As recv and sendmsg with MSG_DONTWAIT and MSG_NOSIGNAL. A short count or EAGAIN: the socket gives
 * or takes no more; after a short count for want of memory nothing waits for room. EPROTO:
 * disti_tls_why says what has gone wrong.
 */
ssize_t disti_tls_recv(struct disti_tls *tls, const struct iovec *parts, int count);
ssize_t disti_tls_send(struct disti_tls *tls, const struct iovec *parts, int count);

/*
 * The peer has proved that it belongs here: until then DISTI_TLS_HANDSHAKE_MOST bytes are read of
 * it, records that bring the owner nothing among them. NULL is accepted.
 */
void disti_tls_trust(struct disti_tls *tls);
/* Has the handshake ended? */
bool disti_tls_is_up(const struct disti_tls *tls);
/* Something waits for room in the socket. */
bool disti_tls_waits_to_send(const struct disti_tls *tls);
/*
 * In words, for a user; "": nothing has gone wrong, or there is no session. Of an end before the
 * handshake's, which is an end and no EPROTO, a guess: it may be as harmless as on a socket.
 */
const char *disti_tls_why(const struct disti_tls *tls);

/*
 * A number that both ends of the session, and nobody else, come to (RFC 9266). A proof made over it
 * holds on no other connection. Returns its bytes; 0: there is no session, or it is not up.
 */
size_t disti_tls_binding(struct disti_tls *tls, unsigned char binding[DISTI_TLS_BINDING]);

/* Does what a plain socket gave begin a TLS record, of a handshake or of an alert? */
static inline bool disti_tls_looks_like(const unsigned char *bytes)
{
    return (bytes[0] == 0x15 || bytes[0] == 0x16) && bytes[1] == 3;
}

/* By the session, or without one by the socket. */
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
