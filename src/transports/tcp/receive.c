/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: header, match, payload; every message goes to its sink by the shortest way. */
#include "base/kernels/sink.h"
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

static const unsigned char *incoming_stash(const struct tcp_incoming *in)
{
    return in->stash ? in->stash : in->small;
}

void disti_tcp_incoming_clear(struct tcp_incoming *in)
{
    free(in->stash);
    *in = (struct tcp_incoming){0};
}

/* Keeps what could not be used; `data` may lie in the stash itself. */
static bool incoming_keep(struct tcp_incoming *in, const unsigned char *data, size_t bytes)
{
    unsigned char *stash = bytes > sizeof(in->small) ? malloc(bytes) : NULL;

    if (bytes > sizeof(in->small) && !stash)
        return false;
    memmove(stash ? stash : in->small, data, bytes);
    free(in->stash);
    in->stash = stash;
    in->stash_bytes = bytes;
    return true;
}

/* Counts payload that has come to its place from `data`, or to there. */
static void receive_count(struct tcp_conn *conn, const void *data, size_t bytes)
{
    struct tcp_incoming *in = &conn->in;

    disti_tcp_sum(conn->peer, in, data, bytes);
    in->left -= bytes;
    in->offset += bytes;
    if (in->unexpected)
        in->unexpected->arrived += bytes;
}

/* Takes payload from the buffer; returns how much. A piece of an element is left there. */
static size_t receive_payload(struct tcp_conn *conn, const unsigned char *data, size_t bytes)
{
    struct tcp_incoming *in = &conn->in;
    size_t take = bytes < in->left ? bytes : (size_t)in->left;

    if (in->request) {
        const struct dist_sink *sink = &in->request->sink;

        if (sink->src)
            take -= take % dist_dtype_size(sink->dtype);
        disti_sink_apply(sink, in->offset, data, take);
    } else if (in->unexpected) {
        memcpy(in->unexpected->payload + in->offset, data, take);
    }
    receive_count(conn, data, take);
    return take;
}

/* All of it is here. False: it is damaged, and the peer is lost. */
static bool receive_finish(struct tcp_state *state, struct tcp_conn *conn)
{
    struct tcp_incoming *in = &conn->in;
    struct dist_request *request = in->request;

    if (!disti_tcp_sum_fits(state, conn))
        return false;
    if (in->assembly) {
        disti_tcp_stripe_end(conn);
        return true;
    }
    in->active = false;
    in->request = NULL;
    in->unexpected = NULL;
    if (!request)
        return true;
    request->status = DIST_OK;
    conn->finished = true;
    return true;
}

/* Makes use of what was read. Returns how much of it; the rest is for later. */
static size_t receive_use(struct tcp_state *state, struct tcp_conn *conn, const unsigned char *data,
                          size_t bytes)
{
    struct tcp_incoming *in = &conn->in;
    size_t used = 0, header = DISTI_TCP_FRAME_BYTES;

    for (;;) {
        if (!in->active) {
            if (bytes - used < header || !disti_tcp_frame(state, conn, data + used))
                return used;
            used += header;
            if (!in->active)
                continue;
        }
        used += receive_payload(conn, data + used, bytes - used);
        if (in->left || !receive_finish(state, conn))
            return used;
    }
}

static void receive_use_keep(struct tcp_state *state, struct tcp_conn *conn,
                             const unsigned char *data, size_t bytes)
{
    size_t used = receive_use(state, conn, data, bytes);

    if (disti_tcp_conn_is_open(conn) && !incoming_keep(&conn->in, data + used, bytes - used))
        disti_tcp_lose(state, conn->peer, ENOMEM, NULL);
}

