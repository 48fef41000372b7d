/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends messages, several of them in one system call, and stripes. */
#include "base/settings/config.h"

#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>

/* The data of one sendmsg. */
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
 * What is sent from the queue: the whole message, or only a header, as an announcement or an RTS.
 * The mode is chosen before the header is sent and stored in request->own[0].
 */
enum send_mode { SEND_WHOLE, SEND_ANNOUNCED, SEND_RTS };

/*
 * Chooses the mode of a message. *credit is the credit left after the previous messages of the
 * batch; send_decide subtracts the cost of this message.
 */
static enum send_mode send_decide(const struct tcp_peer *peer, struct dist_request *request,
                                  uint64_t *credit)
{
    bool striped = peer->further > 0 && request->envelope.bytes >= DISTI_TCP_STRIPED_LEAST;

    if (request->moved)
        return (enum send_mode)request->own[0];
    if (disti_tcp_has_credit_for(*credit, &request->envelope)) {
        *credit -= request->envelope.bytes + DISTI_TCP_MESSAGE_COST;
        request->own[0] = striped ? SEND_ANNOUNCED : SEND_WHOLE;
    } else {
        request->own[0] = SEND_RTS;
    }
    return (enum send_mode)request->own[0];
}

/* For messages below this size, pinning pages and reading the completion cost more than a copy. */
#define ZEROCOPY_LEAST ((uint64_t)64 << 10)

static bool tcp_zerocopy_applies(const struct tcp_zerocopy *zerocopy, uint64_t bytes)
{
    return zerocopy && !zerocopy->off && bytes >= ZEROCOPY_LEAST &&
           zerocopy->sent - zerocopy->ended < TCP_ZEROCOPY_CALLS;
}

static const enum disti_tcp_kind send_kinds[] = {[SEND_WHOLE] = DISTI_TCP_MESSAGE,
                                                 [SEND_ANNOUNCED] = DISTI_TCP_ANNOUNCED,
                                                 [SEND_RTS] = DISTI_TCP_RTS};

/*
 * Collects queued messages for one sendmsg. request->moved is the number of bytes of header and
 * payload that have been sent. A partly sent header is encoded again, so it need not be stored.
 * The batch is a single message if TLS is used (one record per message), or if the first message is
 * partly sent and stripes or control frames wait to be sent after it. An announcement ends the
 * batch, since its stripes are sent next.
 */
static void send_gather(const struct tcp_peer *peer, struct send_batch *batch)
{
    struct dist_request *request = peer->sends.head;
    uint64_t credit = peer->credit.left;
    int most = peer->conn->tls || (peer->sends.head->moved &&
                                   (peer->stripes.ready.head || disti_tcp_control_waits(peer)))
                   ? 1
                   : TCP_BATCH;

    batch->count = 0;
    batch->bytes = 0;
    for (int i = 0; i < most && request && batch->bytes < TCP_TURN_BYTES; i++) {
        size_t moved = request->moved, header = DISTI_TCP_FRAME_BYTES, payload = 0, room;
        enum send_mode mode = send_decide(peer, request, &credit);

        if (i > 0 && mode == SEND_WHOLE &&
            tcp_zerocopy_applies(peer->conn->zerocopy, request->envelope.bytes))
            break; /* a zero-copy message is sent alone, by the next call */
        if (mode == SEND_RTS && peer->stripes.rts_count + i >= TCP_RTS_MAX)
            break;
        if (moved < header) {
            disti_tcp_frame_encode(send_kinds[mode], &request->envelope, batch->headers[i]);
            disti_tcp_seal(peer, batch->headers[i], request, 0,
                           mode == SEND_WHOLE ? request->envelope.bytes : 0);
            send_part(batch, batch->headers[i] + moved, header - moved);
        } else {
            payload = moved - header;
        }
        room = mode == SEND_WHOLE ? request->envelope.bytes - payload : 0;
        if (room > TCP_TURN_BYTES)
            room = TCP_TURN_BYTES;
        send_part(batch, (const char *)request->data + payload, room);
        if (mode == SEND_ANNOUNCED)
            break;
        request = request->next;
    }
}

static void stripes_number(struct tcp_stripes *stripes, struct dist_request *request)
{
    request->moved = 0;
    request->own[0] = (uintptr_t)++stripes->numbered;
    request->own[3] = 0;
}

