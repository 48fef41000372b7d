/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending in stripes: every socket that has room takes the next one. */
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
    request->next = request->prev = NULL;
}

static void stripes_ready(struct tcp_stripes *stripes, struct dist_request *request)
{
    request->next = NULL;
    if (stripes->head)
        stripes->tail->next = request;
    else
        stripes->head = request;
    stripes->tail = request;
    stripes->sending++;
}

void disti_tcp_announced(struct tcp_peer *peer, struct dist_request *request)
{
    stripes_number(&peer->stripes, request);
    stripes_ready(&peer->stripes, request);
}

void disti_tcp_offered(struct tcp_peer *peer, struct dist_request *request)
{
    struct tcp_stripes *stripes = &peer->stripes;

    stripes_number(stripes, request);
    request->prev = stripes->offered_tail;
    if (stripes->offered_tail)
        stripes->offered_tail->next = request;
    else
        stripes->offered_head = request;
    stripes->offered_tail = request;
    stripes->offered++;
}

static void offered_remove(struct tcp_stripes *stripes, struct dist_request *request)
{
    if (request->prev)
        request->prev->next = request->next;
    else
        stripes->offered_head = request->next;
    if (request->next)
        request->next->prev = request->prev;
    else
        stripes->offered_tail = request->prev;
    request->next = request->prev = NULL;
    stripes->offered--;
}

bool disti_tcp_asked(struct tcp_peer *peer, uint64_t number, bool refused)
{
    struct dist_request *request = peer->stripes.offered_head;

    while (request && request->own[0] != number + 1)
        request = request->next;
    if (!request)
        return false;
    offered_remove(&peer->stripes, request);
    if (refused || request->envelope.bytes == 0)
        request->status = DIST_OK;
    else
        stripes_ready(&peer->stripes, request);
    return true;
}

/* No stripe of it is left to be handed out. */
static void stripes_remove(struct tcp_stripes *stripes, struct dist_request *request)
{
    struct dist_request *before = NULL, *at = stripes->head;

    while (at && at != request) {
        before = at;
        at = at->next;
    }
    if (!at)
        return;
    if (before)
        before->next = request->next;
    else
        stripes->head = request->next;
    if (stripes->tail == request)
        stripes->tail = before;
}

