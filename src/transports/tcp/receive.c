/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: header, match, payload; every message goes to its sink by the shortest way. */
#include "base/kernels/sink.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* A read of so many bytes was of a message that its sender may not have copied. */
#define RECEIVE_LONG (32 << 10)

/*
 *  socket --recv--> buffer --+--> header: match it
 *     |                      +--> payload: copied, reduced (while in cache), held or dropped
 *     |                      '--> a rest that cannot be used yet: stash
 *     '---- the rest of a large payload that is only copied: straight to where it belongs
 */

bool disti_tcp_has_receives(const struct tcp_peer *peer)
{
    return peer->match.posted_head || peer->in.request || disti_tcp_assembles(peer);
}

static void incoming_stash_free(struct tcp_incoming *in)
{
    if (in->stash != in->small)
        free(in->stash);
    in->stash = in->small;
    in->stash_bytes = 0;
}

void disti_tcp_incoming_clear(struct tcp_incoming *in)
{
    incoming_stash_free(in);
    in->active = false;
    in->assembly = NULL;
    in->request = NULL;
    in->unexpected = NULL;
}

/* Keeps what could not be used; `data` may lie in the stash itself. */
static bool incoming_keep(struct tcp_incoming *in, const unsigned char *data, size_t bytes)
{
    unsigned char *stash = in->small;
    unsigned char *old = in->stash != in->small ? in->stash : NULL;

    if (bytes > sizeof(in->small)) {
        stash = malloc(bytes);
        if (!stash)
            return false;
    }
    memmove(stash, data, bytes);
    free(old);
    in->stash = stash;
    in->stash_bytes = bytes;
    return true;
}

void disti_tcp_unexpected_release(struct tcp_peer *peer, struct disti_unexpected *unexpected)
{
    if (!unexpected->descriptor)
        disti_tcp_give_back(&peer->credit, unexpected->envelope.bytes);
    disti_match_release(&peer->match, unexpected);
}

bool disti_tcp_fail_receives(struct tcp_peer *peer, dist_status status)
{
    bool any = disti_tcp_has_receives(peer);
    struct dist_request *request = peer->match.posted_head;

    peer->match.posted_head = peer->match.posted_tail = NULL;
    while (request) {
        struct dist_request *next = request->next;

        request->status = status;
        request = next;
    }
    if (!peer->in.assembly) {
        if (peer->in.unexpected)
            disti_tcp_unexpected_release(peer, peer->in.unexpected);
        if (peer->in.request)
            peer->in.request->status = status;
    }
    disti_tcp_incoming_clear(&peer->in);
    disti_tcp_assemblies_fail(peer, status);
    disti_match_release_descriptors(&peer->match);
    return any;
}

static bool receive_bad(struct tcp_state *state, struct tcp_peer *peer)
{
    disti_tcp_lose(state, peer, 0, "it sent something that is no message of libdist");
    return false;
}

/*
 * No receive waits for this message: it is kept. Where a message has just been received, its
 * receiver may be about to post the next receive: it has until the next turn, which spares the
 * copy.
 */
static bool receive_unexpected(struct tcp_state *state, struct tcp_peer *peer,
                               const struct dist_envelope *envelope)
{
    if (peer->finished && !peer->hung_up) {
        peer->resume = true;
        return false;
    }
    peer->in.unexpected = disti_match_hold(&peer->match, envelope, false);
    if (!peer->in.unexpected)
        disti_tcp_lose(state, peer, ENOMEM, NULL);
    return peer->in.unexpected;
}

/* An announced message's stripes will find it: this socket goes on without it. */
static bool receive_announced(struct tcp_state *state, struct tcp_peer *peer,
                              const struct dist_envelope *envelope)
{
    struct tcp_incoming *in = &peer->in;
    uint64_t number = peer->stripes.arrived++;

    if (!disti_tcp_assemble(peer, number, envelope->bytes, in->request, in->unexpected)) {
        disti_tcp_lose(state, peer, ENOMEM, NULL);
        return false;
    }
    in->active = false;
    in->request = NULL;
    in->unexpected = NULL;
    return true;
}

/* A message begins, as a whole or as an announcement. False: it cannot be taken now. */
static bool receive_message(struct tcp_state *state, struct tcp_peer *peer,
                            const struct dist_envelope *envelope, bool whole)
{
    struct tcp_incoming *in = &peer->in;
    bool mismatch = false;

    if (!disti_tcp_affords(peer->credit.unused, envelope))
        return receive_bad(state, peer);
    in->request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (!in->request && !receive_unexpected(state, peer, envelope))
        return false;
    if (mismatch)
        in->request = NULL;
    peer->credit.unused -= envelope->bytes + DISTI_TCP_MESSAGE_COST;
    if (!in->unexpected && (whole || !mismatch))
        disti_tcp_give_back(&peer->credit, envelope->bytes);
    in->active = true;
    in->left = envelope->bytes;
    in->at = 0;
    return whole || receive_announced(state, peer, envelope);
}

