/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives frames, matches messages and writes payload to its destination with as few copies as
 * possible. Also sends credit and CTS.
 */
#include "base/faults.h"
#include "base/kernels/crc32c.h"
#include "base/kernels/sink.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "transports/match/match.h"
#include "transports/tcp/state.h"
#include "transports/tcp/wire.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

/* After a read of at least this size, the sender may be waiting to complete a zero-copy send. */
#define RECEIVE_LONG (32 << 10)

/*
 * The path of received data:
 *
 *  socket --recv--> buffer --+--> header: matched
 *     |                      +--> payload: copied, reduced (while in cache), buffered or discarded
 *     |                      '--> data that cannot be used yet: stash
 *     '---- remaining payload that needs no reduction: directly to its destination
 */

static const unsigned char *incoming_stash(const struct tcp_incoming *in)
{
    return in->stash ? in->stash : in->small;
}

/* Adds received payload to the frame's checksum. */
static void tcp_sum(const struct tcp_peer *peer, struct tcp_incoming *in, const void *data,
                    size_t bytes)
{
    if (peer->checksum)
        in->sum = disti_crc32c(in->sum, data, bytes);
}

/* Counts payload that has been stored. `data` points to it, in the buffer or at its destination. */
static void receive_count(struct tcp_conn *conn, const void *data, size_t bytes)
{
    struct tcp_incoming *in = &conn->in;

    tcp_sum(conn->peer, in, data, bytes);
    in->left -= bytes;
    in->offset += bytes;
    if (in->unexpected)
        in->unexpected->arrived += bytes;
}

/*
 * Copies or reduces payload from the buffer. Returns the bytes used; an incomplete element at the
 * end is left.
 */
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

/* Ends a stripe that has been stored completely. Ends its message too if no other stripe is left.
 */
static void tcp_stripe_end(struct tcp_conn *conn)
{
    struct tcp_incoming *in = &conn->in;
    struct tcp_peer *peer = conn->peer;
    struct tcp_assembly **at = &peer->stripes.assemblies, *assembly = in->assembly;
    struct disti_unexpected *unexpected;
    struct dist_request *request;

    assembly->left -= in->stripe;
    in->active = false;
    in->assembly = NULL;
    in->request = NULL;
    in->unexpected = NULL;
    if (assembly->left)
        return;
    while (*at != assembly)
        at = &(*at)->next;
    *at = assembly->next;
    /* The message is complete. Complete its receive if one has been posted. */
    unexpected = assembly->unexpected;
    request = unexpected ? unexpected->claimed : assembly->request;
    if (assembly->costs)
        disti_tcp_credit_return(&peer->credit, assembly->bytes);
    if (unexpected && request) {
        disti_sink_apply(&request->sink, 0, unexpected->payload, (size_t)assembly->bytes);
        disti_tcp_unexpected_release(peer, unexpected);
    }
    if (request) {
        request->status = DIST_OK;
        conn->finished = true;
    }
    free(assembly);
}

/* Checks the checksum of a complete frame. If it is wrong, loses the peer and returns false. */
static bool tcp_sum_fits(struct tcp_state *state, const struct tcp_conn *conn)
{
    if (!conn->peer->checksum || conn->in.sum == conn->in.sum_expected)
        return true;
    /*
     * Log the cause now: the job may end with the error of another rank, which reports only that a
     * connection has ended.
     */
    disti_notice("rank %d: data from rank %d were damaged in transit (DIST_CHECKSUM)", state->rank,
                 conn->peer->rank);
    disti_tcp_lose(state, conn->peer, 0,
                   "its data were damaged in transit (DIST_CHECKSUM): check for faulty "
                   "memory or network cards on both hosts");
    return false;
}

/*
 * Ends a message or stripe that has arrived completely. If it is damaged, loses the peer and
 * returns false.
 */
static bool receive_finish(struct tcp_state *state, struct tcp_conn *conn)
{
    struct tcp_incoming *in = &conn->in;
    struct dist_request *request = in->request;

    if (!tcp_sum_fits(state, conn))
        return false;
    if (in->assembly) {
        tcp_stripe_end(conn);
        return true;
    }
    in->active = false;
    in->request = NULL;
    in->unexpected = NULL;
    if (request) {
        request->status = DIST_OK;
        conn->finished = true;
    }
    return true;
}

