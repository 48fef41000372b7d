/* SPDX-License-Identifier: BSD-3-Clause */
/* Peers: their connections, their turns, their end. */
#include "base/clock.h"
#include "base/log.h"
#include "transports/tcp/state.h"

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

void disti_tcp_unlist(struct tcp_state *state, struct tcp_peer *peer)
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
        disti_tcp_unlist(state, peer);
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
    disti_tcp_unlist(state, peer);
}
