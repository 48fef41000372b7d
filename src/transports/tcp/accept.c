/* SPDX-License-Identifier: BSD-3-Clause */
/* Callers: a stranger costs its own socket, and nobody else anything. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <linux/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* New callers in one call of progress. */
#define ACCEPT_TURN 16
/*
 * Callers that are kept though they have not proved who they are: all ranks that may call, which
 * can be slow to greet, and so many strangers. The oldest is hung up when there are more; a rank
 * calls again.
 */
#define ACCEPT_STRANGERS 64
/* In which a caller has to prove who he is. */
#define ACCEPT_PATIENCE_MS 10000
/* That he has where no descriptor is left for others. */
#define ACCEPT_STAY_MS 1000
/* So many are warnings. */
#define ACCEPT_REFUSALS 8

dist_status disti_tcp_pending_open(struct tcp_state *state)
{
    int sockets = state->sockets ? state->sockets : state->interfaces;

    state->pending_max =
        (state->world_size - 1) * sockets + disti_descriptor_for_strangers(ACCEPT_STRANGERS);
    state->pending = calloc((size_t)state->pending_max, sizeof(*state->pending));
    if (!state->pending)
        return disti_fail(DIST_ERR_NO_MEMORY, "tcp: no memory for %d callers", state->pending_max);
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

/* A free slot; if there is none, the caller who has been silent for longest must go. */
static int pending_slot(struct tcp_state *state)
{
    int oldest = 0;

    for (int i = 0; i < state->pending_max; i++) {
        if (state->pending[i].fd < 0)
            return i;
        if (state->pending[i].deadline < state->pending[oldest].deadline)
            oldest = i;
    }
    pending_drop(state, &state->pending[oldest]);
    return oldest;
}

/* Shows the caller out; the first of them are told of as warnings. */
static void pending_refuse(struct tcp_state *state, struct tcp_pending *pending, const char *why)
{
    char text[TCP_TEXT];

    disti_tcp_endpoint_text(&pending->caller, text, sizeof(text));
    disti_log_line(++state->refusals <= ACCEPT_REFUSALS ? DIST_LOG_WARN : DIST_LOG_INFO,
                   "rank %d refuses a caller at %s: %s", state->rank, text, why);
    pending_drop(state, pending);
}

/* The caller says that he is a rank of this job: he gets a nonce, for which he has to show that. */
static void pending_challenge(struct tcp_state *state, struct tcp_pending *pending)
{
    struct disti_tcp_hello hello;

    if (!disti_tcp_hello_valid(state, pending->hello, DISTI_TCP_CALL, &hello)) {
        pending_refuse(state, pending, "it is not a rank of this job");
        return;
    }
    pending->challenged = true;
    pending->bytes = 0;
    if (!disti_nonce(pending->nonce) ||
        !disti_tcp_greet(state, pending->fd, pending->tls, (int)hello.from, hello.socket,
                         DISTI_TCP_CHALLENGE, pending->nonce, NULL))
        pending_drop(state, pending);
}

/* The proof is there: the caller is a rank of this job, or is shown out. */
static void pending_check(struct tcp_state *state, struct tcp_pending *pending)
{
    struct disti_tcp_hello hello;

    if (!disti_tcp_hello_valid(state, pending->hello, DISTI_TCP_PROOF, &hello)) {
        pending_refuse(state, pending, "it sent what no rank sends");
    } else if (!disti_tcp_hello_proved(state, pending->tls, pending->hello, pending->nonce)) {
        pending_refuse(state, pending, "it does not prove that it has the world's key");
    } else {
        state->pending_count--;
        disti_tcp_conn_adopt(state, pending->fd, pending->tls, &hello, pending->nonce);
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
        if (got < 0 && pending->tls && errno == EPROTO) {
            pending_refuse(state, pending, disti_tls_why(pending->tls));
            break;
        }
        if (got <= 0) {
            pending_drop(state, pending);
            break;
        }
        pending->bytes += (size_t)got;
        if (pending->bytes < sizeof(pending->hello))
            continue;
        if (pending->challenged) {
            pending_check(state, pending);
            break;
        }
        pending_challenge(state, pending);
    }
    return 1;
}

/* Long enough for a rank that computes; with its first words it would come again anyway. */
static int accept_patience_ms(const struct tcp_state *state)
{
    return state->timeout_ms < ACCEPT_PATIENCE_MS ? state->timeout_ms : ACCEPT_PATIENCE_MS;
}

static void accept_one(struct tcp_state *state, int fd, const struct sockaddr_storage *caller)
{
    int slot = pending_slot(state);
    struct tcp_pending *pending = &state->pending[slot];
    struct disti_tls *tls = state->tls ? disti_tls_accept(state->tls, fd) : NULL;

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

/* No file descriptor or no memory is left: nobody can be let in before the next tick. */
static void accept_back_off(struct tcp_state *state)
{
    state->accepting = false;
    state->no_accept = true;
    disti_tcp_tick_on(state, true);
    if (!state->warned)
        disti_notice("rank %d cannot accept connections: %s%s", state->rank, strerror(errno),
                     errno == EMFILE ? "; raise the limit on open files (ulimit -n)" : "");
    state->warned = true;
}

/*
 * No descriptor is left for a caller: the oldest who has not said what a rank would say goes, if he
 * has had the time for it. False: there is none.
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
    pending_refuse(state, oldest, "it said nothing, and no file descriptor is left for others");
    return true;
}

/* True: there may be more. */
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
            accept_back_off(state);
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

/* This rank may have computed: what has come meanwhile counts, and one step gets time for the next.
 */
static void pending_expire(struct tcp_state *state, int slot)
{
    struct tcp_pending *pending = &state->pending[slot];
    const bool challenged = pending->challenged;

    disti_tcp_pending_event(state, slot);
    if (pending->fd < 0)
        return;
    if (pending->challenged != challenged)
        pending->deadline = disti_deadline_ms(accept_patience_ms(state));
    else
        pending_refuse(state, pending,
                       pending->tls && !disti_tls_is_up(pending->tls)
                           ? "its TLS handshake did not end in time"
                       : challenged ? "its proof did not come in time"
                                    : "it did not say who it is");
}

void disti_tcp_pending_tick(struct tcp_state *state)
{
    if (state->no_accept) {
        state->no_accept = false;
        state->accepting = true;
    }
    for (int i = 0; i < state->pending_max; i++) {
        if (state->pending[i].fd >= 0 && disti_expired(state->pending[i].deadline))
            pending_expire(state, i);
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

/* Finding a machine that answers no more, and sparing one whose program computes. */

/*
 * What a connection shows, by the kernel of the peer:
 *
 *      all is acknowledged               keepalive asks now and then
 *      data are under way                acknowledged, or sent repeatedly
 *      the peer's window is zero         acknowledges each probe: its program takes its time
 *
 * TCP_USER_TIMEOUT would end the third too, and with it messages whose sends have ended well;
 * without it the second goes on for a quarter of an hour. So the second is watched here: what has
 * been repeated, or probed, and is not answered for the group's timeout.
 */

/* Looks in the time that ends a connection, and the bounds of the time between two. */
#define SILENCE_LOOKS 16
#define SILENCE_LEAST_MS 50
#define SILENCE_MOST_MS 1000
/* Linux 6.15: the longest time between two probes or repetitions, at least 1 s. */
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

static int silence_between(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

void disti_tcp_silence_tune(const struct tcp_state *state, int fd)
{
    int one = 1, probes = 4;
    int idle = silence_between(state->timeout_ms / 3000, 1, 32767);
    int interval = silence_between(state->timeout_ms / 6000, 1, 32767);
    int apart = silence_between(state->timeout_ms / 4, 1000, 120000);

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &apart, sizeof(apart));
}

void disti_tcp_silence_leave(int fd)
{
    int apart = 120000;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &apart, sizeof(apart));
}

static void silence_extend(const struct tcp_state *state, struct tcp_conn *conn, int64_t more_ns)
{
    if (conn->fd >= 0)
        disti_tcp_silence_tune(state, conn->fd);
    if (conn->number == 0 && conn->deadline)
        conn->deadline += more_ns;
}

void disti_tcp_silence_extend(struct tcp_state *state)
{
    const int64_t more_ms = state->config->timeout_ms - state->timeout_ms;

    state->timeout_ms = state->config->timeout_ms;
    for (int rank = 0; rank < state->world_size; rank++) {
        struct tcp_peer *peer = state->peers[rank];

        for (int number = 0; peer && number < peer->conns; number++)
            silence_extend(state, &peer->conn[number], more_ms * 1000000);
    }
}

/* Has the peer's machine left this connection unanswered for the group's timeout? */
static bool silence_too_long(const struct tcp_state *state, struct tcp_conn *conn, int64_t now)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);
    int64_t heard;

    if (getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &size) ||
        (info.tcpi_retransmits == 0 && info.tcpi_probes == 0)) {
        conn->silent_ns = 0;
        return false;
    }
    heard = now - (int64_t)info.tcpi_last_ack_recv * 1000000;
    if (!conn->silent_ns)
        conn->silent_ns = now;
    else if (heard > conn->silent_ns)
        conn->silent_ns = heard;
    return now - conn->silent_ns > (int64_t)state->timeout_ms * 1000000;
}