/* Removes the first message from the queue after its header or the whole message has been sent. */
static void send_done(struct tcp_peer *peer)
{
    struct dist_request *request = peer->sends.head;
    enum send_mode mode = (enum send_mode)request->own[0];

    disti_tcp_queue_remove(&peer->sends, request);
    if (mode == SEND_ANNOUNCED) {
        stripes_number(&peer->stripes, request);
        disti_tcp_stripes_ready(&peer->stripes, request);
    } else if (mode == SEND_RTS) {
        stripes_number(&peer->stripes, request);
        disti_tcp_queue_put(&peer->stripes.rts_sends, request);
        peer->stripes.rts_count++;
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

        if (request->moved == 0 && request->own[0] != SEND_RTS)
            peer->credit.left -= request->envelope.bytes + DISTI_TCP_MESSAGE_COST;
        if (bytes < left) {
            request->moved += bytes;
            return;
        }
        bytes -= left;
        send_done(peer);
    }
}

/*
 * Records that the kernel has completed a zero-copy call, and completes the request if nothing else
 * of it is pending.
 */
static void zerocopy_end(struct tcp_state *state, struct tcp_conn *conn, uint32_t call,
                         dist_status status)
{
    struct tcp_zerocopy *zerocopy = conn->zerocopy;
    struct dist_request *request = zerocopy->request[call % TCP_ZEROCOPY_CALLS];

    if (call - zerocopy->ended >= zerocopy->sent - zerocopy->ended || !request)
        return;
    zerocopy->request[call % TCP_ZEROCOPY_CALLS] = NULL;
    while (zerocopy->ended != zerocopy->sent &&
           !zerocopy->request[zerocopy->ended % TCP_ZEROCOPY_CALLS])
        zerocopy->ended++;
    conn->peer->pinned--;
    state->pinned--;
    if (--request->own[1] == 0 && request->own[2])
        request->status = status;
}

void disti_tcp_fail_sends(struct tcp_state *state, struct tcp_peer *peer, dist_status status)
{
    struct tcp_stripes *stripes = &peer->stripes;

    for (int number = 0; number < peer->conns; number++) {
        while (disti_tcp_zerocopy_pending(&peer->conn[number]))
            zerocopy_end(state, &peer->conn[number], peer->conn[number].zerocopy->ended, status);
    }
    disti_tcp_queue_fail(&peer->sends, status);
    for (int number = 0; number < peer->conns; number++) {
        if (peer->conn[number].out.request)
            peer->conn[number].out.request->status = status;
        peer->conn[number].out.request = NULL;
    }
    disti_tcp_queue_fail(&stripes->ready, status);
    disti_tcp_queue_fail(&stripes->rts_sends, status);
    stripes->sending = stripes->rts_count = 0;
    disti_tcp_control_clear(peer);
}

void disti_tcp_send_broken(struct tcp_state *state, struct tcp_conn *conn, int cause)
{
    struct tcp_peer *peer = conn->peer;

    if (conn->number) {
        while (disti_tcp_conn_can_receive(conn, true) && disti_tcp_receive(state, conn) > 0)
            ;
        disti_tcp_conn_ended(state, conn, cause);
        return;
    }
    if (conn->state != TCP_CONN_LEAVING)
        disti_tcp_conn_set_state(conn, TCP_CONN_DRAINING);
    if (!peer->cause)
        peer->cause = cause;
    disti_tcp_list(state, peer);
    disti_tcp_zerocopy_reap(state, conn);
    conn->readable = true;
    disti_tcp_receive(state, conn);
    if (peer->pinned)
        disti_tcp_lose(state, peer, cause, NULL);
    if (disti_tcp_has_sends(peer))
        disti_tcp_report(state, peer);
    disti_tcp_fail_sends(state, peer, DIST_ERR_PEER_LOST);
}

/* Sends a batch of queued messages. Returns the result of sendmsg; *offered_p: bytes passed to it.
 */
static ssize_t send_batch(const struct tcp_peer *peer, size_t *offered_p)
{
    struct send_batch batch;
    struct msghdr message = {.msg_iov = batch.parts};
    ssize_t sent;

    send_gather(peer, &batch);
    message.msg_iovlen = (size_t)batch.count;
    do {
        sent = disti_tls_or_sendmsg(peer->conn->tls, peer->conn->fd, &message);
    } while (sent < 0 && errno == EINTR);
    *offered_p = batch.bytes;
    return sent;
}