dist_status disti_tcp_queue_cts(struct tcp_peer *peer, uint64_t number, bool refused)
{
    struct tcp_control *control = &peer->control;
    struct tcp_cts *cts = malloc(sizeof(*cts));

    if (!cts)
        return DIST_ERR_NO_MEMORY;
    *cts = (struct tcp_cts){.number = number, .refused = refused};
    if (control->head)
        control->tail->next = cts;
    else
        control->head = cts;
    control->tail = cts;
    return DIST_OK;
}

/*
 * Adds an assembly for an announced message, or for a message whose RTS this rank answers with CTS.
 * The payload goes to the request or the unexpected message; if both are NULL, it is discarded.
 * Returns false if there is no memory.
 */
static bool tcp_assemble(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
                         struct dist_request *request, struct disti_unexpected *unexpected)
{
    struct tcp_assembly **end = &peer->stripes.assemblies;
    struct tcp_assembly *assembly = malloc(sizeof(*assembly));

    if (!assembly)
        return false;
    *assembly = (struct tcp_assembly){.number = number,
                                      .bytes = bytes,
                                      .unseen = bytes,
                                      .left = bytes,
                                      .costs = !request && !unexpected,
                                      .request = request,
                                      .unexpected = unexpected};
    while (*end)
        end = &(*end)->next;
    *end = assembly;
    for (int i = 1; i < peer->conns; i++) {
        if (peer->conn[i].state == TCP_CONN_WAITING)
            disti_tcp_conn_set_state(&peer->conn[i], TCP_CONN_RESUMING);
    }
    return true;
}

/*
 * Handles a stripe's frame: sets the destination of the stripe's payload in conn->in. WAIT: the
 * announcement of its message has not arrived yet. BAD: the frame is invalid.
 */
enum tcp_stripe_answer { TCP_STRIPE_OK, TCP_STRIPE_WAIT, TCP_STRIPE_BAD };

static enum tcp_stripe_answer tcp_stripe_begin(struct tcp_conn *conn,
                                               const struct dist_envelope *frame)
{
    const struct tcp_peer *peer = conn->peer;
    struct tcp_incoming *in = &conn->in;
    struct tcp_assembly *assembly = peer->stripes.assemblies;

    if (frame->tag >= peer->stripes.arrived)
        return TCP_STRIPE_WAIT;
    while (assembly && assembly->number != frame->tag)
        assembly = assembly->next;
    if (!assembly || frame->bytes > assembly->unseen ||
        !disti_tcp_stripe_fits(assembly->bytes, frame->fingerprint, frame->bytes))
        return TCP_STRIPE_BAD;
    assembly->unseen -= frame->bytes;
    in->active = true;
    in->assembly = assembly;
    in->offset = frame->fingerprint;
    in->left = in->stripe = frame->bytes;
    in->request = assembly->request;
    in->unexpected = assembly->unexpected;
    return TCP_STRIPE_OK;
}

static bool frame_bad(struct tcp_state *state, struct tcp_conn *conn)
{
    disti_tcp_lose(state, conn->peer, 0, "it sent data that is not a message of libdist");
    return false;
}

/*
 * Matches a message whose frame has arrived; `whole` if its payload follows, false if it is
 * announced. Returns false if the message is deferred or the peer is lost.
 */