/* Asks for an offered message that has met its receive. */
static dist_status receive_ask(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
                               struct dist_request *request)
{
    if (bytes && !disti_tcp_assemble(peer, number, bytes, request, NULL))
        return DIST_ERR_NO_MEMORY;
    if (!bytes)
        request->status = DIST_OK;
    return disti_tcp_ask(peer, number, false);
}

/* An offer takes its place in the order of messages, or is answered at once. */
static bool receive_offer(struct tcp_state *state, struct tcp_peer *peer,
                          const struct dist_envelope *envelope)
{
    uint64_t number = peer->stripes.arrived++;
    struct disti_unexpected *unexpected = NULL;
    dist_status status = DIST_OK;
    bool mismatch = false;
    struct dist_request *request = disti_match_arrival(&peer->match, envelope, &mismatch);

    if (mismatch)
        status = disti_tcp_ask(peer, number, true);
    else if (request)
        status = receive_ask(peer, number, envelope->bytes, request);
    else
        unexpected = disti_match_hold(&peer->match, envelope, true);
    if (unexpected)
        unexpected->note[0] = number;
    if (status == DIST_OK && (unexpected || request))
        return true;
    if (request && request->status == DIST_IN_PROGRESS)
        request->status = DIST_ERR_NO_MEMORY;
    disti_tcp_lose(state, peer, ENOMEM, NULL);
    return false;
}

/* A stripe begins. On a further socket it may have to wait for its announcement on the first. */
static bool receive_stripe(struct tcp_state *state, struct tcp_peer *peer, struct tcp_incoming *in,
                           const struct dist_envelope *frame)
{
    enum tcp_stripe_answer answer = disti_tcp_stripe_begin(peer, in, frame);

    if (answer == TCP_STRIPE_BAD || (answer == TCP_STRIPE_WAIT && in == &peer->in))
        return receive_bad(state, peer);
    return answer == TCP_STRIPE_OK;
}

/* Any frame of the first socket but a stripe's. */
static bool receive_frame(struct tcp_state *state, struct tcp_peer *peer, enum disti_tcp_kind kind,
                          const struct dist_envelope *frame)
{
    switch (kind) {
    case DISTI_TCP_MESSAGE:
        return receive_message(state, peer, frame, true);
    case DISTI_TCP_ANNOUNCED:
        if (!peer->rails || frame->bytes < DISTI_TCP_STRIPED_LEAST)
            return receive_bad(state, peer);
        return receive_message(state, peer, frame, false);
    case DISTI_TCP_OFFERED:
        return receive_offer(state, peer, frame);
    case DISTI_TCP_CREDIT:
        return disti_tcp_credit_came(peer, frame->tag) || receive_bad(state, peer);
    case DISTI_TCP_ASK:
        return disti_tcp_asked(peer, frame->tag, frame->fingerprint) || receive_bad(state, peer);
    default:
        peer->leaving = true;
        return true;
    }
}

/* A header is there. False: the message cannot be taken now, or the peer is lost. */
static bool receive_header(struct tcp_state *state, struct tcp_peer *peer, struct tcp_incoming *in,
                           const unsigned char *bytes)
{
    struct dist_envelope envelope;
    enum disti_tcp_kind kind;

    if (!disti_tcp_frame_decode(bytes, &kind, &envelope))
        return receive_bad(state, peer);
    if (kind == DISTI_TCP_STRIPE)
        return receive_stripe(state, peer, in, &envelope);
    if (peer->leaving || in != &peer->in)
        return receive_bad(state, peer);
    return receive_frame(state, peer, kind, &envelope);
}

/* Counts payload that has come to its place. */
static void receive_count(struct tcp_incoming *in, size_t bytes)
{
    in->left -= bytes;
    in->at += bytes;
    if (in->unexpected)
        in->unexpected->arrived += bytes;
}

/* Takes payload from the buffer; returns how much. A piece of an element is left there. */
static size_t receive_payload(struct tcp_incoming *in, const unsigned char *data, size_t bytes)
{
    size_t take = bytes < in->left ? bytes : (size_t)in->left;

    if (in->request) {
        const struct dist_sink *sink = &in->request->sink;

        if (sink->src)
            take -= take % dist_dtype_size(sink->dtype);
        disti_sink_apply(sink, in->at, data, take);
    } else if (in->unexpected) {
        memcpy(in->unexpected->payload + in->at, data, take);
    }
    receive_count(in, take);
    return take;
}

