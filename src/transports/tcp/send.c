/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending: header and payload, and as many messages as are queued, in one call. */
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <sys/uio.h>

/* What one sendmsg is to carry. */
struct send_batch {
    struct iovec parts[2 * TCP_BATCH];
    unsigned char headers[TCP_BATCH][DISTI_TCP_FRAME_BYTES];
    int count;
    size_t bytes;
};

static void send_part(struct send_batch *batch, const void *data, size_t bytes)
{
    if (bytes == 0)
        return;
    batch->parts[batch->count].iov_base = (void *)(uintptr_t)data;
    batch->parts[batch->count++].iov_len = bytes;
    batch->bytes += bytes;
}

/*
 * How a message goes is decided when its header is about to be sent, and is kept in
 * request->own[0]: in one piece, or as a header alone, which announces or offers it.
 */
enum send_manner { SEND_WHOLE, SEND_ANNOUNCED, SEND_OFFERED };

/* *credit is what would be left if all before it had been sent. */
static enum send_manner send_decide(const struct tcp_peer *peer, struct dist_request *request,
                                    uint64_t *credit)
{
    bool striped = peer->further > 0 && request->envelope.bytes >= DISTI_TCP_STRIPED_LEAST;

    if (request->moved)
        return (enum send_manner)request->own[0];
    if (disti_tcp_affords(*credit, &request->envelope)) {
        *credit -= request->envelope.bytes + DISTI_TCP_MESSAGE_COST;
        request->own[0] = striped ? SEND_ANNOUNCED : SEND_WHOLE;
    } else {
        request->own[0] = SEND_OFFERED;
    }
    return (enum send_manner)request->own[0];
}

/* Must it wait behind its offers, of which there may be only so many? */
static bool send_waits(const struct tcp_peer *peer, const struct dist_request *request)
{
    return request->moved == 0 && peer->stripes.offered >= TCP_OFFERS_MAX &&
           !disti_tcp_affords(peer->credit.left, &request->envelope);
}

/* Does the message at the head go by itself, its payload not copied? */
static bool send_uncopied(const struct tcp_peer *peer, struct dist_request *request)
{
    uint64_t credit = peer->credit.left;

    return disti_tcp_zerocopy_takes(peer->conn->zerocopy, request->envelope.bytes) &&
           send_decide(peer, request, &credit) == SEND_WHOLE;
}

static const enum disti_tcp_kind send_kinds[] = {[SEND_WHOLE] = DISTI_TCP_MESSAGE,
                                                 [SEND_ANNOUNCED] = DISTI_TCP_ANNOUNCED,
                                                 [SEND_OFFERED] = DISTI_TCP_OFFERED};

/* Something else is to be sent behind what is begun. */
static bool send_only_begun(const struct tcp_peer *peer)
{
    return peer->sends.head->moved && (peer->stripes.ready.head || disti_tcp_control_waits(peer));
}

/*
 * request->moved counts the bytes of header and payload that have gone. The header is made
 * anew each time, so that nothing has to keep it between two calls. Behind an announcement go
 * its stripes. A TLS record has one message: of one that is cut the rest is still to be sent, and
 * then nothing else goes before it.
 */
static void send_gather(const struct tcp_peer *peer, struct send_batch *batch)
{
    struct dist_request *request = peer->sends.head;
    uint64_t credit = peer->credit.left;
    int most = peer->conn->tls || send_only_begun(peer) ? 1 : TCP_BATCH;

    batch->count = 0;
    batch->bytes = 0;
    for (int i = 0; i < most && request && batch->bytes < TCP_TURN_BYTES; i++) {
        size_t moved = request->moved, header = DISTI_TCP_FRAME_BYTES, payload = 0, room;
        enum send_manner manner = send_decide(peer, request, &credit);

        if (i > 0 && manner == SEND_WHOLE &&
            disti_tcp_zerocopy_takes(peer->conn->zerocopy, request->envelope.bytes))
            break; /* it goes by itself */
        if (manner == SEND_OFFERED && peer->stripes.offered + i >= TCP_OFFERS_MAX)
            break;
        if (moved < header) {
            disti_tcp_frame_encode(send_kinds[manner], &request->envelope, batch->headers[i]);
            disti_tcp_seal(peer, batch->headers[i], request, 0,
                           manner == SEND_WHOLE ? request->envelope.bytes : 0);
            send_part(batch, batch->headers[i] + moved, header - moved);
        } else {
            payload = moved - header;
        }
        room = manner == SEND_WHOLE ? request->envelope.bytes - payload : 0;
        if (room > TCP_TURN_BYTES)
            room = TCP_TURN_BYTES;
        send_part(batch, (const char *)request->data + payload, room);
        if (manner == SEND_ANNOUNCED)
            break;
        request = request->next;
    }
}