/* The next stripe of the oldest message. */
static bool stripe_take(struct tcp_peer *peer, struct tcp_outgoing *out)
{
    struct dist_request *request = peer->stripes.head;
    int sockets = peer->rails ? peer->rails->up + 1 : 1;
    struct dist_envelope frame;

    if (!request)
        return false;
    frame.tag = request->own[0] - 1;
    frame.fingerprint = request->own[3];
    frame.bytes = disti_tcp_stripe_bytes(request->envelope.bytes, sockets, request->own[3]);
    disti_tcp_frame_encode(DISTI_TCP_STRIPE, &frame, out->header);
    out->request = request;
    out->data = (const char *)request->data + request->own[3];
    out->bytes = frame.bytes;
    out->moved = 0;
    request->own[3] += frame.bytes;
    if (request->own[3] == request->envelope.bytes)
        stripes_remove(&peer->stripes, request);
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
static ssize_t stripe_write(struct tcp_state *state, struct tcp_peer *peer, int fd,
                            struct tcp_outgoing *out, bool *whole_p)
{
    size_t header = out->moved < DISTI_TCP_FRAME_BYTES ? out->moved : DISTI_TCP_FRAME_BYTES;
    size_t payload = out->moved - header;
    struct iovec parts[2] = {
        {.iov_base = out->header + header, .iov_len = DISTI_TCP_FRAME_BYTES - header},
        {.iov_base = (void *)(uintptr_t)(out->data + payload), .iov_len = out->bytes - payload}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t sent;

    do {
        sent = disti_tcp_zerocopy_takes(out->zerocopy, out->bytes)
                   ? disti_tcp_zerocopy_write(state, peer, fd, out->zerocopy, out->request, parts)
                   : sendmsg(fd, &message, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent > 0)
        out->moved += (uint64_t)sent;
    *whole_p = out->moved == out->bytes + DISTI_TCP_FRAME_BYTES;
    return sent;
}

enum stripes_end { STRIPES_IDLE, STRIPES_FULL, STRIPES_TURN, STRIPES_BROKEN };

/* Between two stripes on the first socket its other messages have their turn. */
static bool stripes_turn_over(const struct tcp_peer *peer, const struct tcp_outgoing *out)
{
    return out == &peer->stripes.out && (peer->send_head || disti_tcp_can_control(peer));
}

/* Stripes until there are no more, the socket is full, or its turn is over. */
static enum stripes_end stripes_send(struct tcp_state *state, struct tcp_peer *peer, int fd,
                                     struct tcp_outgoing *out, size_t *moved)
{
    size_t turn = 0;

    while (turn < TCP_TURN_BYTES) {
        bool whole;
        ssize_t sent;

        if (turn && !out->request && stripes_turn_over(peer, out))
            return STRIPES_TURN;
        if (!out->request && !stripe_take(peer, out))
            return STRIPES_IDLE;
        sent = stripe_write(state, peer, fd, out, &whole);
        if (sent < 0 && (errno == ENOBUFS || errno == ENOMEM))
            return STRIPES_IDLE;
        if (sent < 0)
            return errno == EAGAIN ? STRIPES_FULL : STRIPES_BROKEN;
        turn += (size_t)sent;
        *moved += (size_t)sent;
        peer->sent_bytes += (uint64_t)sent;
        if (!whole)
            return STRIPES_FULL;
        stripe_sent(&peer->stripes, out);
    }
    return STRIPES_TURN;
}

static void stripes_broken(struct tcp_state *state, struct tcp_peer *peer, struct tcp_rail *rail,
                           int cause)
{
    disti_tcp_rail_drain(state, peer, rail);
    disti_tcp_rail_ended(state, peer, rail, cause);
}

static bool stripes_first_may(const struct tcp_peer *peer)
{
    return peer->writable && peer->control.begin == peer->control.end &&
           !(peer->send_head && peer->send_head->moved);
}

static void stripes_send_first(struct tcp_state *state, struct tcp_peer *peer, size_t *moved)
{
    enum stripes_end end;

    if (!stripes_first_may(peer))
        return;
    end = stripes_send(state, peer, peer->fd, &peer->stripes.out, moved);
    if (end == STRIPES_FULL)
        disti_tcp_set_writable(state, peer, false);
    if (end == STRIPES_BROKEN)
        disti_tcp_send_broken(state, peer, errno);
}

static void stripes_send_further(struct tcp_state *state, struct tcp_peer *peer,
                                 struct tcp_rail *rail, size_t *moved)
{
    enum stripes_end end;

    if (rail->phase != TCP_PHASE_UP || !rail->writable)
        return;
    end = stripes_send(state, peer, rail->fd, &rail->out, moved);
    if (end == STRIPES_FULL)
        disti_tcp_rail_writable(state, rail, false);
    if (end == STRIPES_BROKEN)
        stripes_broken(state, peer, rail, errno);
}

int disti_tcp_stripes_flush(struct tcp_state *state, struct tcp_peer *peer)
{
    const struct tcp_stripes *stripes = &peer->stripes;
    size_t moved = 0;

    if (!stripes->sending || peer->send_status != DIST_OK)
        return 0;
    for (int number = 1; peer->rails && number < DISTI_TCP_SOCKETS && stripes->sending; number++)
        stripes_send_further(state, peer, &peer->rails->rail[number], &moved);
    if (stripes->sending && peer->phase == TCP_PHASE_UP)
        stripes_send_first(state, peer, &moved);
    return moved > 0;
}

bool disti_tcp_stripes_can_send(const struct tcp_peer *peer)
{
    const struct tcp_stripes *stripes = &peer->stripes;

    if (!stripes->sending || peer->send_status != DIST_OK)
        return false;
    if (stripes_first_may(peer) && (stripes->out.request || stripes->head))
        return true;
    for (int number = 1; peer->rails && number < DISTI_TCP_SOCKETS; number++) {
        const struct tcp_rail *rail = &peer->rails->rail[number];

        if (rail->phase == TCP_PHASE_UP && rail->writable && (rail->out.request || stripes->head))
            return true;
    }
    return false;
}

/* The stripe that socket `number` is sending. */
static struct tcp_outgoing *stripes_out(struct tcp_peer *peer, int number)
{
    if (number == 0)
        return &peer->stripes.out;
    return peer->rails ? &peer->rails->rail[number].out : NULL;
}

/* Ends one request, of which several sockets may have stripes. */
static void stripes_end(struct tcp_peer *peer, struct dist_request *request, dist_status status)
{
    for (int number = 0; number < DISTI_TCP_SOCKETS; number++) {
        struct tcp_outgoing *out = stripes_out(peer, number);

        if (out && out->request == request)
            out->request = NULL;
    }
    stripes_remove(&peer->stripes, request);
    request->status = status;
}

void disti_tcp_stripes_fail(struct tcp_state *state, struct tcp_peer *peer, dist_status status)
{
    struct tcp_stripes *stripes = &peer->stripes;

    for (int number = 1; peer->rails && number < DISTI_TCP_SOCKETS; number++)
        disti_tcp_zerocopy_fail(state, peer, peer->rails->rail[number].out.zerocopy, status);
    for (int number = 0; number < DISTI_TCP_SOCKETS; number++) {
        struct tcp_outgoing *out = stripes_out(peer, number);

        if (out && out->request)
            stripes_end(peer, out->request, status);
    }
    while (stripes->head)
        stripes_end(peer, stripes->head, status);
    while (stripes->offered_head) {
        struct dist_request *request = stripes->offered_head;

        offered_remove(stripes, request);
        request->status = status;
    }
    stripes->sending = 0;
}
