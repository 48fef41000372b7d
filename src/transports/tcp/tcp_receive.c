/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: header, match, payload; every message goes to its sink by the shortest way. */
#include "base/sink.h"
#include "transports/tcp/tcp_state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

/*
 *  socket --recv--> buffer --+--> header: match it
 *     |                      +--> payload: copied, reduced (while in cache), held or dropped
 *     |                      '--> a rest that cannot be used yet: stash
 *     '---- the rest of a large payload that is only copied: straight to where it belongs
 */

bool disti_tcp_has_receives(const struct tcp_peer *peer)
{
    return peer->match.posted_head || peer->in.request;
}

static void incoming_stash_free(struct tcp_incoming *in)
{
    if (in->stash != in->small)
        free(in->stash);
    in->stash = in->small;
    in->stash_bytes = 0;
}

void disti_tcp_incoming_clear(struct tcp_peer *peer)
{
    incoming_stash_free(&peer->in);
    peer->in.active = false;
    peer->in.request = NULL;
    peer->in.early = NULL;
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

static void early_release(struct tcp_peer *peer, struct disti_early *early)
{
    disti_match_release(&peer->match, early);
    peer->early_count--;
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
    if (peer->in.early)
        early_release(peer, peer->in.early);
    if (peer->in.request)
        peer->in.request->status = status;
    disti_tcp_incoming_clear(peer);
    return any;
}

/* May this message be held until its receive is posted? The header's size is not believed. */
static bool receive_may_hold(const struct tcp_state *state, const struct tcp_peer *peer,
                             const struct dist_envelope *envelope)
{
    size_t held = peer->match.held_bytes + peer->early_count * sizeof(struct disti_early);

    return held < state->early_limit && envelope->bytes <= state->early_limit - held;
}

/*
 * The stream has ended and what is left of it lies in the kernel, which has bounded it.
 * Waiting for receives would only hide the end, so all is held, unless it was cut off.
 */
static bool receive_is_cut_off(const struct tcp_peer *peer, const struct dist_envelope *envelope,
                               size_t here)
{
    int waiting = 0;

    if (ioctl(peer->fd, FIONREAD, &waiting))
        waiting = 0;
    return envelope->bytes > here + (size_t)waiting;
}

/*
 * No receive waits for this message: keep it, or stop reading. Where a message has just been
 * received, its receiver may be about to post the next receive: it has until the next turn, which
 * spares the copy.
 */
static bool receive_early(struct tcp_state *state, struct tcp_peer *peer,
                          const struct dist_envelope *envelope, size_t here)
{
    if (peer->finished && !peer->hung_up) {
        peer->resume = true;
        return false;
    }
    if (peer->hung_up && receive_is_cut_off(peer, envelope, here)) {
        disti_tcp_lose(state, peer, 0, NULL);
        return false;
    }
    if (peer->hung_up || receive_may_hold(state, peer, envelope))
        peer->in.early = disti_match_hold(&peer->match, envelope, false);
    if (!peer->in.early) {
        peer->stopped = true;
        if (!peer->stopped_order)
            peer->stopped_order = disti_match_order();
        return false;
    }
    peer->early_count++;
    return true;
}

/*
 * A header is there, and `here` bytes behind it. False: the message cannot be taken now,
 * or the peer is lost.
 */
static bool receive_header(struct tcp_state *state, struct tcp_peer *peer,
                           const unsigned char *bytes, size_t here)
{
    struct tcp_incoming *in = &peer->in;
    struct dist_envelope envelope;
    enum disti_tcp_kind kind;
    bool mismatch = false;

    if (peer->leaving || !disti_tcp_frame_decode(bytes, &kind, &envelope)) {
        disti_tcp_lose(state, peer, 0, "it sent something that is no message of libdist");
        return false;
    }
    if (kind == DISTI_TCP_GOODBYE) {
        peer->leaving = true;
        return true;
    }
    in->request = disti_match_arrival(&peer->match, &envelope, &mismatch);
    if (mismatch)
        in->request = NULL;
    else if (!in->request && !receive_early(state, peer, &envelope, here))
        return false;
    peer->stopped_order = 0;
    in->active = true;
    in->left = envelope.bytes;
    return true;
}

/* Counts payload that has come to its place. */
static void receive_count(struct tcp_incoming *in, size_t bytes)
{
    in->left -= bytes;
    if (in->request)
        in->request->moved += bytes;
    else if (in->early)
        in->early->arrived += bytes;
}

/* Takes payload from the buffer; returns how much. A piece of an element is left there. */
static size_t receive_payload(struct tcp_incoming *in, const unsigned char *data, size_t bytes)
{
    size_t take = bytes < in->left ? bytes : (size_t)in->left;

    if (in->request) {
        const struct dist_sink *sink = &in->request->sink;

        if (sink->src)
            take -= take % dist_dtype_size(sink->dtype);
        disti_sink_apply(sink, in->request->moved, data, take);
    } else if (in->early) {
        memcpy(in->early->payload + in->early->arrived, data, take);
    }
    receive_count(in, take);
    return take;
}

static void receive_finish(struct tcp_peer *peer)
{
    struct tcp_incoming *in = &peer->in;
    struct dist_request *request = in->request;

    in->active = false;
    in->request = NULL;
    in->early = NULL;
    if (!request)
        return;
    request->status = DIST_OK;
    peer->finished = true;
}

/* Makes use of what was read. Returns how much of it; the rest is for later. */
static size_t receive_use(struct tcp_state *state, struct tcp_peer *peer, const unsigned char *data,
                          size_t bytes)
{
    struct tcp_incoming *in = &peer->in;
    size_t used = 0, header = DISTI_TCP_FRAME_BYTES;

    for (;;) {
        if (!in->active) {
            if (bytes - used < header ||
                !receive_header(state, peer, data + used, bytes - used - header))
                return used;
            used += header;
            if (!in->active)
                continue;
        }
        used += receive_payload(in, data + used, bytes - used);
        if (in->left)
            return used;
        receive_finish(peer);
    }
}

static void receive_use_keep(struct tcp_state *state, struct tcp_peer *peer,
                             const unsigned char *data, size_t bytes)
{
    size_t used = receive_use(state, peer, data, bytes);

    if (peer->phase == TCP_PHASE_UP && !incoming_keep(&peer->in, data + used, bytes - used))
        disti_tcp_lose(state, peer, ENOMEM, NULL);
}

/* Where the payload may be read to without the buffer, or NULL. */
static void *receive_direct(const struct tcp_incoming *in)
{
    if (!in->active || in->stash_bytes)
        return NULL;
    if (in->request)
        return disti_sink_direct(&in->request->sink, in->request->moved);
    return in->early ? in->early->payload + in->early->arrived : NULL;
}

/*
 * How much to read into the buffer: the rest of a message, or the next one with its header, and a
 * little of what follows it, since that is better read when its receive is posted, and in place.
 */
static size_t receive_window(const struct tcp_peer *peer, uint64_t left)
{
    const struct dist_request *next = peer->match.posted_head;
    uint64_t window = left + TCP_PEEK_BYTES;

    if (left <= TCP_BUFFER_BYTES / 8) {
        if (!next || next->envelope.bytes <= TCP_BUFFER_BYTES / 8)
            return TCP_BUFFER_BYTES;
        if (next->sink.src)
            window += next->envelope.bytes;
    }
    return window < TCP_BUFFER_BYTES ? (size_t)window : TCP_BUFFER_BYTES;
}

/*
 * One read, and use of what it gave; *full_p: it gave all that was asked for. Payload in
 * place and what follows it in the buffer come with the same call.
 */
static ssize_t receive_once(struct tcp_state *state, struct tcp_peer *peer, bool *full_p)
{
    struct tcp_incoming *in = &peer->in;
    size_t kept = in->stash_bytes, direct = 0;
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
    got =
        first ? recv(peer->fd, parts[1].iov_base, parts[1].iov_len, 0) : readv(peer->fd, parts, 2);
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
        receive_finish(peer);
        receive_use_keep(state, peer, state->buffer, (size_t)got - placed);
    } else {
        receive_use_keep(state, peer, state->buffer, kept + (size_t)got);
    }
    return got;
}

