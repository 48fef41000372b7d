/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending in stripes: every connection that has room takes the next one. */
#include "transports/tcp/state.h"

#include <errno.h>
#include <sys/uio.h>

/*
 * A message that is announced or offered:
 *
 *      request->own[0]   its number, and one more
 *      request->own[3]   where its next stripe begins
 */

static void stripes_number(struct tcp_stripes *stripes, struct dist_request *request)
{
    request->moved = 0;
    request->own[0] = (uintptr_t)++stripes->numbered;
    request->own[3] = 0;
}

static void stripes_ready(struct tcp_stripes *stripes, struct dist_request *request)
{
    disti_tcp_queue_put(&stripes->ready, request);
    stripes->sending++;
}

void disti_tcp_announced(struct tcp_peer *peer, struct dist_request *request)
{
    stripes_number(&peer->stripes, request);
    stripes_ready(&peer->stripes, request);
}

void disti_tcp_offered(struct tcp_peer *peer, struct dist_request *request)
{
    stripes_number(&peer->stripes, request);
    disti_tcp_queue_put(&peer->stripes.offers, request);
    peer->stripes.offered++;
}

bool disti_tcp_asked(struct tcp_peer *peer, uint64_t number, bool refused)
{
    struct dist_request *request = peer->stripes.offers.head;

    while (request && request->own[0] != number + 1)
        request = request->next;
    if (!request)
        return false;
    disti_tcp_queue_remove(&peer->stripes.offers, request);
    peer->stripes.offered--;
    if (refused || request->envelope.bytes == 0)
        request->status = DIST_OK;
    else
        stripes_ready(&peer->stripes, request);
    return true;
}

/* The next stripe of the oldest message. */
static bool stripe_take(struct tcp_conn *conn)
{
    struct tcp_peer *peer = conn->peer;
    struct tcp_outgoing *out = &conn->out;
    struct dist_request *request = peer->stripes.ready.head;
    int sockets = peer->further + 1;
    struct dist_envelope frame;

    if (!request)
        return false;
    frame.tag = request->own[0] - 1;
    frame.fingerprint = request->own[3];
    frame.bytes = disti_tcp_stripe_bytes(request->envelope.bytes, sockets, request->own[3]);
    disti_tcp_frame_encode(DISTI_TCP_STRIPE, &frame, out->header);
    disti_tcp_seal(peer, out->header, request, request->own[3], frame.bytes);
    out->request = request;
    out->data = (const char *)request->data + request->own[3];
    out->bytes = frame.bytes;
    out->moved = 0;
    request->own[3] += frame.bytes;
    if (request->own[3] == request->envelope.bytes)
        disti_tcp_queue_remove(&peer->stripes.ready, request);
    return true;
}

static void stripe_sent(struct tcp_stripes *stripes, struct tcp_outgoing *out)
{
    struct dist_request *request = out->request;

    out->request = NULL;
    request->moved += out->bytes;
    if (request->moved == request->envelope.bytes) {
        stripes->sending--;
        disti_tcp_sent(request);
    }
}

/* What is left of the stripe and of its header. Returns what sendmsg does; *whole_p: all went. */
static ssize_t stripe_write(struct tcp_state *state, struct tcp_conn *conn, bool *whole_p)
{
    struct tcp_outgoing *out = &conn->out;
    size_t header = out->moved < DISTI_TCP_FRAME_BYTES ? out->moved : DISTI_TCP_FRAME_BYTES;
    size_t payload = out->moved - header;
    struct iovec parts[2] = {
        {.iov_base = out->header + header, .iov_len = DISTI_TCP_FRAME_BYTES - header},
        {.iov_base = (void *)(uintptr_t)(out->data + payload), .iov_len = out->bytes - payload}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent;

    do {
        sent = disti_tcp_zerocopy_takes(conn->zerocopy, out->bytes)
                   ? disti_tcp_zerocopy_write(state, conn, out->request, parts)
                   : disti_tls_or_sendmsg(conn->tls, conn->fd, &message);
    } while (sent < 0 && errno == EINTR);
    if (sent > 0)
        out->moved += (uint64_t)sent;
    *whole_p = out->moved == out->bytes + DISTI_TCP_FRAME_BYTES;
    return sent;
}

/* May a stripe go on this connection now? On the first, what is begun goes before. */
static bool stripes_may(const struct tcp_conn *conn)
{
    const struct tcp_peer *peer = conn->peer;

    if (!disti_tcp_conn_sends(conn) || !conn->writable)
        return false;
    return conn->number || (peer->control.begin == peer->control.end &&
                            !(peer->sends.head && peer->sends.head->moved));
}

/* Between two stripes on the first connection its other messages have their turn. */
static bool stripes_turn_over(const struct tcp_conn *conn)
{
    return conn->number == 0 && (conn->peer->sends.head || disti_tcp_can_control(conn->peer));
}

/* Stripes until there are no more, the socket is full, or its turn is over. Returns the bytes. */
static size_t stripes_send(struct tcp_state *state, struct tcp_conn *conn)
{
    size_t moved = 0;

    while (moved < TCP_TURN_BYTES && stripes_may(conn)) {
        bool whole;
        ssize_t sent;

        if (moved && !conn->out.request && stripes_turn_over(conn))
            break;
        if (!conn->out.request && !stripe_take(conn))
            break;
        sent = stripe_write(state, conn, &whole);
        if (sent < 0 && (errno == ENOBUFS || errno == ENOMEM))
            break;
        if (sent < 0 && errno != EAGAIN) {
            disti_tcp_send_broken(state, conn, errno);
            break;
        }
        if (sent > 0) {
            moved += (size_t)sent;
            conn->peer->sent_bytes += (uint64_t)sent;
        }
        if (whole)
            stripe_sent(&conn->peer->stripes, &conn->out);
        else
            disti_tcp_conn_set_writable(state, conn, false);
    }
    return moved;
}

/* The first connection has the messages too: it takes what the others leave. */
int disti_tcp_stripes_flush(struct tcp_state *state, struct tcp_peer *peer)
{
    size_t moved = 0;

    for (int i = 1; i <= peer->conns && peer->stripes.sending; i++) {
        if (disti_tcp_conn_sends(peer->conn))
            moved += stripes_send(state, &peer->conn[i % peer->conns]);
    }
    return moved > 0;
}

bool disti_tcp_stripes_can_send(const struct tcp_peer *peer)
{
    if (!peer->stripes.sending || !disti_tcp_conn_sends(peer->conn))
        return false;
    for (int number = 0; number < peer->conns; number++) {
        const struct tcp_conn *conn = &peer->conn[number];

        if (stripes_may(conn) && (conn->out.request || peer->stripes.ready.head))
            return true;
    }
    return false;
}

void disti_tcp_stripes_fail(struct tcp_peer *peer, dist_status status)
{
    struct tcp_stripes *stripes = &peer->stripes;

    for (int number = 0; number < peer->conns; number++) {
        if (peer->conn[number].out.request)
            peer->conn[number].out.request->status = status;
        peer->conn[number].out.request = NULL;
    }
    disti_tcp_queue_fail(&stripes->ready, status);
    disti_tcp_queue_fail(&stripes->offers, status);
    stripes->sending = stripes->offered = 0;
}
