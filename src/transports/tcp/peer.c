/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers: their connections, their turns, their end. */
#include "base/clock.h"
#include "base/kernels/sink.h"
#include "base/log.h"
#include "transports/match/match.h"
#include "transports/tcp/state.h"
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The higher rank of a pair waits for so many ticks for the lower one's call. */
#define PEER_PATIENCE 2
/* After the end of one connection the others have so long to end as well. */
#define PEER_END_MS 500

/* Its connections, if its address is known by now. False: no memory. */
static bool peer_plan_known(struct tcp_state *state, struct tcp_peer *peer)
{
    const struct tcp_address *known = state->addresses[peer->rank];
    struct disti_tcp_address address;

    return !known || (disti_tcp_address_decode(known->blob, known->size, &address) &&
                      disti_tcp_plan(state, peer, &address));
}

struct tcp_peer *disti_tcp_peer(struct tcp_state *state, int rank)
{
    struct tcp_peer *peer;

    if (rank < 0 || rank >= state->world_size || rank == state->rank)
        return NULL;
    peer = state->peers[rank];
    if (peer)
        return peer;
    peer = calloc(1, sizeof(*peer));
    if (!peer || !disti_tcp_grow(peer, 1)) {
        free(peer);
        return NULL;
    }
    peer->rank = rank;
    peer->checksum = state->checksum;
    peer->match.rank = rank;
    peer->match.set = &state->unexpected;
    state->peers[rank] = peer;
    if (peer_plan_known(state, peer))
        return peer;
    state->peers[rank] = NULL;
    disti_tcp_peer_free(peer);
    return NULL;
}

bool disti_tcp_grow(struct tcp_peer *peer, int conns)
{
    struct tcp_conn *conn = peer->conn;

    if (peer->conns < conns)
        conn = realloc(conn, (size_t)conns * sizeof(*conn));
    if (!conn)
        return false;
    peer->conn = conn;
    for (; peer->conns < conns; peer->conns++)
        conn[peer->conns] =
            (struct tcp_conn){.peer = peer, .number = peer->conns, .fd = -1, .interface = -1};
    return true;
}

void disti_tcp_peer_free(struct tcp_peer *peer)
{
    disti_tcp_assemblies_clear(peer);
    disti_tcp_control_clear(peer);
    disti_match_clear(&peer->match);
    for (int number = 0; number < peer->conns; number++) {
        disti_tcp_incoming_clear(&peer->conn[number].in);
        free(peer->conn[number].zerocopy);
    }
    free(peer->conn);
    free(peer);
}

void disti_tcp_list(struct tcp_state *state, struct tcp_peer *peer)
{
    if (peer->listed)
        return;
    peer->listed = true;
    peer->prev = NULL;
    peer->next = state->list;
    if (state->list)
        state->list->prev = peer;
    state->list = peer;
    state->listed++;
}

static void tcp_unlist(struct tcp_state *state, struct tcp_peer *peer)
{
    if (!peer->listed)
        return;
    if (peer->prev)
        peer->prev->next = peer->next;
    else
        state->list = peer->next;
    if (peer->next)
        peer->next->prev = peer->prev;
    peer->listed = false;
    state->listed--;
}

/* ---- its connections ---- */

/* Names the interfaces that cannot reach this peer, each of them once. */
static void peer_out_of_reach(struct tcp_state *state, const struct tcp_peer *peer,
                              const struct disti_tcp_way *ways, int count)
{
    unsigned used = 0;

    for (int i = 0; i < count; i++)
        used |= 1u << ways[i].local;
    for (int i = 0; i < state->interfaces; i++) {
        if ((used | state->out_of_reach) >> i & 1)
            continue;
        state->out_of_reach |= 1u << i;
        disti_info("rank %d leaves out interface %s, which does not reach rank %d", state->rank,
                   state->local[i].name, peer->rank);
    }
}

bool disti_tcp_plan(struct tcp_state *state, struct tcp_peer *peer,
                    const struct disti_tcp_address *address)
{
    struct disti_tcp_way ways[DISTI_TCP_INTERFACES];
    int count = disti_tcp_ways(state->local, state->interfaces, address, state->routed, ways);
    int wanted = disti_tcp_sockets(state->sockets, address->sockets, count);

    if (address->endpoint[0].machine != state->local[0].endpoint.machine)
        peer_out_of_reach(state, peer, ways, count);
    if (!disti_tcp_grow(peer, wanted))
        return false;
    peer->conn->endpoint = address->endpoint[0];
    for (int number = 1; number < wanted; number++) {
        peer->conn[number].endpoint = address->endpoint[ways[number % count].remote];
        peer->conn[number].interface = ways[number % count].local;
    }
    return true;
}