static ssize_t zerocopy_call(int fd, const void *data, size_t bytes, int flags)
{
    ssize_t sent;

    do {
        sent = send(fd, data, bytes, flags | MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

/*
 * Sends parts[0] with a copy, then parts[1], which is the request's memory, without a copy if
 * possible. Returns the bytes sent, or -1 with errno set.
 */
static ssize_t tcp_zerocopy_write(struct tcp_state *state, struct tcp_conn *conn,
                                  struct dist_request *request, struct iovec parts[2])
{
    struct tcp_zerocopy *zerocopy = conn->zerocopy;
    bool pins = !state->ending_mask ||
                !disti_standin_is_for(request, state->ending_tag, state->ending_mask);
    ssize_t first = 0, body;

    if (parts[0].iov_len) {
        first = zerocopy_call(conn->fd, parts[0].iov_base, parts[0].iov_len, MSG_MORE);
        if (first < (ssize_t)parts[0].iov_len)
            return first;
    }
    body = zerocopy_call(conn->fd, parts[1].iov_base, parts[1].iov_len, pins ? MSG_ZEROCOPY : 0);
    if (body > 0 && pins) {
        zerocopy->request[zerocopy->sent++ % TCP_ZEROCOPY_CALLS] = request;
        request->own[1]++;
        conn->peer->pinned++;
        state->pinned++;
    } else if (body < 0 && (errno == ENOBUFS || errno == EFAULT)) {
        /*
         * ENOBUFS: the limit of pinned pages is reached (net.core.optmem_max, RLIMIT_MEMLOCK).
         * EFAULT: device memory, which can be copied but not pinned.
         */
        body = zerocopy_call(conn->fd, parts[1].iov_base, parts[1].iov_len, 0);
    }
    return body > 0 ? first + body : first ? first : body;
}

/* Sends the first message without a copy, as much as one call accepts. */
static ssize_t send_without_copy(struct tcp_state *state, struct tcp_peer *peer, size_t *offered_p)
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
    *offered_p = parts[0].iov_len + parts[1].iov_len;
    return tcp_zerocopy_write(state, peer->conn, request, parts);
}

/* Sends queued messages on the first connection with one call. Returns 1 if there was progress. */
static int send_flush(struct tcp_state *state, struct tcp_peer *peer)
{
    uint64_t credit = peer->credit.left;
    size_t offered = 0;
    ssize_t sent;

    /* A message whose payload is sent without a copy is sent alone. */
    if (tcp_zerocopy_applies(peer->conn->zerocopy, peer->sends.head->envelope.bytes) &&
        send_decide(peer, peer->sends.head, &credit) == SEND_WHOLE)
        sent = send_without_copy(state, peer, &offered);
    else
        sent = send_batch(peer, &offered);
    if (sent < 0 && (errno == ENOBUFS || errno == ENOMEM))
        return 0;
    if (sent < 0 && errno != EAGAIN) {
        disti_tcp_send_broken(state, peer->conn, errno);
        return 1;
    }
    if (sent < (ssize_t)offered)
        disti_tcp_conn_set_writable(state, peer->conn, false);
    if (sent <= 0)
        return 0;
    peer->sent_bytes += (size_t)sent;
    send_advance(peer, (size_t)sent);
    return 1;
}

/* Assigns the next stripe of the oldest ready message to the connection. Returns false if none. */
static bool stripe_assign(struct tcp_conn *conn)
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

static void stripe_sent(struct tcp_conn *conn)
{
    struct dist_request *request = conn->out.request;

    conn->out.request = NULL;
    request->moved += conn->out.bytes;
    if (request->moved == request->envelope.bytes) {
        conn->peer->stripes.sending--;
        disti_tcp_sent(request);
    }
}

/*
 * Sends what remains of the stripe's header and data. Returns the result of sendmsg; *whole_p: the
 * stripe is sent completely.
 */
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
        sent = tcp_zerocopy_applies(conn->zerocopy, out->bytes)
                   ? tcp_zerocopy_write(state, conn, out->request, parts)
                   : disti_tls_or_sendmsg(conn->tls, conn->fd, &message);
    } while (sent < 0 && errno == EINTR);
    if (sent > 0)
        out->moved += (uint64_t)sent;
    *whole_p = out->moved == out->bytes + DISTI_TCP_FRAME_BYTES;
    return sent;
}

/*
 * True if a stripe can be sent now. On the first connection, a partly sent message or control frame
 * must be completed first.
 */
static bool stripes_can_send(const struct tcp_conn *conn)
{
    const struct tcp_peer *peer = conn->peer;

    if (!disti_tcp_conn_sends(conn) || !conn->writable)
        return false;
    return conn->number || (peer->control.begin == peer->control.end &&
                            !(peer->sends.head && peer->sends.head->moved));
}

/*
 * Sends stripes until there are none left, the socket is full, or the turn is over. Returns the
 * bytes sent.
 */
static size_t stripes_send(struct tcp_state *state, struct tcp_conn *conn)
{
    size_t moved = 0;

    while (moved < TCP_TURN_BYTES && stripes_can_send(conn)) {
        bool whole;
        ssize_t sent;

        if (moved && !conn->out.request &&
            (conn->number == 0 && (conn->peer->sends.head || disti_tcp_can_control(conn->peer))))
            break;
        if (!conn->out.request && !stripe_assign(conn))
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
            stripe_sent(conn);
        else
            disti_tcp_conn_set_writable(state, conn, false);
    }
    return moved;
}

