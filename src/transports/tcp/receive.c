/* SPDX-License-Identifier: BSD-3-Clause */
/* Receiving: header, match, payload; every message goes to its sink by the shortest way. */
#include "base/settings/config.h"

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

static void tcp_stripe_end(struct tcp_conn *conn);

/* All of it is here. False: it is damaged, and the peer is lost. */
static bool receive_finish(struct tcp_state *state, struct tcp_conn *conn)
{
    struct tcp_incoming *in = &conn->in;
    struct dist_request *request = in->request;

    if (!disti_tcp_sum_fits(state, conn))
        return false;
    if (in->assembly) {
        tcp_stripe_end(conn);
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

/* Credit for messages that come before their receives, and asking for those that have none. */

/* Credit of one peer; of all together, but no less than that of each. */
#define CREDIT_EACH ((size_t)16 << 20)
#define CREDIT_ALL ((size_t)256 << 20)
#define CREDIT_LEAST ((size_t)1 << 20)
/* Given back when this share of all is owed: seldom, and long before the sender has none left. */
#define CREDIT_SHARE 4

dist_status disti_tcp_credit_setting(struct tcp_state *state)
{
    size_t each = CREDIT_EACH;

    if (state->world_size > 1 && CREDIT_ALL / (size_t)(state->world_size - 1) < each)
        each = CREDIT_ALL / (size_t)(state->world_size - 1);
    return disti_env_bytes("DIST_TCP_EARLY_LIMIT", each < CREDIT_LEAST ? CREDIT_LEAST : each,
                           &state->unexpected_limit);
}

void disti_tcp_credit_open(const struct tcp_state *state, struct tcp_peer *peer, uint64_t granted)
{
    peer->credit = (struct tcp_credit){.granted = granted,
                                       .left = granted,
                                       .limit = state->unexpected_limit,
                                       .unused = state->unexpected_limit};
}

bool disti_tcp_credit_came(struct tcp_peer *peer, uint64_t bytes)
{
    struct tcp_credit *credit = &peer->credit;

    if (bytes > credit->granted - credit->left)
        return false;
    credit->left += bytes;
    return true;
}

dist_status disti_tcp_ask(struct tcp_peer *peer, uint64_t number, bool refused)
{
    struct tcp_control *control = &peer->control;
    struct tcp_ask *ask = malloc(sizeof(*ask));

    if (!ask)
        return DIST_ERR_NO_MEMORY;
    *ask = (struct tcp_ask){.number = number, .refused = refused};
    if (control->head)
        control->tail->next = ask;
    else
        control->head = ask;
    control->tail = ask;
    return DIST_OK;
}

static bool control_owes(const struct tcp_peer *peer)
{
    return peer->credit.owed && peer->credit.owed >= peer->credit.limit / CREDIT_SHARE;
}

bool disti_tcp_control_waits(const struct tcp_peer *peer)
{
    const struct tcp_control *control = &peer->control;

    return control->begin != control->end || control->head || control_owes(peer);
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

/* The frames before have all been sent. */
static void control_fill(struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;

    control->begin = control->end = 0;
    if (control_owes(peer)) {
        control_add(peer, DISTI_TCP_CREDIT, peer->credit.owed, false);
        peer->credit.unused += peer->credit.owed;
        peer->credit.owed = 0;
    }
    while (control->head && control->end < sizeof(control->bytes)) {
        struct tcp_ask *ask = control->head;

        control_add(peer, DISTI_TCP_ASK, ask->number, ask->refused);
        control->head = ask->next;
        free(ask);
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
            disti_tcp_control_end(peer, DIST_OK);
    }
    return any;
}

void disti_tcp_control_end(struct tcp_peer *peer, dist_status status)
{
    struct dist_request *request = peer->control.receives;

    peer->control.receives = NULL;
    while (request) {
        struct dist_request *next = request->next;

        request->status = status;
        request = next;
    }
}

void disti_tcp_control_clear(struct tcp_peer *peer)
{
    struct tcp_control *control = &peer->control;

    while (control->head) {
        struct tcp_ask *ask = control->head;

        control->head = ask->next;
        free(ask);
    }
    control->begin = control->end = 0;
}

/* Receiving in stripes: messages that are put together from several connections. */

bool disti_tcp_assemble(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
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
            disti_tcp_conn_go(&peer->conn[i], TCP_CONN_RESUMING);
    }
    return true;
}

enum tcp_stripe_answer disti_tcp_stripe_begin(struct tcp_conn *conn,
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

/* All of it is here: it ends its receive, if there is one yet. */
static void assembly_whole(struct tcp_conn *conn, struct tcp_assembly *assembly)
{
    struct tcp_peer *peer = conn->peer;
    struct disti_unexpected *unexpected = assembly->unexpected;
    struct dist_request *request = unexpected ? unexpected->claimed : assembly->request;

    if (assembly->costs)
        disti_tcp_give_back(&peer->credit, assembly->bytes);
    if (unexpected && request) {
        disti_sink_apply(&request->sink, 0, unexpected->payload, (size_t)assembly->bytes);
        disti_tcp_unexpected_release(peer, unexpected);
    }
    if (request) {
        request->status = DIST_OK;
        conn->finished = true;
    }
}

/* The stripe is in its place; perhaps its message is whole. */
static void tcp_stripe_end(struct tcp_conn *conn)
{
    struct tcp_incoming *in = &conn->in;
    struct tcp_assembly **at = &conn->peer->stripes.assemblies, *assembly = in->assembly;

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
    assembly_whole(conn, assembly);
    free(assembly);
}

bool disti_tcp_assembles(const struct tcp_peer *peer)
{
    const struct tcp_assembly *assembly = peer->stripes.assemblies;

    while (assembly && !assembly->request &&
           !(assembly->unexpected && assembly->unexpected->claimed))
        assembly = assembly->next;
    return assembly;
}

bool disti_tcp_assembling(const struct tcp_peer *peer, const struct disti_unexpected *unexpected)
{
    const struct tcp_assembly *assembly = peer->stripes.assemblies;

    while (assembly && assembly->unexpected != unexpected)
        assembly = assembly->next;
    return assembly;
}

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

bool disti_tcp_assembly_refused(struct tcp_peer *peer)
{
    struct tcp_assembly *assembly = peer->stripes.assemblies;
    struct disti_unexpected *unexpected;

    while (assembly && !(assembly->unexpected && assembly->unexpected->refused))
        assembly = assembly->next;
    if (!assembly)
        return false;
    unexpected = assembly->unexpected;
    assembly->costs = true;
    disti_tcp_forget(peer, unexpected);
    disti_match_release(&peer->match, unexpected);
    return true;
}

void disti_tcp_assemblies_clear(struct tcp_peer *peer)
{
    while (peer->stripes.assemblies) {
        struct tcp_assembly *assembly = peer->stripes.assemblies;

        peer->stripes.assemblies = assembly->next;
        free(assembly);
    }
}

void disti_tcp_assemblies_fail(struct tcp_peer *peer, dist_status status)
{
    struct tcp_stripes *stripes = &peer->stripes;

    while (stripes->assemblies) {
        struct tcp_assembly *assembly = stripes->assemblies;
        struct disti_unexpected *unexpected = assembly->unexpected;
        struct dist_request *request = unexpected ? unexpected->claimed : assembly->request;

        stripes->assemblies = assembly->next;
        free(assembly);
        if (unexpected)
            disti_tcp_unexpected_release(peer, unexpected);
        if (request)
            request->status = status;
    }
}
