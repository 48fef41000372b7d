/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending in stripes: every socket that has room takes the next one from the cursor. */
#include "transports/tcp/tcp_state.h"

#include <errno.h>
#include <sys/uio.h>

bool disti_tcp_striped(const struct tcp_peer *peer, struct dist_request *request)
{
    if (request->moved == 0)
        request->own[0] = peer->rails->up > 0 && request->envelope.bytes >= DISTI_TCP_STRIPED_LEAST;
    return request->own[0];
}

/*
 * Behind a message that its receiver cannot take yet nothing is read. So no stripe of an earlier
 * one may come to lie there; nor may a message cut one that is begun.
 */
bool disti_tcp_stripes_first(const struct tcp_peer *peer)
{
    return peer->rails->current || peer->rails->rail[0].out.request;
}

void disti_tcp_announced(struct tcp_peer *peer, struct dist_request *request)
{
    request->moved = 0;
    request->next = NULL;
    peer->rails->current = request;
    peer->rails->sending++;
}

/* The next stripe, if there is any left. */
static bool stripe_take(struct tcp_rails *rails, struct tcp_outgoing *out)
{
    struct dist_request *request = rails->current;
    struct dist_envelope frame;

    if (!request)
        return false;
    frame.tag = rails->current_number;
    frame.fingerprint = rails->cursor;
    frame.bytes = disti_tcp_stripe_bytes(request->envelope.bytes, rails->up + 1, rails->cursor);
    disti_tcp_frame_encode(DISTI_TCP_STRIPE, &frame, out->header);
    out->request = request;
    out->data = (const char *)request->data + rails->cursor;
    out->bytes = frame.bytes;
    out->moved = 0;
    rails->cursor += frame.bytes;
    if (rails->cursor == request->envelope.bytes) {
        rails->current = NULL;
        rails->cursor = 0;
        rails->current_number++;
    }
    return true;
}

static void stripe_sent(struct tcp_rails *rails, struct tcp_outgoing *out)
{
    struct dist_request *request = out->request;

    out->request = NULL;
    request->moved += out->bytes;
    if (request->moved == request->envelope.bytes) {
        rails->sending--;
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

/* Stripes until there are no more, the socket is full, or its turn is over. */
static enum stripes_end stripes_send(struct tcp_state *state, struct tcp_peer *peer, int fd,
                                     struct tcp_outgoing *out, size_t *moved)
{
    size_t turn = 0;

    while (turn < TCP_TURN_BYTES) {
        bool whole;
        ssize_t sent;

        if (!out->request && !stripe_take(peer->rails, out))
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
        stripe_sent(peer->rails, out);
    }
    return STRIPES_TURN;
}

static void stripes_broken(struct tcp_state *state, struct tcp_peer *peer, struct tcp_rail *rail,
                           int cause)
{
    disti_tcp_rail_drain(state, peer, rail);
    disti_tcp_rail_ended(state, peer, rail, cause);
}

/* The first socket. A message that is begun there goes on: then there are no stripes. */
static void stripes_send_first(struct tcp_state *state, struct tcp_peer *peer, size_t *moved)
{
    struct tcp_outgoing *out = &peer->rails->rail[0].out;
    enum stripes_end end;

    if (!peer->writable)
        return;
    end = stripes_send(state, peer, peer->fd, out, moved);
    if (end == STRIPES_FULL)
        disti_tcp_set_writable(state, peer, false);
    if (end == STRIPES_BROKEN)
        disti_tcp_send_broken(state, peer, errno);
}

int disti_tcp_rails_flush(struct tcp_state *state, struct tcp_peer *peer)
{
    struct tcp_rails *rails = peer->rails;
    size_t moved = 0;

    if (!rails->sending || peer->send_status != DIST_OK)
        return 0;
    for (int number = 1; number < DISTI_TCP_SOCKETS && rails->sending; number++) {
        struct tcp_rail *rail = &rails->rail[number];
        enum stripes_end end;

        if (rail->phase != TCP_PHASE_UP || !rail->writable)
            continue;
        end = stripes_send(state, peer, rail->fd, &rail->out, &moved);
        if (end == STRIPES_FULL)
            disti_tcp_rail_writable(state, rail, false);
        if (end == STRIPES_BROKEN)
            stripes_broken(state, peer, rail, errno);
    }
    if (rails->sending)
        stripes_send_first(state, peer, &moved);
    return moved > 0;
}

bool disti_tcp_rails_can_send(const struct tcp_peer *peer)
{
    const struct tcp_rails *rails = peer->rails;

    if (!rails->sending || peer->send_status != DIST_OK)
        return false;
    if (peer->writable && (rails->rail[0].out.request || rails->current))
        return true;
    for (int number = 1; number < DISTI_TCP_SOCKETS; number++) {
        const struct tcp_rail *rail = &rails->rail[number];

        if (rail->phase == TCP_PHASE_UP && rail->writable && (rail->out.request || rails->current))
            return true;
    }
    return false;
}

/* Ends one request, of which several sockets may have stripes, and the cursor the rest. */
static void stripes_fail(struct tcp_rails *rails, struct dist_request *request, dist_status status)
{
    for (int number = 0; number < DISTI_TCP_SOCKETS; number++) {
        if (rails->rail[number].out.request == request)
            rails->rail[number].out.request = NULL;
    }
    if (rails->current == request)
        rails->current = NULL;
    request->status = status;
}

void disti_tcp_rails_fail_sends(struct tcp_state *state, struct tcp_peer *peer, dist_status status)
{
    struct tcp_rails *rails = peer->rails;

    for (int number = 1; number < DISTI_TCP_SOCKETS; number++)
        disti_tcp_zerocopy_fail(state, peer, rails->rail[number].out.zerocopy, status);
    for (int number = 0; number < DISTI_TCP_SOCKETS; number++) {
        if (rails->rail[number].out.request)
            stripes_fail(rails, rails->rail[number].out.request, status);
    }
    if (rails->current)
        stripes_fail(rails, rails->current, status);
    rails->sending = 0;
    rails->cursor = 0;
}