void disti_tcp_call_further(struct tcp_state *state, struct tcp_peer *peer)
{
    for (int number = 1; number < peer->conns; number++) {
        if (peer->conn[number].endpoint.family)
            disti_tcp_conn_call(state, &peer->conn[number]);
    }
}

/* ---- turns and time ---- */

/* A deadline of its further connections runs. */
static bool peer_is_busy(const struct tcp_peer *peer)
{
    for (int number = 1; number < peer->conns; number++) {
        if (peer->conn[number].state == TCP_CONN_CALLING)
            return true;
    }
    return peer->deadline != 0;
}

bool disti_tcp_peer_can_move(const struct tcp_peer *peer)
{
    if (disti_tcp_can_flush(peer) || disti_tcp_can_control(peer) ||
        disti_tcp_stripes_can_send(peer))
        return true;
    for (int number = 0; number < peer->conns; number++) {
        if (disti_tcp_conn_can_receive(&peer->conn[number], false))
            return true;
    }
    return false;
}

/* Nothing is to be done for this peer before there is news of it, and no deadline runs. */
static bool peer_is_idle(const struct tcp_peer *peer)
{
    return !disti_tcp_has_sends(peer) && !disti_tcp_has_receives(peer) &&
           !disti_tcp_peer_can_move(peer) && !peer_is_busy(peer);
}

int disti_tcp_peer_turn(struct tcp_state *state, struct tcp_peer *peer, bool guess)
{
    int moved = disti_tcp_send_turn(state, peer);
    size_t further = 0;

    if (disti_tcp_conn_can_receive(peer->conn, guess))
        moved += disti_tcp_receive(state, peer->conn) > 0;
    /* From the others only stripes come. */
    for (int number = 1; number < peer->conns; number++) {
        struct tcp_conn *conn = &peer->conn[number];

        if (disti_tcp_conn_can_receive(conn, guess && peer->stripes.assemblies))
            further += disti_tcp_receive(state, conn);
    }
    /* The first may have been found at its end before. */
    if (further && peer->deadline)
        peer->conn->readable = true;
    if (peer_is_idle(peer))
        tcp_unlist(state, peer);
    return moved + (further > 0);
}

/* Connections that were called have their deadlines, and so have those that are to end. */
static void peer_expire(struct tcp_state *state, struct tcp_peer *peer)
{
    for (int number = 0; number < peer->conns; number++) {
        struct tcp_conn *conn = &peer->conn[number];

        /* This rank may have computed, and what it waits for be there. */
        if (conn->state == TCP_CONN_GREETING && conn->deadline && disti_expired(conn->deadline))
            disti_tcp_conn_read_hello(state, conn);
        if ((conn->state == TCP_CONN_CALLING || conn->state == TCP_CONN_GREETING) &&
            conn->deadline && disti_expired(conn->deadline))
            disti_tcp_conn_failed(state, conn, ETIMEDOUT,
                                  conn->tls && !disti_tls_is_up(conn->tls)
                                      ? "its TLS handshake did not end in time"
                                      : "it did not accept the connection in time");
    }
    if (peer->deadline && disti_expired(peer->deadline)) {
        /* What has come since the last look may be the end of all of them. */
        if (disti_tcp_conn_can_receive(peer->conn, true))
            disti_tcp_receive(state, peer->conn);
        disti_tcp_lose(state, peer, 0, peer->cause ? NULL : "one of its connections has ended");
    }
}

bool disti_tcp_peer_tick(struct tcp_state *state, struct tcp_peer *peer)
{
    peer_expire(state, peer);
    if (peer->conn->state == TCP_CONN_IDLE && ++peer->ticks >= PEER_PATIENCE)
        disti_tcp_conn_call(state, peer->conn);
    if (disti_tcp_conn_is_open(peer->conn))
        return peer_is_busy(peer);
    return !disti_tcp_conn_has_ended(peer->conn);
}

/* ---- its end ---- */

void disti_tcp_peer_ends(struct tcp_state *state, struct tcp_peer *peer, int cause)
{
    if (!peer->cause)
        peer->cause = cause;
    if (!peer->deadline)
        peer->deadline = disti_deadline_ms(PEER_END_MS);
    disti_tcp_list(state, peer);
    disti_tcp_tick_on(state, true);
}

