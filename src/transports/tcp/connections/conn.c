/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a connection: where it may go, what moves it, how it ends. */
#include "base/clock.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>

/* Of several, not much more than this waits in one to be sent: else a slow one takes too much. */
#define CONN_UNSENT (256 << 10)

#define TO(name) (1 << TCP_CONN_##name)

/* The arrows of the drawing in conn.h, by where they begin. */
static const uint16_t conn_arrows[] = {
    [TCP_CONN_IDLE] = TO(CALLING) | TO(GREETING) | TO(LOST),
    [TCP_CONN_CALLING] = TO(IDLE) | TO(GREETING) | TO(LOST),
    [TCP_CONN_GREETING] = TO(IDLE) | TO(UP) | TO(LOST),
    [TCP_CONN_UP] = TO(WAITING) | TO(RESUMING) | TO(LEAVING) | TO(DRAINING) | TO(LOST),
    [TCP_CONN_WAITING] = TO(RESUMING) | TO(LOST),
    [TCP_CONN_RESUMING] = TO(UP) | TO(DRAINING) | TO(LOST),
    [TCP_CONN_LEAVING] = TO(LEFT),
    [TCP_CONN_DRAINING] = TO(WAITING) | TO(LEAVING) | TO(LOST),
    [TCP_CONN_LEFT] = 0,
    [TCP_CONN_LOST] = 0,
};

/* Apart and cold, so that the check is one branch that is not taken. */
__attribute__((cold, noinline)) static dist_status conn_refuse(const struct tcp_conn *conn,
                                                               enum tcp_conn_state to)
{
    return disti_fail(DIST_ERR_INTERNAL, "a tcp connection cannot go from state %d to %d",
                      (int)conn->state, (int)to);
}

dist_status disti_tcp_conn_go(struct tcp_conn *conn, enum tcp_conn_state to)
{
    if (!(conn_arrows[conn->state] & 1 << to))
        return conn_refuse(conn, to);
    conn->state = to;
    return DIST_OK;
}

void disti_tcp_conn_set_writable(struct tcp_state *state, struct tcp_conn *conn, bool writable)
{
    if (!disti_tcp_conn_is_open(conn) || conn->writable == writable)
        return;
    /* A session may have stopped for want of memory: no event says that there is some. */
    if (!writable && conn->tls && !disti_tls_waits_to_send(conn->tls))
        return;
    conn->writable = writable;
    state->blocked += writable ? -1 : 1;
}

static void conn_close(struct tcp_state *state, struct tcp_conn *conn, enum tcp_conn_state to)
{
    disti_tcp_conn_set_writable(state, conn, true);
    disti_tcp_close(state, conn);
    conn->readable = false;
    disti_tcp_conn_go(conn, to);
}

void disti_tcp_conn_end(struct tcp_state *state, struct tcp_conn *conn)
{
    if (!disti_tcp_conn_has_ended(conn))
        conn_close(state, conn, conn->state == TCP_CONN_LEAVING ? TCP_CONN_LEFT : TCP_CONN_LOST);
}

static void conn_limit(const struct tcp_conn *conn)
{
    int unsent = CONN_UNSENT;

    setsockopt(conn->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
}

void disti_tcp_conn_up(struct tcp_state *state, struct tcp_conn *conn, uint64_t credit)
{
    disti_tcp_conn_go(conn, TCP_CONN_UP);
    disti_tls_trust(conn->tls);
    conn->readable = conn->writable = true;
    disti_tcp_congestion_choose(state, conn->fd);
    conn->zerocopy = disti_tcp_zerocopy_open(state, conn->fd);
    if (conn->number) {
        conn->peer->further++;
        conn_limit(conn);
        conn_limit(conn->peer->conn);
    } else {
        disti_tcp_credit_open(state, conn->peer, credit);
    }
    disti_tcp_list(state, conn->peer);
}

/*
 * Has the peer ended a connection before it answered? It may have had too many callers, or have
 * waited for a hello for too long, or have been calling itself.
 */
static bool conn_hung_up(int cause)
{
    return cause == 0 || cause == ECONNRESET || cause == EPIPE;
}

void disti_tcp_conn_failed(struct tcp_state *state, struct tcp_conn *conn, int cause,
                           const char *reason)
{
    struct tcp_peer *peer = conn->peer;

    if (conn->number) {
        disti_info("rank %d goes without socket %d of those with rank %d: %s", state->rank,
                   conn->number, peer->rank, cause ? strerror(cause) : "the peer does not want it");
        conn_close(state, conn, TCP_CONN_LOST);
    } else if (conn_hung_up(cause) && !disti_expired(conn->deadline)) {
        conn_close(state, conn, TCP_CONN_IDLE);
        peer->ticks = 0;
    } else {
        disti_tcp_lose(state, peer, cause, reason);
    }
}

/* Asks the socket itself: the event may be of a call of this rank that has given way since. */
static bool conn_is_ending(const struct tcp_conn *conn)
{
    struct pollfd ask = {.fd = conn->fd, .events = POLLRDHUP};

    return (conn->state == TCP_CONN_UP || conn->state == TCP_CONN_RESUMING) &&
           poll(&ask, 1, 0) == 1;
}

void disti_tcp_conn_event(struct tcp_state *state, struct tcp_conn *conn, uint32_t events)
{
    if (conn->state == TCP_CONN_CALLING && events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
        disti_tcp_conn_called(state, conn);
    else if (conn->state == TCP_CONN_GREETING)
        disti_tcp_conn_read_hello(state, conn);
    if (!disti_tcp_conn_is_open(conn))
        return;
    /*
     * The error queue has news of sends, or had when the event was made. A connection that is
     * broken has hung up as well.
     */
    if (events & EPOLLERR && disti_tcp_zerocopy_reap(state, conn))
        events &= ~(uint32_t)EPOLLERR;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))
        conn->readable = true;
    if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
        disti_tcp_conn_set_writable(state, conn, true);
    if (events & (EPOLLRDHUP | EPOLLHUP) && conn_is_ending(conn))
        disti_tcp_conn_go(conn, TCP_CONN_DRAINING);
    disti_tcp_list(state, conn->peer);
}

void disti_tcp_conn_drain(struct tcp_state *state, struct tcp_conn *conn)
{
    while (disti_tcp_conn_can_receive(conn, true) && disti_tcp_receive(state, conn) > 0)
        ;
}

/* The first has ended. True: the others may still complete messages that it announced. */
static bool conn_first_outlived(struct tcp_state *state, struct tcp_conn *first, int cause)
{
    struct tcp_peer *peer = first->peer;

    for (int number = 1; number < peer->conns && peer->stripes.assemblies; number++)
        disti_tcp_conn_drain(state, &peer->conn[number]);
    if (disti_tcp_conn_has_ended(first))
        return true;
    if (!peer->stripes.assemblies || !peer->further)
        return false;
    if (first->state == TCP_CONN_UP)
        disti_tcp_conn_go(first, TCP_CONN_DRAINING);
    first->readable = false;
    disti_tcp_peer_ends(state, peer, cause);
    return true;
}

void disti_tcp_conn_ended(struct tcp_state *state, struct tcp_conn *conn, int cause)
{
    struct tcp_peer *peer = conn->peer;

    if (!disti_tcp_conn_is_open(conn))
        return;
    if (conn->number) {
        disti_tcp_conn_end(state, conn);
        peer->further--;
        peer->conn->readable = true; /* the first may have ended too */
        disti_tcp_peer_ends(state, peer, cause);
    } else if (!conn_first_outlived(state, conn, cause)) {
        disti_tcp_lose(state, peer, cause, NULL);
    }
}
