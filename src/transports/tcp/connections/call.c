/* SPDX-License-Identifier: BSD-3-Clause */
/* How a connection comes up: calling, greeting, being called. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <unistd.h>

/* A further connection that is not there within is left out. */
#define CALL_FURTHER_MS 3000
/* The call that waits for the peer meets its own deadline first: its error says more. */
#define CALL_SLACK_MS 1000

/* The call goes out by this interface. 0 or errno. */
static int call_bind(const struct tcp_state *state, const struct tcp_conn *conn)
{
    struct disti_tcp_endpoint source = state->local[conn->interface].endpoint;
    struct sockaddr_storage address;
    socklen_t length;
    int one = 1;

    source.port = 0;
    length = disti_tcp_sockaddr(&source, state->scope, &address);
    setsockopt(conn->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    return bind(conn->fd, (struct sockaddr *)&address, length) ? errno : 0;
}

/* 0, EINPROGRESS if the answer is still to come, or what failed. */
static int call_connect(struct tcp_state *state, struct tcp_conn *conn)
{
    struct sockaddr_storage address;
    socklen_t length = disti_tcp_sockaddr(&conn->endpoint, state->scope, &address);
    int failed = 0;

    conn->fd = disti_descriptor_own(
        socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (conn->fd < 0)
        return errno;
    disti_tcp_tune(state, conn->fd);
    disti_tcp_congestion(state, conn->fd);
    if (conn->interface >= 0)
        failed = call_bind(state, conn);
    if (!failed && connect(conn->fd, (struct sockaddr *)&address, length))
        failed = errno == EINTR ? EINPROGRESS : errno;
    if ((failed == 0 || failed == EINPROGRESS) &&
        !disti_tcp_watch(state, conn->fd, TCP_EVENT_CONN + conn->number, conn->peer->rank, false))
        failed = errno;
    return failed;
}

void disti_tcp_conn_call(struct tcp_state *state, struct tcp_conn *conn)
{
    int timeout_ms = state->timeout_ms, failed;

    if (conn->state != TCP_CONN_IDLE)
        return;
    if (conn->number && timeout_ms > CALL_FURTHER_MS)
        timeout_ms = CALL_FURTHER_MS;
    if (!conn->deadline)
        conn->deadline = disti_deadline_ms((int64_t)timeout_ms + CALL_SLACK_MS);
    disti_tcp_tick_on(state, true);
    disti_tcp_conn_go(conn, TCP_CONN_CALLING);
    failed = call_connect(state, conn);
    if (failed == 0)
        disti_tcp_conn_called(state, conn);
    else if (failed != EINPROGRESS)
        disti_tcp_conn_failed(state, conn, failed, NULL);
}

/* The session that the peer's certificate has to be for. False: no memory. */
static bool call_begin_tls(const struct tcp_state *state, struct tcp_conn *conn)
{
    char host[TCP_TEXT];

    if (!state->tls)
        return true;
    disti_tcp_host_text(&conn->endpoint, host, sizeof(host));
    conn->tls = disti_tls_call(state->tls, conn->fd, host);
    return conn->tls != NULL;
}

/* What the log says of it, since a peer that is lost keeps no text of its own. */
static const char *call_tls_failed(const struct tcp_state *state, const struct tcp_conn *conn)
{
    char address[TCP_TEXT];

    disti_tcp_endpoint_text(&conn->endpoint, address, sizeof(address));
    disti_warn("rank %d: the TLS handshake with rank %d (%s) failed: %s", state->rank,
               conn->peer->rank, address, disti_tls_why(conn->tls));
    return "the TLS handshake with it failed, as this rank's log says";
}

/* The peer was there in time, only this rank has not looked: it has the time once more, but once.
 */
static void call_spare(const struct tcp_state *state, struct tcp_conn *conn)
{
    if (conn->spared || !conn->deadline || !disti_expired(conn->deadline))
        return;
    conn->spared = true;
    conn->deadline = disti_deadline_ms(state->timeout_ms);
}

void disti_tcp_conn_called(struct tcp_state *state, struct tcp_conn *conn)
{
    int failed = 0;
    socklen_t size = sizeof(failed);

    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &failed, &size))
        failed = errno;
    if (!failed && !call_begin_tls(state, conn))
        failed = ENOMEM;
    if (!failed && (!disti_nonce(conn->nonce) ||
                    !disti_tcp_greet(state, conn->fd, conn->tls, conn->peer->rank, conn->number,
                                     DISTI_TCP_CALL, conn->nonce, NULL)))
        failed = errno ? errno : EIO;
    if (failed) {
        disti_tcp_conn_failed(state, conn, failed, NULL);
        return;
    }
    disti_tcp_conn_go(conn, TCP_CONN_GREETING);
    conn->hello_bytes = 0;
    conn->awaited = DISTI_TCP_CHALLENGE;
    if (conn->number) /* others than the first can wait */
        conn->deadline = 0;
    call_spare(state, conn);
    disti_tcp_conn_read_hello(state, conn);
}

