/* SPDX-License-Identifier: BSD-3-Clause */
/* The states of a connection: connecting, accepting, the handshake, and the connection's end. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * Limit of unsent bytes in each socket if a pair has several sockets, so that a slow socket does
 * not take too many stripes.
 */
#define CONN_UNSENT (256 << 10)

/* After one connection of a pair has ended, time in ms for its other connections to end. */
#define PEER_END_MS 500

#define TO(name) (1 << TCP_CONN_##name)

/* The transitions drawn in state.h, by source state. */
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

dist_status disti_tcp_conn_set_state(struct tcp_conn *conn, enum tcp_conn_state to)
{
    if (!(conn_arrows[conn->state] & 1 << to))
        return disti_fail_transition("a tcp connection", (int)conn->state, (int)to);
    conn->state = to;
    return DIST_OK;
}

void disti_tcp_conn_set_writable(struct tcp_state *state, struct tcp_conn *conn, bool writable)
{
    if (!disti_tcp_conn_is_open(conn) || conn->writable == writable)
        return;
    /* A TLS session may have stopped because memory is short; no event reports when to continue. */
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
    disti_tcp_conn_set_state(conn, to);
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

/*
 * Enables zero-copy on an open socket. Returns NULL if sends have to be copied. The caller frees
 * the result after the last send has completed.
 */
static struct tcp_zerocopy *zerocopy_open(const struct tcp_state *state, int fd)
{
    struct tcp_zerocopy *zerocopy;
    int one = 1;

    if (state->zerocopy == TCP_ZEROCOPY_OFF || state->tls)
        return NULL;
    zerocopy = calloc(1, sizeof(*zerocopy));
    if (zerocopy && setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one))) {
        disti_info("rank %d cannot use zero-copy sends: %s", state->rank, strerror(errno));
        free(zerocopy);
        return NULL;
    }
    return zerocopy;
}

/*
 * A peer with a round trip shorter than this (in microseconds) is assumed to be on the same
 * network, where the job has no competing traffic.
 */
#define CONGESTION_NEAR_US 1000

/*
 * Sets state->paced as the congestion control of an established connection if the peer is distant.
 * The distance is the kernel's shortest round trip so far, which does not depend on how fast the
 * programs answer.
 */
static void congestion_choose(const struct tcp_state *state, int fd)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    if (state->paced[0] && (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) ||
                            info.tcpi_min_rtt == 0 || info.tcpi_min_rtt >= CONGESTION_NEAR_US))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, state->paced,
                         (socklen_t)strlen(state->paced));
}

/*
 * Opens the connection for messages. Call when the handshake is complete. `credit`: granted by the
 * peer.
 */
static void tcp_conn_up(struct tcp_state *state, struct tcp_conn *conn, uint64_t credit)
{
    disti_tcp_conn_set_state(conn, TCP_CONN_UP);
    disti_tls_trust(conn->tls);
    conn->readable = conn->writable = true;
    congestion_choose(state, conn->fd);
    conn->zerocopy = zerocopy_open(state, conn->fd);
    if (conn->number) {
        conn->peer->further++;
        conn_limit(conn);
        conn_limit(conn->peer->conn);
    } else {
        conn->peer->credit = (struct tcp_credit){.granted = credit,
                                                 .left = credit,
                                                 .limit = state->unexpected_limit,
                                                 .unused = state->unexpected_limit};
    }
    disti_tcp_list(state, conn->peer);
}

/*
 * Handles a connection that failed to open. If the peer closed the first connection before the
 * deadline, the first connection returns to IDLE and is opened again; after any other failure of
 * the first connection, the peer is lost. A further connection is left out. `cause`: errno, or 0
 * for the end of the stream.
 */