/* What the user reads: who does not answer is told from who hung up. */
static const char *peer_why(const struct tcp_peer *peer)
{
    if (peer->reason)
        return peer->reason;
    switch (peer->cause) {
    case 0:
        return "it closed the connection without leaving the group";
    case ETIMEDOUT:
        return "it is unreachable: its machine no longer answers";
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EHOSTDOWN:
    case ENETDOWN:
        return "it is unreachable: no way leads to its machine";
    default:
        return strerror(peer->cause);
    }
}

dist_status disti_tcp_report(const struct tcp_state *state, const struct tcp_peer *peer)
{
    enum tcp_conn_state now = peer->conn->state;
    char address[TCP_TEXT];

    disti_tcp_endpoint_text(&peer->conn->endpoint, address, sizeof(address));
    if (now == TCP_CONN_LEAVING || now == TCP_CONN_LEFT)
        return disti_fail(DIST_ERR_PEER_LOST,
                          "rank %d waits for rank %d (%s), which has left the group: make the same "
                          "calls on all ranks",
                          state->rank, peer->rank, address);
    return disti_fail(DIST_ERR_PEER_LOST, "rank %d lost rank %d (%s): %s; see that rank's output",
                      state->rank, peer->rank, address, peer_why(peer));
}

void disti_tcp_lose(struct tcp_state *state, struct tcp_peer *peer, int cause, const char *reason)
{
    if (disti_tcp_conn_has_ended(peer->conn))
        return;
    /* Before a request ends nothing reads its memory any more. */
    for (int number = 0; number < peer->conns; number++)
        disti_tcp_conn_end(state, &peer->conn[number]);
    peer->further = 0;
    peer->deadline = 0;
    if (!peer->cause) {
        peer->cause = cause;
        peer->reason = reason;
    }
    if (disti_tcp_has_sends(peer) || disti_tcp_has_receives(peer))
        disti_tcp_report(state, peer);
    else
        disti_trace("rank %d: the connection with rank %d has ended", state->rank, peer->rank);
    disti_tcp_fail_sends(state, peer, DIST_ERR_PEER_LOST);
    disti_tcp_fail_receives(peer, DIST_ERR_PEER_LOST);
    tcp_unlist(state, peer);
}

/* Forgetting the messages of a group that has ended, while others go on. */

/* How long the kernel may take to have done with memory that it has not copied, where the peer's
 * machine does not answer. */
#define CANCEL_PINNED_MS 500

/*
 * What has not begun is taken out. What is halfway through a connection goes on with a stand-in,
 * which has a copy of the rest, or throws away what comes.
 */
struct cancel {
    struct tcp_state *state;
    struct tcp_peer *peer;
    uint64_t tag, mask;
    bool failed; /* no memory for a stand-in */
};

static bool cancel_means(const struct cancel *cancel, const struct dist_request *request)
{
    return request && disti_standin_is_for(request, cancel->tag, cancel->mask) &&
           !disti_standins_have(&cancel->state->standins, request);
}

/* ---- sends ---- */

/* A stand-in for the send; connections that are sending stripes of it go on with that. */
static struct dist_request *cancel_send(struct cancel *cancel, const struct dist_request *request)
{
    struct dist_request *standin = disti_standin_send(&cancel->state->standins, request, 0);

    cancel->failed = cancel->failed || !standin;
    for (int number = 0; number < cancel->peer->conns; number++) {
        struct tcp_outgoing *out = &cancel->peer->conn[number].out;

        if (out->request != request)
            continue;
        out->request = standin;
        if (standin)
            out->data = (const char *)standin->data + (out->data - (const char *)request->data);
    }
    return standin;
}

/* What has not begun goes, the rest is replaced. */
static void cancel_queue(struct cancel *cancel, struct tcp_queue *queue, bool begun)
{
    struct tcp_queue kept = {NULL, NULL};
    struct dist_request *next;

    for (struct dist_request *request = queue->head; request; request = next) {
        struct dist_request *keep = request;

        next = request->next;
        if (cancel_means(cancel, request))
            keep = begun || request->moved ? cancel_send(cancel, request) : NULL;
        if (keep)
            disti_tcp_queue_put(&kept, keep);
    }
    *queue = kept;
}

static void cancel_sends(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;

    cancel_queue(cancel, &peer->sends, false);
    cancel_queue(cancel, &peer->stripes.ready, true);
    cancel_queue(cancel, &peer->stripes.offers, true);
    for (int number = 0; number < peer->conns; number++) {
        if (cancel_means(cancel, peer->conn[number].out.request))
            cancel_send(cancel, peer->conn[number].out.request);
    }
}

/* ---- receives ---- */