/* One probe or repetition may be under way to a peer that is well. */
#define SILENCE_SHOWS 2

bool disti_tcp_silence_shows(const struct tcp_conn *conn)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    return disti_tcp_conn_is_open(conn) &&
           getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           info.tcpi_retransmits + info.tcpi_probes >= SILENCE_SHOWS;
}

bool disti_tcp_silence_stuck(const struct tcp_conn *conn, struct tcp_stuck *stuck_p)
{
    struct tcp_info info = {0};
    socklen_t size = sizeof(info);

    if (!disti_tcp_conn_is_open(conn) ||
        getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &size) ||
        (info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0) ||
        (info.tcpi_retransmits + info.tcpi_probes < SILENCE_SHOWS &&
         (info.tcpi_unacked == 0 || info.tcpi_backoff < SILENCE_SHOWS)))
        return false;
    *stuck_p = (struct tcp_stuck){.packet_bytes = info.tcpi_snd_mss,
                                  .waiting_bytes = info.tcpi_notsent_bytes,
                                  .acked_bytes = info.tcpi_bytes_acked,
                                  .silent_ms = info.tcpi_last_ack_recv};
    return true;
}

static void silence_peer(struct tcp_state *state, struct tcp_peer *peer, int64_t now)
{
    if (!disti_tcp_conn_is_open(peer->conn) ||
        (!disti_tcp_has_sends(peer) && !disti_tcp_has_receives(peer)))
        return;
    for (int number = 0; number < peer->conns; number++) {
        struct tcp_conn *conn = &peer->conn[number];

        if (disti_tcp_conn_is_open(conn) && silence_too_long(state, conn, now)) {
            disti_tcp_lose(state, peer, ETIMEDOUT, NULL);
            return;
        }
    }
}

void disti_tcp_silence(struct tcp_state *state)
{
    int64_t now = disti_now_ns();
    struct tcp_peer *next;

    if (now < state->silence_ns)
        return;
    state->silence_ns = now + 1000000LL * silence_between(state->timeout_ms / SILENCE_LOOKS,
                                                          SILENCE_LEAST_MS, SILENCE_MOST_MS);
    for (struct tcp_peer *peer = state->list; peer; peer = next) {
        next = peer->next;
        silence_peer(state, peer, now);
    }
}