static void conn_failed(struct tcp_state *state, struct tcp_conn *conn, int cause,
                        const char *reason)
{
    struct tcp_peer *peer = conn->peer;

    if (conn->number) {
        disti_info("rank %d does without socket %d of its connections to rank %d: %s", state->rank,
                   conn->number, peer->rank, cause ? strerror(cause) : "the peer does not want it");
        conn_close(state, conn, TCP_CONN_LOST);
    } else if ((cause == 0 || cause == ECONNRESET || cause == EPIPE) &&
               !disti_expired(conn->deadline)) {
        conn_close(state, conn, TCP_CONN_IDLE);
        peer->ticks = 0;
    } else {
        disti_tcp_lose(state, peer, cause, reason);
    }
}

/*
 * Extends an expired deadline once, since the peer may have answered in time while this rank did
 * not call progress.
 */
static void call_extend_once(const struct tcp_state *state, struct tcp_conn *conn)
{
    if (conn->extended || !conn->deadline || !disti_expired(conn->deadline))
        return;
    conn->extended = true;
    conn->deadline = disti_deadline_ms(state->timeout_ms);
}

/* Computes the proof of an encoded hello, bound to the TLS session if there is one. */
static void greet_prove(const struct tcp_state *state, struct disti_tls *tls,
                        const unsigned char *bytes, const unsigned char *nonce,
                        unsigned char proof[DISTI_HMAC_BYTES])
{
    unsigned char binding[DISTI_TLS_BINDING];
    const struct disti_hmac_piece session = {binding, disti_tls_binding(tls, binding)};

    disti_tcp_hello_prove(&state->key, bytes, nonce, &session, proof);
}

/*
 * Sends this rank's hello of a step to rank `to`, for socket `number`. `peer_nonce` is the peer's
 * nonce if the step needs a proof. Returns false if the connection did not accept all bytes.
 */
static bool tcp_greet(const struct tcp_state *state, int fd, struct disti_tls *tls, int to,
                      int number, enum disti_tcp_step step, const unsigned char *nonce,
                      const unsigned char *peer_nonce)
{
    unsigned char bytes[DISTI_TCP_HELLO_BYTES];
    struct disti_tcp_hello hello = {.world_size = (uint32_t)state->world_size,
                                    .from = (uint32_t)state->rank,
                                    .to = (uint32_t)to,
                                    .job = state->job,
                                    .credit = state->unexpected_limit,
                                    .socket = number,
                                    .checksum = state->checksum,
                                    .step = step};

    memcpy(hello.nonce, nonce, sizeof(hello.nonce));
    disti_tcp_hello_encode(&hello, bytes);
    if (step == DISTI_TCP_PROOF || step == DISTI_TCP_ANSWER) {
        greet_prove(state, tls, bytes, peer_nonce, hello.proof);
        disti_tcp_hello_encode(&hello, bytes);
    }
    return disti_tls_or_send(tls, fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes);
}

/* Reads the bytes of a hello that have arrived. Returns true if the hello is complete. */
static bool call_read(struct tcp_state *state, struct tcp_conn *conn)
{
    char address[TCP_TEXT];

    while (conn->hello_bytes < sizeof(conn->hello)) {
        ssize_t got = disti_tls_or_recv(conn->tls, conn->fd, conn->hello + conn->hello_bytes,
                                        sizeof(conn->hello) - conn->hello_bytes);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return false;
        if (got < 0 && conn->tls && errno == EPROTO) {
            /* Log the cause, since a lost peer keeps only static text. */
            disti_tcp_endpoint_text(&conn->endpoint, address, sizeof(address));
            disti_warn("rank %d: the TLS handshake with rank %d (%s) failed: %s", state->rank,
                       conn->peer->rank, address, disti_tls_why(conn->tls));
            conn_failed(state, conn, EPROTO,
                        "the TLS handshake with it failed; see this rank's log");
            return false;
        }
        if (got <= 0) {
            conn_failed(state, conn, got ? errno : 0,
                        got ? NULL : "it ended the connection during the handshake");
            return false;
        }
        conn->hello_bytes += (size_t)got;
    }
    conn->hello_bytes = 0;
    return true;
}

/*
 * True if the bytes are a hello of this step from a rank of this job to this rank. Does not check
 * the proof.
 */