static bool frame_message(struct tcp_state *state, struct tcp_conn *conn,
                          const struct dist_envelope *envelope, bool whole)
{
    struct tcp_peer *peer = conn->peer;
    struct tcp_incoming *in = &conn->in;
    bool mismatch = false;

    if (!disti_tcp_has_credit_for(peer->credit.unused, envelope))
        return frame_bad(state, conn);
    in->request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (!in->request) {
        /*
         * No receive is posted, so buffer the message. But if a receive has completed in this turn,
         * its caller may post the next one soon: defer the message until the next turn, which may
         * avoid the copy.
         */
        if (conn->finished && conn->state == TCP_CONN_UP) {
            disti_tcp_conn_set_state(conn, TCP_CONN_RESUMING);
            return false;
        }
        in->unexpected = disti_match_hold(&peer->match, envelope, false);
        if (!in->unexpected) {
            disti_tcp_lose(state, peer, ENOMEM, NULL);
            return false;
        }
    }
    if (mismatch)
        in->request = NULL;
    peer->credit.unused -= envelope->bytes + DISTI_TCP_MESSAGE_COST;
    if (!in->unexpected && (whole || !mismatch))
        disti_tcp_credit_return(&peer->credit, envelope->bytes);
    in->active = true;
    in->left = envelope->bytes;
    in->offset = 0;
    if (whole)
        return true;
    /*
     * The payload of an announced message arrives in stripes, which are stored through the
     * assembly. This connection continues with the next frame.
     */
    if (!tcp_assemble(peer, peer->stripes.arrived++, envelope->bytes, in->request,
                      in->unexpected)) {
        disti_tcp_lose(state, peer, ENOMEM, NULL);
        return false;
    }
    in->active = false;
    in->request = NULL;
    in->unexpected = NULL;
    return true;
}

/*
 * Queues the CTS for an RTS that has been matched. Returns ERR_NO_MEMORY without an error message.
 */
static dist_status tcp_accept_rts(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
                                  struct dist_request *request)
{
    dist_status status;

    if (bytes && !tcp_assemble(peer, number, bytes, request, NULL))
        return DIST_ERR_NO_MEMORY;
    status = disti_tcp_queue_cts(peer, number, false);
    if (!bytes && status == DIST_OK) {
        request->next = peer->control.receives;
        peer->control.receives = request;
    }
    return status;
}

/*
 * Matches an RTS and queues its CTS or refusal, or adds the RTS to the unexpected queue. Returns
 * false if the peer is lost.
 */