/* True if a message is queued and can be sent on the first connection now. */
static bool send_can_flush(const struct tcp_peer *peer)
{
    return disti_tcp_conn_sends(peer->conn) && peer->sends.head && peer->conn->writable &&
           peer->control.begin == peer->control.end &&
           !(peer->conn->out.request && peer->conn->out.moved) &&
           !(peer->sends.head->moved == 0 && peer->stripes.rts_count >= TCP_RTS_MAX &&
             !disti_tcp_has_credit_for(peer->credit.left, &peer->sends.head->envelope));
}

int disti_tcp_send_turn(struct tcp_state *state, struct tcp_peer *peer)
{
    uint64_t before = peer->sent_bytes;
    int moved = 0, now;

    do {
        size_t stripes = 0;

        now = disti_tcp_control(state, peer);
        if (send_can_flush(peer))
            now += send_flush(state, peer);
        /* The first connection takes stripes last, since it also carries messages. */
        for (int i = 1; i <= peer->conns && peer->stripes.sending; i++) {
            if (disti_tcp_conn_sends(peer->conn))
                stripes += stripes_send(state, &peer->conn[i % peer->conns]);
        }
        now += stripes > 0;
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
        disti_tcp_receive(state, peer->conn); /* reading the end of the stream sets the cause */
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

/* Zero-copy sends: the kernel reads the program's memory until it reports completion. */

/*
 * The kernel numbers the calls of send with MSG_ZEROCOPY on each socket, from 0. It reports a
 * completed call in the socket's error queue and may read the call's memory until then. A request
 * completes when all its calls are completed. Fields of a request:
 *
 *      request->own[1]   calls that are not completed
 *      request->own[2]   1: the kernel has accepted all bytes of the request
 */

/*
 * Handles one entry of the error queue. Returns false if the entry does not report completed
 * zero-copy calls.
 */
static bool zerocopy_completion(struct tcp_state *state, struct tcp_conn *conn,
                                const struct cmsghdr *header)
{
    struct sock_extended_err notice;
    bool own = (header->cmsg_level == SOL_IP && header->cmsg_type == IP_RECVERR) ||
               (header->cmsg_level == SOL_IPV6 && header->cmsg_type == IPV6_RECVERR);

    if (!own || header->cmsg_len < CMSG_LEN(sizeof(notice)))
        return false;
    memcpy(&notice, CMSG_DATA(header), sizeof(notice));
    if (notice.ee_origin != SO_EE_ORIGIN_ZEROCOPY || notice.ee_errno != 0)
        return false;
    for (uint32_t i = 0; i <= notice.ee_data - notice.ee_info && i < TCP_ZEROCOPY_CALLS; i++)
        zerocopy_end(state, conn, notice.ee_info + i, DIST_OK);
    if (notice.ee_code & SO_EE_CODE_ZEROCOPY_COPIED && state->zerocopy == TCP_ZEROCOPY_AUTO)
        conn->zerocopy->off = true;
    return true;
}

bool disti_tcp_zerocopy_reap(struct tcp_state *state, struct tcp_conn *conn)
{
    bool any = false;

    while (conn->zerocopy) {
        union {
            struct cmsghdr header;
            char bytes[CMSG_SPACE(sizeof(struct sock_extended_err) + sizeof(struct sockaddr_in6))];
        } control;
        struct msghdr message = {.msg_control = &control, .msg_controllen = sizeof(control)};
        ssize_t got = recvmsg(conn->fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
        struct cmsghdr *header;

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        for (header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header))
            any |= zerocopy_completion(state, conn, header);
    }
    return any;
}

void disti_tcp_close(const struct tcp_state *state, struct tcp_conn *conn)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};

    if (conn->fd < 0)
        return;
    if (disti_tcp_zerocopy_pending(conn))
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    disti_tls_free(conn->tls);
    disti_tcp_hang_up(state, conn->fd);
    conn->tls = NULL;
    conn->fd = -1;
}

/* Messages sent in stripes. */

/*
 * Fields of a request after its announcement or RTS has been sent:
 *
 *      request->own[0]   its number plus 1
 *      request->own[3]   offset of its next stripe
 */

bool disti_tcp_can_send(const struct tcp_peer *peer)
{
    if (send_can_flush(peer) || disti_tcp_can_control(peer))
        return true;
    if (!peer->stripes.sending || !disti_tcp_conn_sends(peer->conn))
        return false;
    for (int number = 0; number < peer->conns; number++) {
        const struct tcp_conn *conn = &peer->conn[number];

        if (stripes_can_send(conn) && (conn->out.request || peer->stripes.ready.head))
            return true;
    }
    return false;
}