static bool tcp_hello_valid(const struct tcp_state *state, const unsigned char *bytes,
                            enum disti_tcp_step step, struct disti_tcp_hello *hello_p)
{
    return disti_tcp_hello_decode(bytes, hello_p) && hello_p->step == step &&
           hello_p->job == state->job && hello_p->world_size == (uint32_t)state->world_size &&
           hello_p->checksum == state->checksum && hello_p->to == (uint32_t)state->rank &&
           hello_p->from < hello_p->world_size && hello_p->from != hello_p->to;
}

/* True if the proof is valid for this rank's nonce and this TLS session. */
static bool tcp_hello_proved(const struct tcp_state *state, struct disti_tls *tls,
                             const unsigned char *bytes, const unsigned char *nonce)
{
    unsigned char proof[DISTI_HMAC_BYTES];

    greet_prove(state, tls, bytes, nonce, proof);
    return disti_hmac_same(proof, bytes + DISTI_TCP_HELLO_BYTES - DISTI_HMAC_BYTES);
}

/* Handles a complete hello. Returns true if another one may have arrived. */
static bool call_process_hello(struct tcp_state *state, struct tcp_conn *conn)
{
    struct tcp_peer *peer = conn->peer;
    struct disti_tcp_hello hello;

    if (!tcp_hello_valid(state, conn->hello, conn->awaited, &hello) ||
        hello.socket != conn->number || hello.from != (uint32_t)conn->peer->rank) {
        conn_failed(state, conn, EPROTO, "another program answered at its address");
        return false;
    }
    if (conn->awaited == DISTI_TCP_CHALLENGE) {
        conn->awaited = DISTI_TCP_ANSWER;
        call_extend_once(state, conn);
        if (tcp_greet(state, conn->fd, conn->tls, conn->peer->rank, conn->number, DISTI_TCP_PROOF,
                      conn->nonce, hello.nonce))
            return true;
        conn_failed(state, conn, errno, NULL);
        return false;
    }
    if (!tcp_hello_proved(state, conn->tls, conn->hello, conn->nonce)) {
        conn_failed(state, conn, EPROTO,
                    "the process at its address did not prove that it has the world's key");
        return false;
    }
    tcp_conn_up(state, conn, hello.credit);
    /* The rank that opened the first connection opens the further ones too. */
    for (int number = 1; conn->number == 0 && number < peer->conns; number++) {
        if (peer->conn[number].endpoint.family)
            disti_tcp_conn_call(state, &peer->conn[number]);
    }
    return false;
}

/* Reads and handles the peer's hellos that have arrived. */
static void conn_read_hello(struct tcp_state *state, struct tcp_conn *conn)
{
    while (call_read(state, conn) && call_process_hello(state, conn))
        ;
}

/* Call when connect has finished: sends the first hello, or handles the failure. */
static void tcp_conn_called(struct tcp_state *state, struct tcp_conn *conn)
{
    char host[TCP_TEXT];
    int failed = 0;
    socklen_t size = sizeof(failed);

    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &failed, &size))
        failed = errno;
    if (!failed && state->tls) { /* the peer's certificate must be valid for its address */
        disti_tcp_host_text(&conn->endpoint, host, sizeof(host));
        conn->tls = disti_tls_call(state->tls, conn->fd, host);
        failed = conn->tls ? 0 : ENOMEM;
    }
    if (!failed &&
        (!disti_nonce(conn->nonce) || !tcp_greet(state, conn->fd, conn->tls, conn->peer->rank,
                                                 conn->number, DISTI_TCP_CALL, conn->nonce, NULL)))
        failed = errno ? errno : EIO;
    if (failed) {
        conn_failed(state, conn, failed, NULL);
        return;
    }
    disti_tcp_conn_set_state(conn, TCP_CONN_GREETING);
    conn->hello_bytes = 0;
    conn->awaited = DISTI_TCP_CHALLENGE;
    if (conn->number) /* a further connection has a deadline only for connect */
        conn->deadline = 0;
    call_extend_once(state, conn);
    conn_read_hello(state, conn);
}