static bool frame_rts(struct tcp_state *state, struct tcp_peer *peer,
                      const struct dist_envelope *envelope)
{
    uint64_t number = peer->stripes.arrived++;
    struct disti_unexpected *unexpected = NULL;
    dist_status status = DIST_OK;
    bool mismatch = false;
    struct dist_request *request = disti_match_arrival(&peer->match, envelope, &mismatch);

    if (mismatch)
        status = disti_tcp_queue_cts(peer, number, true);
    else if (request)
        status = tcp_accept_rts(peer, number, envelope->bytes, request);
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

/* Handles a CTS, or a refusal, from the peer. Returns false if this rank has sent no such RTS. */
static bool tcp_process_cts(struct tcp_peer *peer, uint64_t number, bool refused)
{
    struct dist_request *request = peer->stripes.rts_sends.head;

    while (request && request->own[0] != number + 1)
        request = request->next;
    if (!request)
        return false;
    disti_tcp_queue_remove(&peer->stripes.rts_sends, request);
    peer->stripes.rts_count--;
    if (refused || request->envelope.bytes == 0)
        request->status = DIST_OK;
    else
        disti_tcp_stripes_ready(&peer->stripes, request);
    return true;
}

/* Handles any frame of the first connection except a stripe's. */
static bool frame_of_first(struct tcp_state *state, struct tcp_conn *conn, enum disti_tcp_kind kind,
                           const struct dist_envelope *frame)
{
    struct tcp_peer *peer = conn->peer;

    switch (kind) {
    case DISTI_TCP_MESSAGE:
        return frame_message(state, conn, frame, true);
    case DISTI_TCP_ANNOUNCED:
        if (peer->conns == 1 || frame->bytes < DISTI_TCP_STRIPED_LEAST)
            return frame_bad(state, conn);
        return frame_message(state, conn, frame, false);
    case DISTI_TCP_RTS:
        return frame_rts(state, peer, frame);
    case DISTI_TCP_CREDIT: /* the peer returns at most the credit that this rank has used */
        if (frame->tag > peer->credit.granted - peer->credit.left)
            return frame_bad(state, conn);
        peer->credit.left += frame->tag;
        return true;
    case DISTI_TCP_CTS:
        return tcp_process_cts(peer, frame->tag, frame->fingerprint) || frame_bad(state, conn);
    default:
        return disti_tcp_conn_set_state(conn, TCP_CONN_LEAVING) == DIST_OK;
    }
}

static uint32_t checksum_header(const unsigned char *frame)
{
    return disti_crc32c(0, frame + DISTI_TCP_SUM_BYTES,
                        DISTI_TCP_FRAME_BYTES - DISTI_TCP_SUM_BYTES);
}

/* Handles a frame's header. Returns false if the frame has to wait or the peer is lost. */
static bool tcp_frame(struct tcp_state *state, struct tcp_conn *conn, const unsigned char *bytes)
{
    unsigned char unsealed[DISTI_TCP_FRAME_BYTES];
    struct dist_envelope frame;
    enum disti_tcp_kind kind;

    if (conn->peer->checksum) {
        memcpy(unsealed, bytes, sizeof(unsealed));
        conn->in.sum_expected = disti_tcp_frame_take_sum(unsealed);
        conn->in.sum = conn->in.sum_header = checksum_header(unsealed);
        bytes = unsealed;
    }
    if (!disti_tcp_frame_decode(bytes, &kind, &frame))
        return frame_bad(state, conn);
    if (!(kind == DISTI_TCP_MESSAGE || kind == DISTI_TCP_STRIPE) && !tcp_sum_fits(state, conn))
        return false;
    if (kind == DISTI_TCP_STRIPE) {
        enum tcp_stripe_answer answer = tcp_stripe_begin(conn, &frame);

        /* On a further connection the stripe may arrive before its announcement. */
        if (answer == TCP_STRIPE_WAIT && conn->number)
            disti_tcp_conn_set_state(conn, TCP_CONN_WAITING);
        else if (answer != TCP_STRIPE_OK)
            return frame_bad(state, conn);
        return answer == TCP_STRIPE_OK;
    }
    if (conn->number || conn->state == TCP_CONN_LEAVING)
        return frame_bad(state, conn);
    return frame_of_first(state, conn, kind, &frame);
}

/* Processes received bytes. Returns the number of bytes used; the caller stashes the remaining
 * ones. */
static size_t receive_use(struct tcp_state *state, struct tcp_conn *conn, const unsigned char *data,
                          size_t bytes)
{
    struct tcp_incoming *in = &conn->in;
    size_t used = 0, header = DISTI_TCP_FRAME_BYTES;

    for (;;) {
        if (!in->active) {
            if (bytes - used < header || !tcp_frame(state, conn, data + used))
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
    struct tcp_incoming *in = &conn->in;
    size_t used = receive_use(state, conn, data, bytes), rest = bytes - used;
    unsigned char *stash = NULL;

    if (!disti_tcp_conn_is_open(conn))
        return;
    if (rest > sizeof(in->small)) {
        stash = malloc(rest);
        if (!stash) {
            disti_tcp_lose(state, conn->peer, ENOMEM, NULL);
            return;
        }
    }
    memmove(stash ? stash : in->small, data + used, rest); /* data may point into the stash */
    free(in->stash);
    in->stash = stash;
    in->stash_bytes = rest;
}

/*
 * Returns the number of bytes to read into the buffer; `left` bytes of the current payload are
 * outstanding. If `left` is small and no long receive is posted, this is the size of the buffer.
 * Otherwise at most TCP_PEEK_BYTES after `left` are read, so that the payload of the next message
 * can be read directly into its destination, unless that payload has to be reduced.
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
 * Reads once and processes the data. If possible, payload is read directly into its destination
 * and only the data after it into the buffer, with one call. Returns the result of the read;
 * *full_p: the socket returned all bytes requested.
 */
static ssize_t receive_read(struct tcp_state *state, struct tcp_conn *conn, bool *full_p)
{
    struct tcp_peer *peer = conn->peer;
    struct tcp_incoming *in = &conn->in;
    size_t kept = in->stash_bytes, direct = 0;
    bool began = in->active;
    struct iovec parts[2];
    int first = 1, one = 1;
    ssize_t got;

    memcpy(state->buffer, incoming_stash(in), kept);
    parts[1].iov_base = state->buffer + kept;
    parts[1].iov_len = receive_window(peer, in->active ? in->left : 0) - kept;
    /* The destination of the payload if it can be read there directly, or NULL. */
    parts[0].iov_base = NULL;
    if (in->active && !kept && in->request)
        parts[0].iov_base = disti_sink_direct(&in->request->sink, in->offset);
    else if (in->active && !kept && in->unexpected)
        parts[0].iov_base = in->unexpected->payload + in->offset;
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
    /*
     * Send the TCP acknowledgement now, since a zero-copy send completes only after it; the kernel
     * might delay it by 40 ms.
     */
    if (state->zerocopy && !in->active && (began || got >= RECEIVE_LONG))
        setsockopt(conn->fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof(one));
    return got;
}

size_t disti_tcp_receive(struct tcp_state *state, struct tcp_conn *conn)
{
    bool header_waits = !conn->in.active && conn->in.stash_bytes >= DISTI_TCP_FRAME_BYTES;
    size_t moved = 0;

    conn->finished = false;
    if (conn->state == TCP_CONN_RESUMING || header_waits) {
        if (conn->state == TCP_CONN_RESUMING)
            disti_tcp_conn_set_state(conn, TCP_CONN_UP);
        receive_use_keep(state, conn, incoming_stash(&conn->in), conn->in.stash_bytes);
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
        /* The TLS session may have buffered more data, which epoll does not report. */
        conn->readable |= full && conn->tls;
        if (!full && !(conn->state == TCP_CONN_DRAINING || conn->state == TCP_CONN_LEAVING ||
                       conn->peer->deadline)) {
            conn->readable = false;
            break;
        }
    }
    return moved;
}

/* Credit for unexpected messages, and CTS for messages without credit. */

/*
 * Credit is returned when 1/CREDIT_SHARE of the limit is owed. Thus credit frames are rare, but
 * arrive long before the sender has used all credit.
 */
#define CREDIT_SHARE 4

static bool control_has_credit_due(const struct tcp_peer *peer)
{
    return peer->credit.owed && peer->credit.owed >= peer->credit.limit / CREDIT_SHARE;
}

bool disti_tcp_control_waits(const struct tcp_peer *peer)
{
    const struct tcp_control *control = &peer->control;

    return control->begin != control->end || control->head || control_has_credit_due(peer);
}

bool disti_tcp_can_control(const struct tcp_peer *peer)
{
    return disti_tcp_control_waits(peer) && disti_tcp_conn_sends(peer->conn) &&
           peer->conn->writable && !disti_tcp_first_begun(peer);
}

static void control_add(struct tcp_peer *peer, enum disti_tcp_kind kind, uint64_t value,
                        bool refused)
{
    struct tcp_control *control = &peer->control;
    struct dist_envelope frame = {.tag = value, .fingerprint = refused};

    disti_tcp_frame_encode(kind, &frame, control->bytes + control->end);
    disti_tcp_seal(peer, control->bytes + control->end, NULL, 0, 0);
    control->end += DISTI_TCP_FRAME_BYTES;
}

/* Encodes the next control frames. The previous ones must have been sent. */
static void control_fill(struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;

    control->begin = control->end = 0;
    if (control_has_credit_due(peer)) {
        control_add(peer, DISTI_TCP_CREDIT, peer->credit.owed, false);
        peer->credit.unused += peer->credit.owed;
        peer->credit.owed = 0;
    }
    while (control->head && control->end < sizeof(control->bytes)) {
        struct tcp_cts *cts = control->head;

        control_add(peer, DISTI_TCP_CTS, cts->number, cts->refused);
        control->head = cts->next;
        free(cts);
    }
}

/* Completes the receives of empty messages. */
static void tcp_control_end(struct tcp_peer *peer, dist_status status)
{
    struct dist_request *request = peer->control.receives;

    peer->control.receives = NULL;
    while (request) {
        struct dist_request *next = request->next;

        request->status = status;
        request = next;
    }
}

bool disti_tcp_control(struct tcp_state *state, struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;
    bool any = false;

    while (disti_tcp_can_control(peer)) {
        ssize_t sent;

        if (control->begin == control->end)
            control_fill(peer);
        do {
            sent =
                disti_tls_or_send(peer->conn->tls, peer->conn->fd, control->bytes + control->begin,
                                  control->end - control->begin);
        } while (sent < 0 && errno == EINTR);
        if (sent < 0 && (errno == ENOBUFS || errno == ENOMEM))
            return any;
        if (sent < 0 && errno != EAGAIN) {
            disti_tcp_send_broken(state, peer->conn, errno);
            return true;
        }
        control->begin += sent > 0 ? (size_t)sent : 0;
        any |= sent > 0;
        if (control->begin < control->end)
            disti_tcp_conn_set_writable(state, peer->conn, false);
        else if (!control->head)
            tcp_control_end(peer, DIST_OK);
    }
    return any;
}

void disti_tcp_control_clear(struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;

    while (control->head) {
        struct tcp_cts *cts = control->head;

        control->head = cts->next;
        free(cts);
    }
    control->begin = control->end = 0;
}

/* Messages that arrive in stripes on several connections. */

void disti_tcp_forget(struct tcp_peer *peer, const struct disti_unexpected *unexpected)
{
    struct tcp_assembly *assembly = peer->stripes.assemblies;

    for (; assembly; assembly = assembly->next) {
        if (assembly->unexpected == unexpected)
            assembly->unexpected = NULL;
    }
    for (int number = 0; number < peer->conns; number++) {
        if (peer->conn[number].in.unexpected == unexpected)
            peer->conn[number].in.unexpected = NULL;
    }
}

/* DIST_CHECKSUM: the sender's side of the checksums. */

void disti_tcp_seal(const struct tcp_peer *peer, unsigned char *frame,
                    const struct dist_request *request, uint64_t offset, uint64_t bytes)
{
    uint32_t sum;

    if (!peer->checksum)
        return;
    sum = checksum_header(frame);
    if (bytes)
        sum = disti_crc32c(sum, (const char *)request->data + offset, (size_t)bytes);
    if (bytes && disti_faults_is_flipped(request->data)) /* simulates damage in transit */
        sum ^= 1;
    disti_tcp_frame_put_sum(frame, sum);
}

/* Posting and failing receives. */

bool disti_tcp_has_receives(const struct tcp_peer *peer)
{
    const struct tcp_assembly *assembly = peer->stripes.assemblies;

    if (peer->match.posted_head || peer->conn->in.request || peer->control.receives)
        return true;
    /* A receive may be matched with a message whose stripes are arriving. */
    while (assembly && !assembly->request &&
           !(assembly->unexpected && assembly->unexpected->claimed))
        assembly = assembly->next;
    return assembly;
}

void disti_tcp_fail_receives(struct tcp_peer *peer, dist_status status)
{
    struct tcp_incoming *in = &peer->conn->in;
    struct dist_request *request;

    disti_match_fail(&peer->match, status);
    if (!in->assembly && in->unexpected)
        disti_tcp_unexpected_release(peer, in->unexpected);
    if (!in->assembly && in->request)
        in->request->status = status;
    for (int number = 0; number < peer->conns; number++)
        disti_tcp_incoming_clear(&peer->conn[number].in);
    while (peer->stripes.assemblies) {
        struct tcp_assembly *assembly = peer->stripes.assemblies;
        struct disti_unexpected *unexpected = assembly->unexpected;

        request = unexpected ? unexpected->claimed : assembly->request;
        peer->stripes.assemblies = assembly->next;
        free(assembly);
        if (unexpected)
            disti_tcp_unexpected_release(peer, unexpected);
        if (request)
            request->status = status;
    }
    tcp_control_end(peer, status);
    disti_match_release_descriptors(&peer->match);
}

/*
 * Matches the receive with an unexpected message and stores the part that has arrived. The
 * remaining part is received directly by the request.
 */
static void post_claim(struct tcp_peer *peer, struct disti_unexpected *unexpected,
                       struct dist_request *request)
{
    const struct dist_sink *sink = &request->sink;
    struct tcp_incoming *in = &peer->conn->in;
    bool whole = unexpected != in->unexpected;
    size_t rest = 0;

    if (!whole && sink->src)
        rest = unexpected->arrived % dist_dtype_size(sink->dtype);
    request->moved = unexpected->arrived - rest;
    disti_sink_apply(sink, 0, unexpected->payload, request->moved);
    if (!whole) {
        if (rest) { /* an incomplete element is processed again: exclude it from the checksum */
            in->sum = in->sum_header;
            tcp_sum(peer, in, unexpected->payload, request->moved);
        }
        memcpy(in->small, unexpected->payload + request->moved, rest);
        in->stash_bytes = rest;
        in->left += rest;
        in->offset = request->moved;
        in->unexpected = NULL;
        in->request = request;
    }
    disti_tcp_unexpected_release(peer, unexpected);
    if (whole)
        request->status = DIST_OK;
}

/* Matches the receive with an unexpected RTS and sends CTS. */
static void post_claim_rts(struct tcp_state *state, struct tcp_peer *peer,
                           struct disti_unexpected *unexpected, struct dist_request *request)
{
    dist_status status =
        tcp_accept_rts(peer, unexpected->note[0], unexpected->envelope.bytes, request);

    disti_tcp_unexpected_release(peer, unexpected);
    if (status != DIST_OK) {
        request->status =
            disti_fail(status, "tcp: rank %d has no memory for a message from rank %d", state->rank,
                       peer->rank);
        return;
    }
    disti_tcp_list(state, peer);
    disti_tcp_control(state, peer);
}

/* Discards an unexpected message after its receive has failed with ERR_MISMATCH. */
static void post_refused(struct tcp_state *state, struct tcp_peer *peer,
                         struct disti_unexpected *unexpected)
{
    struct tcp_incoming *in = &peer->conn->in;
    struct tcp_assembly *assembly = peer->stripes.assemblies;
    dist_status status = DIST_OK;

    while (assembly && !(assembly->unexpected && assembly->unexpected->refused))
        assembly = assembly->next;
    if (!unexpected->descriptor && assembly) {
        /* The stripes of the refused message are still arriving: discard the remaining ones. */
        unexpected = assembly->unexpected;
        assembly->costs = true;
        disti_tcp_forget(peer, unexpected);
        disti_match_release(&peer->match, unexpected);
        return;
    }
    if (unexpected->descriptor)
        status = disti_tcp_queue_cts(peer, unexpected->note[0], true);
    else if (in->unexpected == unexpected)
        in->unexpected = NULL;
    disti_tcp_unexpected_release(peer, unexpected);
    if (status != DIST_OK)
        disti_tcp_lose(state, peer, ENOMEM, NULL);
    else
        disti_tcp_list(state, peer);
}

void disti_tcp_recv(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request)
{
    const struct tcp_assembly *assembly = peer->stripes.assemblies;
    struct disti_unexpected *unexpected;

    request->moved = 0;
    unexpected = disti_match_post(&peer->match, request);
    while (unexpected && assembly && assembly->unexpected != unexpected)
        assembly = assembly->next;
    if (unexpected && unexpected->refused)
        post_refused(state, peer, unexpected);
    else if (unexpected && unexpected->descriptor)
        post_claim_rts(state, peer, unexpected, request);
    /* If the message arrives in stripes, tcp_stripe_end completes the receive. */
    else if (unexpected && !assembly)
        post_claim(peer, unexpected, request);
    if (disti_tcp_conn_has_ended(peer->conn) && peer->match.posted_head) {
        disti_tcp_report(state, peer);
        disti_tcp_fail_receives(peer, DIST_ERR_PEER_LOST);
    } else if (request->status == DIST_IN_PROGRESS || peer->conn->state == TCP_CONN_RESUMING ||
               disti_tcp_can_control(peer)) {
        disti_tcp_list(state, peer);
    }
}