/* Messages that nobody has received. What was offered is refused, if anybody is there to hear. */
static void cancel_unexpected(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;

    for (struct disti_unexpected *unexpected = peer->match.unexpected_head, *next; unexpected;
         unexpected = next) {
        next = unexpected->next;
        if ((unexpected->envelope.tag & cancel->mask) != cancel->tag)
            continue;
        if (unexpected->descriptor && disti_tcp_conn_is_open(peer->conn) &&
            disti_tcp_ask(peer, unexpected->note[0], true) != DIST_OK)
            cancel->failed = true;
        disti_tcp_forget(peer, unexpected);
        disti_tcp_unexpected_release(peer, unexpected);
    }
}

static void cancel_receives(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;
    struct tcp_assembly *assembly = peer->stripes.assemblies;
    struct dist_request **at = &peer->control.receives;

    disti_standin_unpost(&peer->match, cancel->tag, cancel->mask);
    for (int number = 0; number < peer->conns; number++) {
        if (cancel_means(cancel, peer->conn[number].in.request))
            peer->conn[number].in.request = NULL;
    }
    for (; assembly; assembly = assembly->next) {
        if (cancel_means(cancel, assembly->request))
            assembly->request = NULL;
    }
    while (*at) {
        if (cancel_means(cancel, *at))
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
    cancel_unexpected(cancel);
}

/* ---- what the kernel reads ---- */

/* `answers`: only by peers whose machines do. */
static bool cancel_is_pinned(const struct cancel *cancel, bool answers)
{
    struct tcp_peer *peer = cancel->peer;
    bool pinned = false;

    for (int number = 0; peer && peer->pinned && number < peer->conns; number++) {
        struct tcp_conn *conn = &peer->conn[number];

        if (!disti_tcp_zerocopy_holds(cancel->state, conn, cancel->tag, cancel->mask) ||
            (answers && disti_tcp_silence_shows(conn)))
            continue;
        disti_tcp_zerocopy_reap(cancel->state, conn);
        pinned |= disti_tcp_zerocopy_holds(cancel->state, conn, cancel->tag, cancel->mask);
    }
    return pinned;
}

static bool cancel_any_is_pinned(struct tcp_state *state, uint64_t tag, uint64_t mask, bool answers)
{
    bool pinned = false;

    for (int rank = 0; state->pinned && rank < state->world_size; rank++) {
        const struct cancel cancel = {
            .state = state, .peer = state->peers[rank], .tag = tag, .mask = mask};

        pinned |= cancel_is_pinned(&cancel, answers);
    }
    return pinned;
}

/*
 * The program may use its memory again at once, so the kernel must have done with it, which takes a
 * peer that reads. That may just be doing the same as this rank, so both go on moving messages; the
 * group's are copied from here on. A peer that computes reads when it calls the library again, and
 * has as long as for any call. One that does not read by then, or whose machine does not answer, is
 * given up with all its groups: nothing else takes the memory back.
 */
static void cancel_unpin(struct tcp_state *state, uint64_t tag, uint64_t mask)
{
    const int64_t patience = disti_deadline_ms(CANCEL_PINNED_MS);
    const int64_t deadline = disti_deadline_ms(state->timeout_ms);
    int moved = 0;

    state->ending_tag = tag;
    state->ending_mask = mask;
    while (moved >= 0 && !disti_expired(deadline) &&
           cancel_any_is_pinned(state, tag, mask, disti_expired(patience))) {
        moved = disti_transport_tcp.progress(state);
        if (moved == 0)
            disti_sleep_ns(100 * 1000);
    }
    state->ending_mask = 0;
}

/* ---- the slot ---- */

static void cancel_peer(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;

    if (cancel_is_pinned(cancel, false)) {
        disti_tcp_lose(cancel->state, peer, 0,
                       "it did not read the last message of a group that has ended");
        return;
    }
    cancel_receives(cancel);
    cancel_sends(cancel);
    if (cancel->failed)
        disti_tcp_lose(cancel->state, peer, ENOMEM, NULL);
    else if (disti_tcp_can_control(peer))
        disti_tcp_list(cancel->state, peer);
}

void disti_tcp_cancel(void *instance, uint64_t tag, uint64_t mask)
{
    struct tcp_state *state = instance;

    cancel_unpin(state, tag, mask);
    for (int rank = 0; rank < state->world_size; rank++) {
        struct cancel cancel = {
            .state = state, .peer = state->peers[rank], .tag = tag, .mask = mask};

        if (cancel.peer)
            cancel_peer(&cancel);
    }
    disti_standins_sweep(&state->standins);
}