void disti_tcp_conn_event(struct tcp_state *state, struct tcp_conn *conn, uint32_t events)
{
    if (conn->state == TCP_CONN_CALLING && events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
        tcp_conn_called(state, conn);
    else if (conn->state == TCP_CONN_GREETING)
        conn_read_hello(state, conn);
    if (!disti_tcp_conn_is_open(conn))
        return;
    /*
     * EPOLLERR may only mean zero-copy completions in the error queue. A broken connection reports
     * EPOLLHUP too.
     */
    if (events & EPOLLERR && disti_tcp_zerocopy_reap(state, conn))
        events &= ~(uint32_t)EPOLLERR;
    if (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))
        conn->readable = true;
    if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
        disti_tcp_conn_set_writable(state, conn, true);
    /*
     * Poll the socket: the event may belong to an earlier socket that this connection has
     * replaced.
     */
    if (events & (EPOLLRDHUP | EPOLLHUP) &&
        (conn->state == TCP_CONN_UP || conn->state == TCP_CONN_RESUMING) &&
        poll(&(struct pollfd){.fd = conn->fd, .events = POLLRDHUP}, 1, 0) == 1)
        disti_tcp_conn_set_state(conn, TCP_CONN_DRAINING);
    disti_tcp_list(state, conn->peer);
}

/*
 * Records that a connection of the peer has ended. All its connections must end within PEER_END_MS,
 * or the peer is lost.
 */
static void conn_peer_ends(struct tcp_state *state, struct tcp_peer *peer, int cause)
{
    if (!peer->cause)
        peer->cause = cause;
    if (!peer->deadline)
        peer->deadline = disti_deadline_ms(PEER_END_MS);
    disti_tcp_list(state, peer);
    disti_tcp_tick_on(state, true);
}

/*
 * Handles the end of the first connection's stream. First receives on the further connections while
 * messages in stripes are incomplete. Returns true if the peer must not be declared lost yet: the
 * first connection has been closed meanwhile, or further connections may still complete messages.
 */
static bool conn_first_outlived(struct tcp_state *state, struct tcp_conn *first, int cause)
{
    struct tcp_peer *peer = first->peer;

    for (int number = 1; number < peer->conns && peer->stripes.assemblies; number++) {
        while (disti_tcp_conn_can_receive(&peer->conn[number], true) &&
               disti_tcp_receive(state, &peer->conn[number]) > 0)
            ;
    }
    if (disti_tcp_conn_has_ended(first))
        return true;
    if (!peer->stripes.assemblies || !peer->further)
        return false;
    if (first->state == TCP_CONN_UP)
        disti_tcp_conn_set_state(first, TCP_CONN_DRAINING);
    first->readable = false;
    conn_peer_ends(state, peer, cause);
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
        peer->conn->readable = true; /* the first connection may have ended too */
        conn_peer_ends(state, peer, cause);
    } else if (!conn_first_outlived(state, conn, cause)) {
        disti_tcp_lose(state, peer, cause, NULL);
    }
}

/* Connecting and the handshake. */

/* A further connection that is not established within this time is left out. */
#define CALL_FURTHER_MS 3000
/*
 * Added to the deadline, so that the user's call times out first: its error message is more
 * detailed.
 */
#define CALL_SLACK_MS 1000

