/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a connection: where it may go, what moves it, how it ends. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of several, not much more than this waits in one to be sent: else a slow one takes too much. */
#define CONN_UNSENT (256 << 10)

#define TO(name) (1 << TCP_CONN_##name)

/* The arrows of the drawing in state.h, by where they begin. */
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

/* Both have proved who they are: messages may go, as many as the peer's has granted credit for. */
static void tcp_conn_up(struct tcp_state *state, struct tcp_conn *conn, uint64_t credit)
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

static void tcp_conn_called(struct tcp_state *state, struct tcp_conn *conn);

void disti_tcp_conn_event(struct tcp_state *state, struct tcp_conn *conn, uint32_t events)
{
    if (conn->state == TCP_CONN_CALLING && events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
        tcp_conn_called(state, conn);
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

/* How a connection comes up: calling, greeting, being called. */

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
        tcp_conn_called(state, conn);
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

/* The call has been taken, or has failed: says hello. */
static void tcp_conn_called(struct tcp_state *state, struct tcp_conn *conn)
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
    tcp_conn_up(state, conn, hello.credit);
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
        tcp_conn_up(state, conn, hello->credit);
    else
        disti_tcp_conn_failed(state, conn, errno, NULL);
}

/* The hellos of the handshake: making them, and judging them. */

/* The proof of a packed hello, which holds on this session alone, if there is one. */
static void greet_prove(const struct tcp_state *state, struct disti_tls *tls,
                        const unsigned char *bytes, const unsigned char *nonce,
                        unsigned char proof[DISTI_HMAC_BYTES])
{
    unsigned char binding[DISTI_TLS_BINDING];
    const struct disti_hmac_piece session = {binding, disti_tls_binding(tls, binding)};

    disti_tcp_hello_prove(&state->key, bytes, nonce, &session, proof);
}

bool disti_tcp_greet(const struct tcp_state *state, int fd, struct disti_tls *tls, int to,
                     int number, enum disti_tcp_step step, const unsigned char *nonce,
                     const unsigned char *other)
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
        greet_prove(state, tls, bytes, other, hello.proof);
        disti_tcp_hello_encode(&hello, bytes);
    }
    return disti_tls_or_send(tls, fd, bytes, sizeof(bytes)) == (ssize_t)sizeof(bytes);
}

bool disti_tcp_hello_valid(const struct tcp_state *state, const unsigned char *bytes,
                           enum disti_tcp_step step, struct disti_tcp_hello *hello_p)
{
    return disti_tcp_hello_decode(bytes, hello_p) && hello_p->step == step &&
           hello_p->job == state->job && hello_p->world_size == (uint32_t)state->world_size &&
           hello_p->checksum == state->checksum && hello_p->to == (uint32_t)state->rank &&
           hello_p->from < hello_p->world_size && hello_p->from != hello_p->to;
}

bool disti_tcp_hello_proved(const struct tcp_state *state, struct disti_tls *tls,
                            const unsigned char *bytes, const unsigned char *nonce)
{
    unsigned char proof[DISTI_HMAC_BYTES];

    greet_prove(state, tls, bytes, nonce, proof);
    return disti_hmac_same(proof, bytes + DISTI_TCP_HELLO_BYTES - DISTI_HMAC_BYTES);
}

/* Leaving: a goodbye to every peer, and a close that loses none of what was sent. */

/* How long all peers together have to make room for what has not yet been sent. */
#define LEAVE_MS 100

/* A goodbye, if the stream is between two messages: then the peer knows that we left. */
static void leave_say_goodbye(struct tcp_state *state, struct tcp_peer *peer)
{
    unsigned char bytes[DISTI_TCP_FRAME_BYTES];

    disti_tcp_send_turn(state, peer);
    if (!disti_tcp_conn_sends(peer->conn) || disti_tcp_first_begun(peer) ||
        peer->control.begin != peer->control.end || peer->stripes.sending)
        return;
    disti_tcp_frame_encode(DISTI_TCP_GOODBYE, &(struct dist_envelope){0, 0, 0}, bytes);
    disti_tcp_seal(peer, bytes, NULL, 0, 0);
    (void)!disti_tls_or_send(peer->conn->tls, peer->conn->fd, bytes, sizeof(bytes));
}

/* Unread bytes would turn the close into a reset, which may cost the peer our last words. */
static bool leave_drained(struct tcp_state *state, int fd)
{
    int unsent = 0;
    ssize_t got;

    do {
        got = recv(fd, state->buffer, TCP_BUFFER_BYTES, MSG_DONTWAIT);
    } while (got > 0 || (got < 0 && errno == EINTR));
    return (got < 0 && errno != EAGAIN) || ioctl(fd, SIOCOUTQNSD, &unsent) || unsent == 0;
}

/* Does the kernel still read memory that is the program's again from now on? */
static bool leave_pending(struct tcp_state *state, struct tcp_conn *conn)
{
    disti_tcp_zerocopy_reap(state, conn);
    return disti_tcp_zerocopy_pending(conn);
}

static void leave_close(struct tcp_state *state, struct tcp_conn *conn, int64_t deadline)
{
    if (conn->fd < 0)
        return;
    while (disti_tcp_conn_is_open(conn) && !disti_expired(deadline) &&
           (!leave_drained(state, conn->fd) || leave_pending(state, conn)))
        disti_sleep_ns(100 * 1000);
    disti_tcp_silence_leave(conn->fd);
    shutdown(conn->fd, SHUT_WR);
    disti_tcp_close(state, conn);
}

void disti_tcp_leave(struct tcp_state *state)
{
    int64_t deadline = disti_deadline_ms(LEAVE_MS);

    for (int rank = 0; rank < state->world_size; rank++) {
        if (state->peers[rank])
            leave_say_goodbye(state, state->peers[rank]);
    }
    for (int rank = 0; rank < state->world_size; rank++) {
        struct tcp_peer *peer = state->peers[rank];

        for (int number = 0; peer && number < peer->conns; number++)
            leave_close(state, &peer->conn[number], deadline);
    }
}