/* The message at the head has gone as far as it goes from the queue. */
static void send_done(struct tcp_peer *peer)
{
    struct dist_request *request = peer->sends.head;
    enum send_manner manner = (enum send_manner)request->own[0];

    disti_tcp_queue_remove(&peer->sends, request);
    if (manner == SEND_ANNOUNCED) {
        disti_tcp_announced(peer, request);
    } else if (manner == SEND_OFFERED) {
        disti_tcp_offered(peer, request);
    } else {
        request->moved = request->envelope.bytes;
        disti_tcp_sent(request);
    }
}

static void send_advance(struct tcp_peer *peer, size_t bytes)
{
    while (peer->sends.head && bytes) {
        struct dist_request *request = peer->sends.head;
        size_t body = request->own[0] == SEND_WHOLE ? request->envelope.bytes : 0;
        size_t left = body + DISTI_TCP_FRAME_BYTES - request->moved;

        if (request->moved == 0 && request->own[0] != SEND_OFFERED)
            peer->credit.left -= request->envelope.bytes + DISTI_TCP_MESSAGE_COST;
        if (bytes < left) {
            request->moved += bytes;
            return;
        }
        bytes -= left;
        send_done(peer);
    }
}

bool disti_tcp_has_sends(const struct tcp_peer *peer)
{
    return peer->sends.head || peer->pinned || peer->stripes.sending || peer->stripes.offered;
}

void disti_tcp_fail_sends(struct tcp_state *state, struct tcp_peer *peer, dist_status status)
{
    for (int number = 0; number < peer->conns; number++)
        disti_tcp_zerocopy_fail(state, &peer->conn[number], status);
    disti_tcp_queue_fail(&peer->sends, status);
    disti_tcp_stripes_fail(peer, status);
    disti_tcp_control_clear(peer);
}

static void send_broken_first(struct tcp_state *state, struct tcp_conn *first, int cause)
{
    struct tcp_peer *peer = first->peer;

    if (first->state != TCP_CONN_LEAVING)
        disti_tcp_conn_go(first, TCP_CONN_DRAINING);
    if (!peer->cause)
        peer->cause = cause;
    disti_tcp_list(state, peer);
    disti_tcp_zerocopy_reap(state, first);
    first->readable = true;
    disti_tcp_receive(state, first);
    if (peer->pinned)
        disti_tcp_lose(state, peer, cause, NULL);
    if (disti_tcp_has_sends(peer))
        disti_tcp_report(state, peer);
    disti_tcp_fail_sends(state, peer, DIST_ERR_PEER_LOST);
}

void disti_tcp_send_broken(struct tcp_state *state, struct tcp_conn *conn, int cause)
{
    if (conn->number == 0) {
        send_broken_first(state, conn, cause);
        return;
    }
    disti_tcp_conn_drain(state, conn);
    disti_tcp_conn_ended(state, conn, cause);
}

/* Returns what sendmsg does; *asked_p: how much there was. */
static ssize_t send_batch(const struct tcp_peer *peer, size_t *asked_p)
{
    struct send_batch batch;
    struct msghdr message = {.msg_iov = batch.parts};
    ssize_t sent;

    send_gather(peer, &batch);
    message.msg_iovlen = (size_t)batch.count;
    do {
        sent = disti_tls_or_sendmsg(peer->conn->tls, peer->conn->fd, &message);
    } while (sent < 0 && errno == EINTR);
    *asked_p = batch.bytes;
    return sent;
}

