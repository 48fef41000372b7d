/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a connection: calling, greeting, being called, losing. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* The higher rank of a pair waits for so many ticks for the lower one's call. */
#define PEER_PATIENCE 2

struct tcp_peer *disti_tcp_peer(struct tcp_state *state, int rank)
{
    struct tcp_peer *peer;

    if (rank < 0 || rank >= state->world_size || rank == state->rank)
        return NULL;
    peer = state->peers[rank];
    if (!peer) {
        peer = calloc(1, sizeof(*peer));
        if (!peer)
            return NULL;
        peer->rank = rank;
        peer->match.rank = rank;
        peer->match.set = &state->unexpected;
        peer->fd = -1;
        peer->in.stash = peer->in.small;
        state->peers[rank] = peer;
    }
    return peer;
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

void disti_tcp_set_writable(struct tcp_state *state, struct tcp_peer *peer, bool writable)
{
    if (peer->phase != TCP_PHASE_UP || peer->writable == writable)
        return;
    peer->writable = writable;
    state->blocked += writable ? -1 : 1;
}

dist_status disti_tcp_report(const struct tcp_state *state, const struct tcp_peer *peer)
{
    char address[TCP_TEXT];

    disti_tcp_endpoint_text(&peer->endpoint, address, sizeof(address));
    if (peer->leaving)
        return disti_fail(DIST_ERR_PEER_LOST,
                          "rank %d waits for rank %d (%s), which has left the group; do all ranks "
                          "make the same calls?",
                          state->rank, peer->rank, address);
    return disti_fail(DIST_ERR_PEER_LOST, "rank %d lost rank %d (%s): %s; see that rank's output",
                      state->rank, peer->rank, address,
                      peer->reason  ? peer->reason
                      : peer->cause ? strerror(peer->cause)
                                    : "it closed the connection without a goodbye");
}

void disti_tcp_lose(struct tcp_state *state, struct tcp_peer *peer, int cause, const char *reason)
{
    if (peer->phase == TCP_PHASE_LOST)
        return;
    disti_tcp_set_writable(state, peer, true);
    /* Before a request ends nothing reads its memory any more. */
    disti_tcp_close(peer->fd, peer->zerocopy);
    if (peer->rails)
        disti_tcp_rails_close(state, peer);
    peer->fd = -1;
    peer->phase = TCP_PHASE_LOST;
    if (peer->send_status == DIST_OK) {
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

static void peer_up(struct tcp_state *state, struct tcp_peer *peer, uint64_t credit)
{
    peer->phase = TCP_PHASE_UP;
    peer->readable = peer->writable = true;
    disti_tcp_congestion_choose(state, peer->fd);
    peer->zerocopy = disti_tcp_zerocopy_open(state, peer->fd);
    peer->stripes.out.zerocopy = peer->zerocopy;
    disti_tcp_credit_open(state, peer, credit);
    disti_tcp_list(state, peer);
}

/* Has the peer ended a connection before it answered? It knew nobody, or was being called itself.
 */
static bool peer_hung_up(int cause)
{
    return cause == 0 || cause == ECONNRESET || cause == EPIPE;
}

/*
 * The call has failed. If the peer is there and has only hung up it is called again, until the time
 * is over: it may have had too many callers, or have waited for a hello for too long.
 */
static void peer_call_failed(struct tcp_state *state, struct tcp_peer *peer, int cause,
                             const char *reason)
{
    if (!peer_hung_up(cause) || disti_expired(peer->deadline)) {
        disti_tcp_lose(state, peer, cause, reason);
        return;
    }
    disti_descriptor_close(peer->fd);
    peer->fd = -1;
    peer->phase = TCP_PHASE_IDLE;
    peer->ticks = 0;
}

static void peer_read_hello(struct tcp_state *state, struct tcp_peer *peer)
{
    struct disti_tcp_hello hello;

    while (peer->hello_bytes < sizeof(peer->hello)) {
        ssize_t got = recv(peer->fd, peer->hello + peer->hello_bytes,
                           sizeof(peer->hello) - peer->hello_bytes, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            peer_call_failed(state, peer, got ? errno : 0,
                             got ? NULL : "it ended the connection during the handshake");
            return;
        }
        peer->hello_bytes += (size_t)got;
    }
    if (!disti_tcp_hello_valid(state, peer->hello, &hello) || hello.socket != 0 ||
        hello.from != (uint32_t)peer->rank) {
        disti_tcp_lose(state, peer, 0, "another program answers at its address");
        return;
    }
    peer_up(state, peer, hello.credit);
    if (peer->rails)
        disti_tcp_rails_call(state, peer);
}

/* The connection is there, or has failed to come. */
static void peer_called(struct tcp_state *state, struct tcp_peer *peer)
{
    int failed = 0;
    socklen_t size = sizeof(failed);

    if (getsockopt(peer->fd, SOL_SOCKET, SO_ERROR, &failed, &size))
        failed = errno;
    if (!failed && !disti_tcp_greet(state, peer->fd, peer->rank, 0))
        failed = errno ? errno : EIO;
    if (failed) {
        peer_call_failed(state, peer, failed, NULL);
        return;
    }
    peer->phase = TCP_PHASE_GREETING;
    peer->hello_bytes = 0;
    /* The peer was there in time, only this rank has not looked. */
    if (disti_expired(peer->deadline))
        peer->deadline = disti_deadline_ms(state->timeout_ms);
    peer_read_hello(state, peer);
}

void disti_tcp_call(struct tcp_state *state, struct tcp_peer *peer)
{
    struct sockaddr_storage address;
    socklen_t length = disti_tcp_sockaddr(&peer->endpoint, state->scope, &address);
    int result;

    if (peer->phase != TCP_PHASE_IDLE)
        return;
    if (!peer->deadline)
        peer->deadline = disti_deadline_ms(state->timeout_ms);
    disti_tcp_tick_on(state, true);
    peer->fd = disti_descriptor_own(
        socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (peer->fd < 0) {
        disti_tcp_lose(state, peer, errno, NULL);
        return;
    }
    disti_tcp_tune(state, peer->fd);
    disti_tcp_congestion(state, peer->fd);
    peer->phase = TCP_PHASE_CALLING;
    result = connect(peer->fd, (struct sockaddr *)&address, length);
    if (result && errno != EINPROGRESS && errno != EINTR)
        disti_tcp_lose(state, peer, errno, NULL);
    else if (!disti_tcp_watch(state, peer->fd, TCP_EVENT_PEER, peer->rank, false))
        disti_tcp_lose(state, peer, errno, NULL);
    else if (result == 0)
        peer_called(state, peer);
}

void disti_tcp_adopt(struct tcp_state *state, int fd, const struct disti_tcp_hello *hello)
{
    int rank = (int)hello->from;
    struct tcp_peer *peer = disti_tcp_peer(state, rank);
    bool calling = peer && (peer->phase == TCP_PHASE_CALLING || peer->phase == TCP_PHASE_GREETING);

    if (hello->socket) {
        disti_tcp_rails_adopt(state, fd, rank, hello->socket);
        return;
    }
    if (!peer || peer->phase == TCP_PHASE_UP || peer->phase == TCP_PHASE_LOST ||
        (calling && state->rank < rank)) {
        disti_descriptor_close(fd);
        return;
    }
    if (calling)
        disti_descriptor_close(peer->fd);
    peer->fd = fd;
    peer->phase = TCP_PHASE_GREETING;
    disti_tcp_tune(state, fd);
    if (disti_tcp_watch(state, fd, TCP_EVENT_PEER, rank, true) &&
        disti_tcp_greet(state, fd, rank, 0))
        peer_up(state, peer, hello->credit);
    else
        disti_tcp_lose(state, peer, errno, NULL);
}

int disti_tcp_peer_event(struct tcp_state *state, struct tcp_peer *peer, uint32_t events)
{
    switch (peer->phase) {
    case TCP_PHASE_CALLING:
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
            peer_called(state, peer);
        break;
    case TCP_PHASE_GREETING:
        peer_read_hello(state, peer);
        break;
    case TCP_PHASE_UP:
        /*
         * The error queue has news of sends, or had when the event was made. A connection that is
         * broken has hung up as well.
         */
        if (events & EPOLLERR && peer->zerocopy &&
            disti_tcp_zerocopy_reap(state, peer, peer->fd, peer->zerocopy))
            events &= ~(uint32_t)EPOLLERR;
        if (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))
            peer->readable = true;
        if (events & (EPOLLRDHUP | EPOLLHUP))
            peer->hung_up = true;
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
            disti_tcp_set_writable(state, peer, true);
        disti_tcp_list(state, peer);
        break;
    case TCP_PHASE_IDLE:
    case TCP_PHASE_LOST:
        break;
    }
    return 1;
}

bool disti_tcp_peer_tick(struct tcp_state *state, struct tcp_peer *peer)
{
    if (peer->phase == TCP_PHASE_CALLING || peer->phase == TCP_PHASE_GREETING) {
        if (disti_expired(peer->deadline))
            disti_tcp_lose(state, peer, ETIMEDOUT, "it did not answer the call in time");
    } else if (peer->phase == TCP_PHASE_IDLE && ++peer->ticks >= PEER_PATIENCE) {
        disti_tcp_call(state, peer);
    } else if (peer->phase == TCP_PHASE_UP && peer->rails) {
        return disti_tcp_rails_tick(state, peer);
    }
    return peer->phase != TCP_PHASE_UP && peer->phase != TCP_PHASE_LOST;
}