/* Reads a hello, as far as it is there. True: it is whole. */
static bool call_read(struct tcp_state *state, struct tcp_conn *conn)
{
    while (conn->hello_bytes < sizeof(conn->hello)) {
        ssize_t got = disti_tls_or_recv(conn->tls, conn->fd, conn->hello + conn->hello_bytes,
                                        sizeof(conn->hello) - conn->hello_bytes);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return false;
        if (got < 0 && conn->tls && errno == EPROTO) {
            disti_tcp_conn_failed(state, conn, EPROTO, call_tls_failed(state, conn));
            return false;
        }
        if (got <= 0) {
            disti_tcp_conn_failed(state, conn, got ? errno : 0,
                                  got ? NULL : "it ended the connection during the handshake");
            return false;
        }
        conn->hello_bytes += (size_t)got;
    }
    conn->hello_bytes = 0;
    return true;
}

/* The peer's nonce is there: this rank shows that it has the key. */
static bool call_prove(struct tcp_state *state, struct tcp_conn *conn,
                       const struct disti_tcp_hello *hello)
{
    conn->awaited = DISTI_TCP_ANSWER;
    call_spare(state, conn);
    if (disti_tcp_greet(state, conn->fd, conn->tls, conn->peer->rank, conn->number, DISTI_TCP_PROOF,
                        conn->nonce, hello->nonce))
        return true;
    disti_tcp_conn_failed(state, conn, errno, NULL);
    return false;
}

/* A whole hello is there. True: there may be another. */
static bool call_take_hello(struct tcp_state *state, struct tcp_conn *conn)
{
    struct disti_tcp_hello hello;

    if (!disti_tcp_hello_valid(state, conn->hello, conn->awaited, &hello) ||
        hello.socket != conn->number || hello.from != (uint32_t)conn->peer->rank) {
        disti_tcp_conn_failed(state, conn, EPROTO, "another program answers at its address");
        return false;
    }
    if (conn->awaited == DISTI_TCP_CHALLENGE)
        return call_prove(state, conn, &hello);
    if (!disti_tcp_hello_proved(state, conn->tls, conn->hello, conn->nonce)) {
        disti_tcp_conn_failed(
            state, conn, EPROTO,
            "who answers at its address does not prove that he has the world's key");
        return false;
    }
    disti_tcp_conn_up(state, conn, hello.credit);
    if (conn->number == 0)
        disti_tcp_call_further(state, conn->peer);
    return false;
}

void disti_tcp_conn_read_hello(struct tcp_state *state, struct tcp_conn *conn)
{
    while (call_read(state, conn) && call_take_hello(state, conn))
        ;
}

/* The connection that a caller means, idle; NULL: it is not wanted. */
static struct tcp_conn *call_wanted(struct tcp_state *state, const struct disti_tcp_hello *hello)
{
    struct tcp_peer *peer = disti_tcp_peer(state, (int)hello->from);
    int number = hello->socket;

    if (!peer)
        return NULL;
    if (number &&
        (!disti_tcp_conn_is_open(peer->conn) || (state->sockets && number >= state->sockets) ||
         !disti_tcp_grow(peer, number + 1)))
        return NULL;
    /* Both have called: the lower rank's call stays. */
    if (number == 0 && state->rank > peer->rank && peer->conn->state < TCP_CONN_UP &&
        peer->conn->state != TCP_CONN_IDLE) {
        disti_tcp_close(state, peer->conn);
        disti_tcp_conn_go(peer->conn, TCP_CONN_IDLE);
    }
    return peer->conn[number].state == TCP_CONN_IDLE ? &peer->conn[number] : NULL;
}

void disti_tcp_conn_adopt(struct tcp_state *state, int fd, struct disti_tls *tls,
                          const struct disti_tcp_hello *hello, const unsigned char *nonce)
{
    struct tcp_conn *conn = call_wanted(state, hello);

    if (!conn) {
        disti_tls_free(tls);
        disti_descriptor_close(fd);
        return;
    }
    conn->fd = fd;
    conn->tls = tls;
    disti_tcp_conn_go(conn, TCP_CONN_GREETING);
    disti_tcp_tune(state, fd);
    if (disti_tcp_watch(state, fd, TCP_EVENT_CONN + conn->number, conn->peer->rank, true) &&
        disti_tcp_greet(state, fd, tls, conn->peer->rank, conn->number, DISTI_TCP_ANSWER, nonce,
                        hello->nonce))
        disti_tcp_conn_up(state, conn, hello->credit);
    else
        disti_tcp_conn_failed(state, conn, errno, NULL);
}