/* The message at the head, as far as one call takes it. */
static ssize_t send_without_copy(struct tcp_state *state, struct tcp_peer *peer, size_t *asked_p)
{
    struct dist_request *request = peer->sends.head;
    size_t header = DISTI_TCP_FRAME_BYTES, moved = request->moved;
    size_t payload = moved > header ? moved - header : 0;
    size_t room = request->envelope.bytes - payload;
    unsigned char frame[DISTI_TCP_FRAME_BYTES];
    struct iovec parts[2];

    disti_tcp_frame_encode(DISTI_TCP_MESSAGE, &request->envelope, frame);
    if (moved < header)
        disti_tcp_seal(peer, frame, request, 0, request->envelope.bytes);
    parts[0].iov_base = frame + (moved < header ? moved : header);
    parts[0].iov_len = moved < header ? header - moved : 0;
    parts[1].iov_base = (char *)(uintptr_t)request->data + payload;
    parts[1].iov_len = room < TCP_TURN_BYTES ? room : TCP_TURN_BYTES;
    *asked_p = parts[0].iov_len + parts[1].iov_len;
    return disti_tcp_zerocopy_write(state, peer->conn, request, parts);
}

/* What one call takes on the first connection. */
static int send_flush(struct tcp_state *state, struct tcp_peer *peer)
{
    size_t asked = 0;
    ssize_t sent;

    if (peer->conn->zerocopy && peer->sends.head && send_uncopied(peer, peer->sends.head))
        sent = send_without_copy(state, peer, &asked);
    else
        sent = send_batch(peer, &asked);
    if (sent < 0 && (errno == ENOBUFS || errno == ENOMEM))
        return 0;
    if (sent < 0 && errno != EAGAIN) {
        disti_tcp_send_broken(state, peer->conn, errno);
        return 1;
    }
    if (sent < (ssize_t)asked)
        disti_tcp_conn_set_writable(state, peer->conn, false);
    if (sent <= 0)
        return 0;
    peer->sent_bytes += (size_t)sent;
    send_advance(peer, (size_t)sent);
    return 1;
}

bool disti_tcp_can_flush(const struct tcp_peer *peer)
{
    return disti_tcp_conn_sends(peer->conn) && peer->sends.head && peer->conn->writable &&
           peer->control.begin == peer->control.end &&
           !(peer->conn->out.request && peer->conn->out.moved) &&
           !send_waits(peer, peer->sends.head);
}

int disti_tcp_send_turn(struct tcp_state *state, struct tcp_peer *peer)
{
    uint64_t before = peer->sent_bytes;
    int moved = 0, now;

    do {
        now = disti_tcp_control(state, peer);
        if (disti_tcp_can_flush(peer))
            now += send_flush(state, peer);
        if (peer->stripes.sending)
            now += disti_tcp_stripes_flush(state, peer);
        moved += now;
    } while (now && (peer->stripes.sending || peer->conn->tls) && peer->sends.head &&
             peer->sent_bytes - before < TCP_TURN_BYTES);
    return moved;
}

void disti_tcp_send(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request)
{
    bool first = !peer->sends.head;

    request->moved = 0;
    request->own[0] = request->own[1] = request->own[2] = 0;
    if (peer->conn->state == TCP_CONN_DRAINING && disti_tcp_conn_can_receive(peer->conn, true))
        disti_tcp_receive(state, peer->conn); /* its end says why */
    if (peer->conn->state >= TCP_CONN_DRAINING) {
        request->status = disti_tcp_report(state, peer);
        return;
    }
    disti_tcp_queue_put(&peer->sends, request);
    if (first)
        disti_tcp_send_turn(state, peer);
    if (disti_tcp_has_sends(peer))
        disti_tcp_list(state, peer);
}