static void receive_finish(struct tcp_peer *peer, struct tcp_incoming *in)
{
    struct dist_request *request = in->request;

    if (in->assembly) {
        disti_tcp_stripe_end(peer, in);
        return;
    }
    in->active = false;
    in->request = NULL;
    in->unexpected = NULL;
    if (!request)
        return;
    request->status = DIST_OK;
    peer->finished = true;
}

/* Makes use of what was read. Returns how much of it; the rest is for later. */
static size_t receive_use(struct tcp_state *state, struct tcp_peer *peer, struct tcp_incoming *in,
                          const unsigned char *data, size_t bytes)
{
    size_t used = 0, header = DISTI_TCP_FRAME_BYTES;

    for (;;) {
        if (!in->active) {
            if (bytes - used < header || !receive_header(state, peer, in, data + used))
                return used;
            used += header;
            if (!in->active)
                continue;
        }
        used += receive_payload(in, data + used, bytes - used);
        if (in->left)
            return used;
        receive_finish(peer, in);
    }
}

static void receive_use_keep(struct tcp_state *state, struct tcp_peer *peer,
                             struct tcp_incoming *in, const unsigned char *data, size_t bytes)
{
    size_t used = receive_use(state, peer, in, data, bytes);

    if (peer->phase == TCP_PHASE_UP && !incoming_keep(in, data + used, bytes - used))
        disti_tcp_lose(state, peer, ENOMEM, NULL);
}

void disti_tcp_use_stash(struct tcp_state *state, struct tcp_peer *peer, struct tcp_incoming *in)
{
    receive_use_keep(state, peer, in, in->stash, in->stash_bytes);
}

/* Where the payload may be read to without the buffer, or NULL. */
static void *receive_direct(const struct tcp_incoming *in)
{
    if (!in->active || in->stash_bytes)
        return NULL;
    if (in->request)
        return disti_sink_direct(&in->request->sink, in->at);
    return in->unexpected ? in->unexpected->payload + in->at : NULL;
}

/*
 * How much to read into the buffer: the rest of a message, or the next one with its header, and a
 * little of what follows it, since that is better read when its receive is posted, and in place.
 */
static size_t receive_window(const struct tcp_peer *peer, uint64_t left)
{
    const struct dist_request *next = peer->match.posted_head;
    uint64_t window = left + TCP_PEEK_BYTES;

    if (peer->stripes.assemblies)
        next = peer->stripes.assemblies->request;
    if (left <= TCP_BUFFER_BYTES / 8) {
        if (!next || next->envelope.bytes <= TCP_BUFFER_BYTES / 8)
            return TCP_BUFFER_BYTES;
        if (next->sink.src)
            window += next->envelope.bytes;
    }
    return window < TCP_BUFFER_BYTES ? (size_t)window : TCP_BUFFER_BYTES;
}

/* Payload in place and what follows it in the buffer come with the same call. */
ssize_t disti_tcp_read(struct tcp_state *state, struct tcp_peer *peer, int fd,
                       struct tcp_incoming *in, bool *full_p)
{
    size_t kept = in->stash_bytes, direct = 0;
    bool began = in->active;
    struct iovec parts[2];
    int first = 1;
    ssize_t got;

    memcpy(state->buffer, in->stash, kept);
    parts[1].iov_base = state->buffer + kept;
    parts[1].iov_len = receive_window(peer, in->active ? in->left : 0) - kept;
    parts[0].iov_base = receive_direct(in);
    if (parts[0].iov_base) {
        first = 0;
        direct = parts[0].iov_len = in->left < TCP_TURN_BYTES ? (size_t)in->left : TCP_TURN_BYTES;
        parts[1].iov_len = direct == in->left ? receive_window(peer, 0) : 0;
    }
    got = first ? recv(fd, parts[1].iov_base, parts[1].iov_len, 0) : readv(fd, parts, 2);
    if (got <= 0)
        return got;
    *full_p = (size_t)got == direct + parts[1].iov_len;
    peer->received_bytes += (size_t)got;
    in->stash_bytes = 0;
    if (direct) {
        size_t placed = (size_t)got < direct ? (size_t)got : direct;

        receive_count(in, placed);
        if (in->left)
            return got;
        receive_finish(peer, in);
        receive_use_keep(state, peer, in, state->buffer, (size_t)got - placed);
    } else {
        receive_use_keep(state, peer, in, state->buffer, kept + (size_t)got);
    }
    if (state->zerocopy && !in->active && (began || got >= RECEIVE_LONG))
        disti_tcp_acknowledge(fd);
    return got;
}