void disti_tcp_resume(struct tcp_peer *peer)
{
    if (peer->stopped) {
        peer->stopped = false;
        peer->resume = true;
    }
}

int disti_tcp_receive(struct tcp_state *state, struct tcp_peer *peer)
{
    struct tcp_incoming *in = &peer->in;
    size_t moved = 0;

    peer->finished = false;
    if (peer->resume) {
        peer->resume = false;
        receive_use_keep(state, peer, in->stash, in->stash_bytes);
        moved++;
    }
    while (peer->phase == TCP_PHASE_UP && !peer->stopped && !peer->resume &&
           moved < TCP_TURN_BYTES) {
        bool full = false;
        ssize_t got = receive_once(state, peer, &full);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            peer->readable = peer->hung_up = false;
            break;
        }
        if (got <= 0) {
            disti_tcp_lose(state, peer, got ? errno : 0, NULL);
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
static void receive_claim(struct tcp_peer *peer, struct disti_early *early,
                          struct dist_request *request)
{
    const struct dist_sink *sink = &request->sink;
    struct tcp_incoming *in = &peer->in;
    bool whole = early != in->early;
    size_t rest = 0;

    if (!whole && sink->src)
        rest = early->arrived % dist_dtype_size(sink->dtype);
    request->moved = early->arrived - rest;
    disti_sink_apply(sink, 0, early->payload, request->moved);
    if (!whole) {
        memcpy(in->small, early->payload + request->moved, rest);
        in->stash_bytes = rest;
        in->left += rest;
        in->early = NULL;
        in->request = request;
    }
    early_release(peer, early);
    if (whole)
        request->status = DIST_OK;
}

/* A message that had come early is not the one that the receive meant: it goes. */
static void receive_refused(struct tcp_peer *peer)
{
    struct tcp_incoming *in = &peer->in;

    if (in->early && in->early->refused) {
        early_release(peer, in->early);
        in->early = NULL;
    } else {
        peer->early_count--;
    }
}

void disti_tcp_recv(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request)
{
    struct disti_early *early;

    request->moved = 0;
    early = disti_match_post(&peer->match, request);
    if (early)
        receive_claim(peer, early, request);
    else if (request->status == DIST_ERR_MISMATCH)
        receive_refused(peer);
    disti_tcp_resume(peer);
    if (peer->phase == TCP_PHASE_LOST && peer->match.posted_head) {
        disti_tcp_report(state, peer);
        disti_tcp_fail_receives(peer, DIST_ERR_PEER_LOST);
    } else if (request->status == DIST_IN_PROGRESS || peer->resume) {
        disti_tcp_list(state, peer);
    }
}
