/* SPDX-License-Identifier: BSD-3-Clause */
/* Sending in stripes: every socket that has room takes the next one. */
#include "transports/tcp/tcp_state.h"

#include <errno.h>
#include <sys/uio.h>

/*
 * An announced message whose stripes are not all handed out:
 *
 *      request->own[0]   its number, and one more
 *      request->own[3]   where its next stripe begins
 *
 * The next message is announced when each further socket would get no more than so many bytes of
 * what is left: then they need not wait for it, and have soon done with that.
 */
#define STRIPES_AHEAD ((uint64_t)256 << 10)

bool disti_tcp_striped(const struct tcp_peer *peer, struct dist_request *request)
{
    if (request->moved == 0)
        request->own[0] = peer->rails->up > 0 && request->envelope.bytes >= DISTI_TCP_STRIPED_LEAST;
    return request->own[0];
}

/*
 * Behind a message that its receiver cannot take yet nothing is read. So no stripe of an earlier
 * one may come to lie there: from now on those are for the further sockets alone, which should not
 * be too many. Nor may a message cut a stripe that is begun.
 */
bool disti_tcp_stripes_first(const struct tcp_peer *peer)
{
    const struct tcp_rails *rails = peer->rails;

    return rails->rail[0].out.request ||
           (peer->send_head->moved == 0 && rails->rest > (uint64_t)rails->up * STRIPES_AHEAD);
}

void disti_tcp_announced(struct tcp_peer *peer, struct dist_request *request)
{
    struct tcp_rails *rails = peer->rails;

    request->moved = 0;
    request->own[0] = (uintptr_t)++rails->announced;
    request->own[3] = 0;
    request->next = NULL;
    if (rails->head)
        rails->tail->next = request;
    else
        rails->head = request;
    rails->tail = rails->latest = request;
    rails->rest += request->envelope.bytes;
    rails->sending++;
}

/* No stripe of it is left to be handed out. */
static void stripes_remove(struct tcp_rails *rails, struct dist_request *request)
{
    struct dist_request *before = NULL, *at = rails->head;

    while (at && at != request) {
        before = at;
        at = at->next;
    }
    if (!at)
        return;
    if (before)
        before->next = request->next;
    else
        rails->head = request->next;
    if (rails->tail == request)
        rails->tail = before;
    if (rails->latest == request)
        rails->latest = NULL;
    rails->rest -= request->envelope.bytes - request->own[3];
}

/* The next stripe of the oldest message; on the first socket of that which was announced last. */
static bool stripe_take(struct tcp_rails *rails, struct tcp_outgoing *out)
{
    struct dist_request *request = out == &rails->rail[0].out ? rails->latest : rails->head;
    struct dist_envelope frame;

    if (!request)
        return false;
    frame.tag = request->own[0] - 1;
    frame.fingerprint = request->own[3];
    frame.bytes = disti_tcp_stripe_bytes(request->envelope.bytes, rails->up + 1, request->own[3]);
    disti_tcp_frame_encode(DISTI_TCP_STRIPE, &frame, out->header);
    out->request = request;
    out->data = (const char *)request->data + request->own[3];
    out->bytes = frame.bytes;
    out->moved = 0;
    request->own[3] += frame.bytes;
    rails->rest -= frame.bytes;
    if (request->own[3] == request->envelope.bytes)
        stripes_remove(rails, request);
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

/* The first socket. If a message is begun there, there is no latest one to take stripes of. */
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
    if (peer->writable && (rails->rail[0].out.request || rails->latest))
        return true;
    for (int number = 1; number < DISTI_TCP_SOCKETS; number++) {
        const struct tcp_rail *rail = &rails->rail[number];

        if (rail->phase == TCP_PHASE_UP && rail->writable && (rail->out.request || rails->head))
            return true;
    }
    return false;
}

/* Ends one request, of which several sockets may have stripes, and the queue the rest. */
static void stripes_fail(struct tcp_rails *rails, struct dist_request *request, dist_status status)
{
    for (int number = 0; number < DISTI_TCP_SOCKETS; number++) {
        if (rails->rail[number].out.request == request)
            rails->rail[number].out.request = NULL;
    }
    stripes_remove(rails, request);
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
    while (rails->head)
        stripes_fail(rails, rails->head, status);
    rails->sending = 0;
}