/* Where the payload may be read to without the buffer, or NULL. */
static void *receive_direct(const struct tcp_incoming *in)
{
    if (!in->active || in->stash_bytes)
        return NULL;
    if (in->request)
        return disti_sink_direct(&in->request->sink, in->offset);
    return in->unexpected ? in->unexpected->payload + in->offset : NULL;
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

/*
 * One read, and use of what it gave; *full_p: it gave all that was asked for. Payload in place and
 * what follows it in the buffer come with the same call. Returns what it does.
 */
static ssize_t receive_read(struct tcp_state *state, struct tcp_conn *conn, bool *full_p)
{
    struct tcp_peer *peer = conn->peer;
    struct tcp_incoming *in = &conn->in;
    size_t kept = in->stash_bytes, direct = 0;
    bool began = in->active;
    struct iovec parts[2];
    int first = 1;
    ssize_t got;

    memcpy(state->buffer, incoming_stash(in), kept);
    parts[1].iov_base = state->buffer + kept;
    parts[1].iov_len = receive_window(peer, in->active ? in->left : 0) - kept;
    parts[0].iov_base = receive_direct(in);
    if (parts[0].iov_base) {
        first = 0;
        direct = parts[0].iov_len = in->left < TCP_TURN_BYTES ? (size_t)in->left : TCP_TURN_BYTES;
        parts[1].iov_len = direct == in->left ? receive_window(peer, 0) : 0;
    }
    if (conn->tls)
        got = disti_tls_recv(conn->tls, parts + first, 2 - first);
    else if (first)
        got = recv(conn->fd, parts[1].iov_base, parts[1].iov_len, 0);
    else
        got = readv(conn->fd, parts, 2);
    if (got <= 0)
        return got;
    *full_p = (size_t)got == direct + parts[1].iov_len;
    peer->received_bytes += (size_t)got;
    in->stash_bytes = 0;
    if (direct) {
        size_t placed = (size_t)got < direct ? (size_t)got : direct;

        receive_count(conn, parts[0].iov_base, placed);
        if (in->left || !receive_finish(state, conn))
            return got;
        receive_use_keep(state, conn, state->buffer, (size_t)got - placed);
    } else {
        receive_use_keep(state, conn, state->buffer, kept + (size_t)got);
    }
    if (state->zerocopy && !in->active && (began || got >= RECEIVE_LONG))
        disti_tcp_acknowledge(conn->fd);
    return got;
}

/* Goes on with what was read before. */
static void receive_resume(struct tcp_state *state, struct tcp_conn *conn)
{
    if (conn->state == TCP_CONN_RESUMING)
        disti_tcp_conn_go(conn, TCP_CONN_UP);
    receive_use_keep(state, conn, incoming_stash(&conn->in), conn->in.stash_bytes);
}

/* A short read was the last for now, unless the stream's end is what is waited for. */
static bool receive_reads_on(const struct tcp_conn *conn)
{
    return conn->state == TCP_CONN_DRAINING || conn->state == TCP_CONN_LEAVING ||
           conn->peer->deadline;
}

size_t disti_tcp_receive(struct tcp_state *state, struct tcp_conn *conn)
{
    bool header_waits = !conn->in.active && conn->in.stash_bytes >= DISTI_TCP_FRAME_BYTES;
    size_t moved = 0;

    conn->finished = false;
    if (conn->state == TCP_CONN_RESUMING || header_waits) {
        receive_resume(state, conn);
        moved++;
    }
    while (moved < TCP_TURN_BYTES && conn->state != TCP_CONN_RESUMING &&
           disti_tcp_conn_can_receive(conn, true)) {
        bool full = false;
        ssize_t got = receive_read(state, conn, &full);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN) {
            conn->readable = false;
            break;
        }
        if (got <= 0) {
            disti_tcp_conn_ended(state, conn, got ? errno : 0);
            return moved + 1;
        }
        moved += (size_t)got;
        /* A session may hold more, of which epoll does not know. */
        conn->readable |= full && conn->tls;
        if (!full && !receive_reads_on(conn)) {
            conn->readable = false;
            break;
        }
    }
    return moved;
}