/* Starts a non-blocking connect. Returns 0, EINPROGRESS, or the errno of the failure. */
static int call_connect(struct tcp_state *state, struct tcp_conn *conn)
{
    struct sockaddr_storage address;
    socklen_t length = disti_tcp_sockaddr(&conn->endpoint, state->scope, &address);
    int failed = 0, one = 1;

    conn->fd = disti_descriptor_own(
        socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (conn->fd < 0)
        return errno;
    disti_tcp_tune(state, conn->fd);
    disti_tcp_congestion(state, conn->fd);
    if (conn->interface >= 0) { /* connect from this interface */
        struct disti_tcp_endpoint source = state->local[conn->interface].endpoint;
        struct sockaddr_storage from;
        socklen_t bytes;

        source.port = 0;
        bytes = disti_tcp_sockaddr(&source, state->scope, &from);
        setsockopt(conn->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
        failed = bind(conn->fd, (struct sockaddr *)&from, bytes) ? errno : 0;
    }
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
    disti_tcp_conn_set_state(conn, TCP_CONN_CALLING);
    failed = call_connect(state, conn);
    if (failed == 0)
        tcp_conn_called(state, conn);
    else if (failed != EINPROGRESS)
        conn_failed(state, conn, failed, NULL);
}

void disti_tcp_conn_expired(struct tcp_state *state, struct tcp_conn *conn)
{
    /* The answer may have arrived while this rank was computing. */
    if (conn->state == TCP_CONN_GREETING)
        conn_read_hello(state, conn);
    if ((conn->state == TCP_CONN_CALLING || conn->state == TCP_CONN_GREETING) && conn->deadline &&
        disti_expired(conn->deadline))
        conn_failed(state, conn, ETIMEDOUT,
                    conn->tls && !disti_tls_is_up(conn->tls)
                        ? "its TLS handshake did not finish in time"
                        : "it did not accept the connection in time");
}

/*
 * Returns the idle connection to which an authenticated hello belongs, or NULL if the accepted
 * socket has to be closed.
 */
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
    /* Both ranks have connected: keep the lower rank's connection. */
    if (number == 0 && state->rank > peer->rank && peer->conn->state < TCP_CONN_UP &&
        peer->conn->state != TCP_CONN_IDLE) {
        disti_tcp_close(state, peer->conn);
        disti_tcp_conn_set_state(peer->conn, TCP_CONN_IDLE);
    }
    return peer->conn[number].state == TCP_CONN_IDLE ? &peer->conn[number] : NULL;
}

/*
 * Gives an authenticated socket and its TLS session to the connection of the hello and sends
 * ANSWER, or closes both if they are not needed. `nonce` is this rank's nonce.
 */
static void tcp_conn_adopt(struct tcp_state *state, int fd, struct disti_tls *tls,
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
    disti_tcp_conn_set_state(conn, TCP_CONN_GREETING);
    disti_tcp_tune(state, fd);
    if (disti_tcp_watch(state, fd, TCP_EVENT_CONN + conn->number, conn->peer->rank, true) &&
        tcp_greet(state, fd, tls, conn->peer->rank, conn->number, DISTI_TCP_ANSWER, nonce,
                  hello->nonce))
        tcp_conn_up(state, conn, hello->credit);
    else
        conn_failed(state, conn, errno, NULL);
}

/* Accepting connections, also from processes that do not belong to the job ("strangers"). */

/* Most connections accepted in one call of progress. */
#define ACCEPT_TURN 16
/*
 * Unauthenticated connections kept: one for each socket of each other rank, plus this number. If
 * there are more, the one with the earliest deadline is closed; if it was a rank's, the rank
 * connects again.
 */
#define ACCEPT_STRANGERS 64
/* Time in ms for each step of the authentication. */
#define ACCEPT_PATIENCE_MS 10000
/* Time in ms that a connection has to send its CALL if no file descriptor is left. */
#define ACCEPT_STAY_MS 1000
/* This many refusals are logged as warnings, later ones as info. */
#define ACCEPT_REFUSALS 8

dist_status disti_tcp_pending_open(struct tcp_state *state)
{
    int sockets = state->sockets ? state->sockets : state->interfaces;

    state->pending_max =
        (state->world_size - 1) * sockets + disti_descriptor_for_strangers(ACCEPT_STRANGERS);
    state->pending = calloc((size_t)state->pending_max, sizeof(*state->pending));
    if (!state->pending)
        return disti_fail(DIST_ERR_NO_MEMORY, "tcp: no memory for %d pending connections",
                          state->pending_max);
    for (int i = 0; i < state->pending_max; i++)
        state->pending[i].fd = -1;
    return DIST_OK;
}

static void pending_drop(struct tcp_state *state, struct tcp_pending *pending)
{
    disti_tls_free(pending->tls);
    disti_tcp_hang_up(state, pending->fd);
    pending->tls = NULL;
    pending->fd = -1;
    state->pending_count--;
}

/* Logs why the connection is refused and closes it. */
static void pending_refuse(struct tcp_state *state, struct tcp_pending *pending, const char *why)
{
    char text[TCP_TEXT];

    disti_tcp_endpoint_text(&pending->caller, text, sizeof(text));
    disti_log_line(++state->refusals <= ACCEPT_REFUSALS ? DIST_LOG_WARN : DIST_LOG_INFO,
                   "rank %d refuses a connection from %s: %s", state->rank, text, why);
    pending_drop(state, pending);
}

/*
 * Handles a complete hello of an accepted connection: answers the first one, CALL, with a
 * challenge, and checks the proof in the second one.
 */
static void pending_hello(struct tcp_state *state, struct tcp_pending *pending)
{
    const bool proof = pending->challenged;
    struct disti_tcp_hello hello;

    if (!tcp_hello_valid(state, pending->hello, proof ? DISTI_TCP_PROOF : DISTI_TCP_CALL, &hello)) {
        pending_refuse(state, pending,
                       proof ? "its proof is not a valid hello" : "it is not a rank of this job");
    } else if (!proof) {
        pending->challenged = true;
        pending->bytes = 0;
        if (!disti_nonce(pending->nonce) ||
            !tcp_greet(state, pending->fd, pending->tls, (int)hello.from, hello.socket,
                       DISTI_TCP_CHALLENGE, pending->nonce, NULL))
            pending_drop(state, pending);
    } else if (!tcp_hello_proved(state, pending->tls, pending->hello, pending->nonce)) {
        pending_refuse(state, pending, "it did not prove that it has the world's key");
    } else {
        state->pending_count--;
        tcp_conn_adopt(state, pending->fd, pending->tls, &hello, pending->nonce);
        pending->tls = NULL;
        pending->fd = -1;
    }
}

int disti_tcp_pending_event(struct tcp_state *state, int slot)
{
    struct tcp_pending *pending = &state->pending[slot];

    while (pending->fd >= 0) {
        ssize_t got = disti_tls_or_recv(pending->tls, pending->fd, pending->hello + pending->bytes,
                                        sizeof(pending->hello) - pending->bytes);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            break;
        if (got < 0 && pending->tls && errno == EPROTO)
            pending_refuse(state, pending, disti_tls_why(pending->tls));
        else if (got <= 0)
            pending_drop(state, pending);
        else
            pending->bytes += (size_t)got;
        if (pending->fd >= 0 && pending->bytes == sizeof(pending->hello))
            pending_hello(state, pending);
    }
    return 1;
}

/*
 * Returns the time in ms for one step. It should suffice for a rank that is computing; a rank that
 * is refused connects again.
 */
static int accept_patience_ms(const struct tcp_state *state)
{
    return state->timeout_ms < ACCEPT_PATIENCE_MS ? state->timeout_ms : ACCEPT_PATIENCE_MS;
}

static void accept_one(struct tcp_state *state, int fd, const struct sockaddr_storage *caller)
{
    struct tcp_pending *pending;
    int slot = 0;
    struct disti_tls *tls = state->tls ? disti_tls_accept(state->tls, fd) : NULL;

    while (slot < state->pending_max && state->pending[slot].fd >= 0)
        slot++;
    if (slot ==
        state->pending_max) { /* no slot is free: drop the connection with the earliest deadline */
        slot = 0;
        for (int i = 1; i < state->pending_max; i++) {
            if (state->pending[i].deadline < state->pending[slot].deadline)
                slot = i;
        }
        pending_drop(state, &state->pending[slot]);
    }
    pending = &state->pending[slot];
    if ((state->tls && !tls) || !disti_tcp_watch(state, fd, TCP_EVENT_PENDING, slot, false)) {
        disti_tls_free(tls);
        disti_descriptor_close(fd);
        return;
    }
    pending->tls = tls;
    pending->fd = fd;
    disti_tcp_endpoint_of((const struct sockaddr *)caller, &pending->caller);
    pending->bytes = 0;
    pending->challenged = false;
    pending->deadline = disti_deadline_ms(accept_patience_ms(state));
    state->pending_count++;
    disti_tcp_pending_event(state, slot);
    if (state->pending_count)
        disti_tcp_tick_on(state, true);
}

/*
 * Frees a descriptor: drops the oldest connection that has not sent a valid CALL within
 * ACCEPT_STAY_MS. Returns false if there is none.
 */
static bool accept_find_descriptor(struct tcp_state *state)
{
    struct tcp_pending *oldest = NULL;

    for (int i = 0; i < state->pending_max; i++) {
        struct tcp_pending *pending = &state->pending[i];

        if (pending->fd >= 0 && !pending->challenged &&
            (!oldest || pending->deadline < oldest->deadline))
            oldest = pending;
    }
    if (!oldest || disti_left_ms(oldest->deadline) > accept_patience_ms(state) - ACCEPT_STAY_MS)
        return false;
    pending_refuse(state, oldest,
                   "it sent nothing, and no file descriptor is left for other connections");
    return true;
}

/* Accepts connections. Returns true if more may be pending. */
static bool accept_turn(struct tcp_state *state, int listener, int *turn)
{
    while (*turn < ACCEPT_TURN && state->accepting) {
        struct sockaddr_storage caller = {0};
        socklen_t size = sizeof(caller);
        int fd = disti_descriptor_own(
            accept4(listener, (struct sockaddr *)&caller, &size, SOCK_NONBLOCK | SOCK_CLOEXEC));

        if (fd < 0 && errno == EAGAIN)
            return false;
        ++*turn;
        if (fd >= 0)
            accept_one(state, fd, &caller);
        else if (errno != EINTR && errno != ECONNABORTED &&
                 !((errno == EMFILE || errno == ENFILE) && accept_find_descriptor(state)))
        /* Out of file descriptors or memory: accept nothing before the next tick. */
        {
            state->accepting = false;
            state->no_accept = true;
            disti_tcp_tick_on(state, true);
            if (!state->warned)
                disti_notice("rank %d cannot accept connections: %s%s", state->rank,
                             strerror(errno),
                             errno == EMFILE ? "; raise the limit on open files (ulimit -n)" : "");
            state->warned = true;
        }
    }
    return state->accepting;
}

int disti_tcp_accept(struct tcp_state *state)
{
    bool more = false;
    int turn = 0;

    for (int i = 0; i < state->interfaces; i++)
        more |= accept_turn(state, state->listeners[i], &turn);
    state->accepting = more && !state->no_accept;
    return turn;
}

void disti_tcp_pending_tick(struct tcp_state *state)
{
    if (state->no_accept) {
        state->no_accept = false;
        state->accepting = true;
    }
    for (int i = 0; i < state->pending_max; i++) {
        struct tcp_pending *pending = &state->pending[i];
        const bool challenged = pending->challenged;

        if (pending->fd < 0 || !disti_expired(pending->deadline))
            continue;
        /*
         * Data may have arrived while this rank was computing. A completed step extends the
         * deadline.
         */
        disti_tcp_pending_event(state, i);
        if (pending->fd >= 0 && pending->challenged != challenged)
            pending->deadline = disti_deadline_ms(accept_patience_ms(state));
        else if (pending->fd >= 0)
            pending_refuse(state, pending,
                           pending->tls && !disti_tls_is_up(pending->tls)
                               ? "its TLS handshake did not finish in time"
                           : challenged ? "its proof did not arrive in time"
                                        : "it did not send a valid hello in time");
    }
}

void disti_tcp_pending_close(struct tcp_state *state)
{
    for (int i = 0; state->pending && i < state->pending_max; i++) {
        if (state->pending[i].fd >= 0)
            pending_drop(state, &state->pending[i]);
    }
    free(state->pending);
    state->pending = NULL;
}