int disti_tcp_receive(struct tcp_state *state, struct tcp_peer *peer)
{
    size_t moved = 0;

    peer->finished = false;
    if (peer->resume) {
        peer->resume = false;
        disti_tcp_use_stash(state, peer, &peer->in);
        moved++;
    }
    while (peer->phase == TCP_PHASE_UP && !peer->resume && moved < TCP_TURN_BYTES) {
        bool full = false;
        ssize_t got = disti_tcp_read(state, peer, peer->fd, &peer->in, &full);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            peer->readable = peer->hung_up = false;
            break;
        }
        if (got <= 0) {
            int cause = got ? errno : 0;

            if (!peer->rails || !disti_tcp_rails_drain(state, peer, cause))
                disti_tcp_lose(state, peer, cause, NULL);
            return 1;
        }
        moved += (size_t)got;
        if (!full && !peer->hung_up) {
            peer->readable = false;
            break;
        }
    }
    return moved > 0;
}

/* The receive takes a message that came before it, whole or as far as it has come. */
static void receive_claim(struct tcp_peer *peer, struct disti_unexpected *unexpected,
                          struct dist_request *request)
{
    const struct dist_sink *sink = &request->sink;
    struct tcp_incoming *in = &peer->in;
    bool whole = unexpected != in->unexpected;
    size_t rest = 0;

    if (!whole && sink->src)
        rest = unexpected->arrived % dist_dtype_size(sink->dtype);
    request->moved = unexpected->arrived - rest;
    disti_sink_apply(sink, 0, unexpected->payload, request->moved);
    if (!whole) {
        memcpy(in->small, unexpected->payload + request->moved, rest);
        in->stash_bytes = rest;
        in->left += rest;
        in->at = request->moved;
        in->unexpected = NULL;
        in->request = request;
    }
    disti_tcp_unexpected_release(peer, unexpected);
    if (whole)
        request->status = DIST_OK;
}

/* The receive takes a message that was only offered. */
static void receive_claim_offer(struct tcp_state *state, struct tcp_peer *peer,
                                struct disti_unexpected *unexpected, struct dist_request *request)
{
    dist_status status =
        receive_ask(peer, unexpected->note[0], unexpected->envelope.bytes, request);

    disti_tcp_unexpected_release(peer, unexpected);
    if (status != DIST_OK) {
        request->status =
            disti_fail(status, "tcp: rank %d has no memory to ask rank %d for a message",
                       state->rank, peer->rank);
        return;
    }
    disti_tcp_list(state, peer);
    disti_tcp_control(state, peer);
}

/*
 * A message that had come early is not the one that the receive meant: it goes. `offer` is its
 * number, if it was offered.
 */
static void receive_refused(struct tcp_state *state, struct tcp_peer *peer, const uint64_t *offer,
                            uint64_t bytes)
{
    struct tcp_incoming *in = &peer->in;

    if (offer) {
        if (disti_tcp_ask(peer, *offer, true) != DIST_OK)
            disti_tcp_lose(state, peer, ENOMEM, NULL);
        else
            disti_tcp_list(state, peer);
    } else if (in->unexpected && in->unexpected->refused) {
        disti_tcp_unexpected_release(peer, in->unexpected);
        in->unexpected = NULL;
    } else if (!disti_tcp_assembly_refused(peer)) {
        disti_tcp_give_back(&peer->credit, bytes);
    }
}

static void receive_post(struct tcp_state *state, struct tcp_peer *peer,
                         struct dist_request *request)
{
    const struct disti_unexpected *waiting =
        disti_match_waiting(&peer->match, request->envelope.tag);
    uint64_t number = waiting ? waiting->note[0] : 0;
    bool offered = waiting && waiting->descriptor;
    struct disti_unexpected *unexpected = disti_match_post(&peer->match, request);

    if (unexpected && unexpected->refused && disti_match_is_whole(unexpected))
        disti_match_release(&peer->match, unexpected);
    if (request->status == DIST_ERR_MISMATCH)
        receive_refused(state, peer, offered ? &number : NULL, request->arrived.bytes);
    else if (offered)
        receive_claim_offer(state, peer, unexpected, request);
    /* What comes in stripes is taken when all are there. */
    else if (unexpected && !disti_tcp_assembling(peer, unexpected))
        receive_claim(peer, unexpected, request);
}

void disti_tcp_recv(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request)
{
    request->moved = 0;
    receive_post(state, peer, request);
    if (peer->phase == TCP_PHASE_LOST && peer->match.posted_head) {
        disti_tcp_report(state, peer);
        disti_tcp_fail_receives(peer, DIST_ERR_PEER_LOST);
    } else if (request->status == DIST_IN_PROGRESS || peer->resume || disti_tcp_can_control(peer)) {
        disti_tcp_list(state, peer);
    }
}
