/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a peer's further sockets: calling, greeting, being called, ending. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* An interface that does not answer within is left out. */
#define RAILS_CALL_MS 3000
/* After the end of one socket the others have so long to end as well. */
#define RAILS_END_MS 500
/* Not much more than this waits in a socket to be sent: else a slow one would take too much. */
#define RAILS_UNSENT (256 << 10)

/* Names the interfaces that cannot reach this peer, each of them once. */
static void rails_left_out(struct tcp_state *state, const struct tcp_peer *peer,
                           const struct disti_tcp_way *ways, int count)
{
    unsigned used = 0;

    for (int i = 0; i < count; i++)
        used |= 1u << ways[i].local;
    for (int i = 0; i < state->interfaces; i++) {
        if ((used | state->left_out) >> i & 1)
            continue;
        state->left_out |= 1u << i;
        disti_info("rank %d leaves out interface %s, which does not reach rank %d", state->rank,
                   state->local[i].name, peer->rank);
    }
}

static struct tcp_rails *rails_new(void)
{
    struct tcp_rails *rails = calloc(1, sizeof(*rails));

    for (int i = 0; rails && i < DISTI_TCP_SOCKETS; i++) {
        rails->rail[i].fd = -1;
        rails->rail[i].in.stash = rails->rail[i].in.small;
    }
    return rails;
}

dist_status disti_tcp_rails_open(struct tcp_state *state, struct tcp_peer *peer,
                                 const struct disti_tcp_address *address)
{
    struct disti_tcp_way ways[DISTI_TCP_INTERFACES];
    int count = disti_tcp_ways(state->local, state->interfaces, address, state->routed, ways);
    int wanted = disti_tcp_sockets(state->sockets, address->sockets, count);

    if (address->at[0].machine != state->local[0].endpoint.machine)
        rails_left_out(state, peer, ways, count);
    if (wanted == 1)
        return DIST_OK;
    peer->rails = rails_new();
    if (!peer->rails)
        return disti_fail(DIST_ERR_NO_MEMORY, "tcp: no memory for %d sockets", wanted);
    peer->rails->address = *address;
    peer->rails->way_count = count;
    peer->rails->wanted = wanted;
    memcpy(peer->rails->ways, ways, sizeof(ways));
    return DIST_OK;
}

void disti_tcp_rail_writable(struct tcp_state *state, struct tcp_rail *rail, bool writable)
{
    if (rail->phase != TCP_PHASE_UP || rail->writable == writable)
        return;
    rail->writable = writable;
    state->blocked += writable ? -1 : 1;
}

static void rail_close(struct tcp_state *state, struct tcp_rail *rail)
{
    disti_tcp_rail_writable(state, rail, true);
    disti_tcp_close(rail->fd, rail->out.zerocopy);
    rail->fd = -1;
    rail->phase = TCP_PHASE_LOST;
    rail->readable = rail->resume = false;
}

/* It never came to carry anything: the pair goes without. */
static void rail_leave_out(struct tcp_state *state, struct tcp_peer *peer, struct tcp_rail *rail,
                           int cause)
{
    disti_info("rank %d has no socket %d of those with rank %d: %s", state->rank,
               (int)(rail - peer->rails->rail), peer->rank,
               cause ? strerror(cause) : "the peer refused it");
    rail_close(state, rail);
}

static void rail_up(struct tcp_state *state, struct tcp_peer *peer, struct tcp_rail *rail)
{
    int unsent = RAILS_UNSENT;

    rail->phase = TCP_PHASE_UP;
    rail->readable = rail->writable = true;
    disti_tcp_congestion_choose(state, rail->fd);
    setsockopt(rail->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    rail->out.zerocopy = disti_tcp_zerocopy_open(state, rail->fd);
    if (peer->rails->up++ == 0)
        setsockopt(peer->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    disti_tcp_list(state, peer);
}

static void rail_read_hello(struct tcp_state *state, struct tcp_peer *peer, int number)
{
    struct tcp_rail *rail = &peer->rails->rail[number];
    struct disti_tcp_hello hello;

    while (rail->hello_bytes < sizeof(rail->hello)) {
        ssize_t got = recv(rail->fd, rail->hello + rail->hello_bytes,
                           sizeof(rail->hello) - rail->hello_bytes, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            return;
        if (got <= 0) {
            rail_leave_out(state, peer, rail, got ? errno : 0);
            return;
        }
        rail->hello_bytes += (size_t)got;
    }
    if (disti_tcp_hello_valid(state, rail->hello, &hello) && hello.socket == number &&
        hello.from == (uint32_t)peer->rank)
        rail_up(state, peer, rail);
    else
        rail_leave_out(state, peer, rail, EPROTO);
}

/* The connection is there, or has failed to come. */
static void rail_called(struct tcp_state *state, struct tcp_peer *peer, int number)
{
    struct tcp_rail *rail = &peer->rails->rail[number];
    int failed = 0;
    socklen_t size = sizeof(failed);

    if (getsockopt(rail->fd, SOL_SOCKET, SO_ERROR, &failed, &size))
        failed = errno;
    if (!failed && !disti_tcp_greet(state, rail->fd, peer->rank, number))
        failed = errno ? errno : EIO;
    if (failed) {
        rail_leave_out(state, peer, rail, failed);
        return;
    }
    rail->phase = TCP_PHASE_GREETING;
    rail->hello_bytes = 0;
    rail_read_hello(state, peer, number);
}

/* A socket that goes out by this interface. 0 or errno. */
static int rail_socket(const struct tcp_state *state, const struct disti_tcp_local *local,
                       struct tcp_rail *rail)
{
    struct disti_tcp_endpoint source = local->endpoint;
    struct sockaddr_storage address;
    socklen_t length;
    int one = 1;

    source.port = 0;
    length = disti_tcp_sockaddr(&source, state->scope, &address);
    rail->fd = disti_descriptor_own(
        socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (rail->fd < 0)
        return errno;
    disti_tcp_tune(state, rail->fd);
    disti_tcp_congestion(state, rail->fd);
    setsockopt(rail->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
    return bind(rail->fd, (struct sockaddr *)&address, length) ? errno : 0;
}

static void rail_call(struct tcp_state *state, struct tcp_peer *peer, int number)
{
    struct tcp_rails *rails = peer->rails;
    struct tcp_rail *rail = &rails->rail[number];
    const struct disti_tcp_way *way = &rails->ways[number % rails->way_count];
    struct sockaddr_storage address;
    socklen_t length = disti_tcp_sockaddr(&rails->address.at[way->remote], state->scope, &address);
    int failed = rail_socket(state, &state->local[way->local], rail);
    int result = 0;

    rail->phase = TCP_PHASE_CALLING;
    rail->deadline =
        disti_deadline_ms(state->timeout_ms < RAILS_CALL_MS ? state->timeout_ms : RAILS_CALL_MS);
    if (!failed) {
        result = connect(rail->fd, (struct sockaddr *)&address, length);
        if (result && errno != EINPROGRESS && errno != EINTR)
            failed = errno;
        else if (!disti_tcp_watch(state, rail->fd, TCP_EVENT_RAIL + number, peer->rank, false))
            failed = errno;
    }
    if (failed)
        rail_leave_out(state, peer, rail, failed);
    else if (result == 0)
        rail_called(state, peer, number);
}

void disti_tcp_rails_call(struct tcp_state *state, struct tcp_peer *peer)
{
    for (int number = 1; number < peer->rails->wanted; number++) {
        if (peer->rails->rail[number].phase == TCP_PHASE_IDLE)
            rail_call(state, peer, number);
    }
    disti_tcp_list(state, peer);
    disti_tcp_tick_on(state, true);
}

void disti_tcp_rails_adopt(struct tcp_state *state, int fd, int rank, int number)
{
    struct tcp_peer *peer = disti_tcp_peer(state, rank);
    bool welcome =
        peer && peer->phase == TCP_PHASE_UP && (!state->sockets || number < state->sockets);
    struct tcp_rail *rail;

    if (welcome && !peer->rails)
        peer->rails = rails_new();
    if (!welcome || !peer->rails || peer->rails->rail[number].phase != TCP_PHASE_IDLE) {
        disti_descriptor_close(fd);
        return;
    }
    rail = &peer->rails->rail[number];
    rail->fd = fd;
    rail->phase = TCP_PHASE_GREETING;
    disti_tcp_tune(state, fd);
    if (disti_tcp_watch(state, fd, TCP_EVENT_RAIL + number, rank, true) &&
        disti_tcp_greet(state, fd, rank, number))
        rail_up(state, peer, rail);
    else
        rail_leave_out(state, peer, rail, errno);
}

void disti_tcp_rail_event(struct tcp_state *state, struct tcp_peer *peer, int number,
                          uint32_t events)
{
    struct tcp_rail *rail = &peer->rails->rail[number];

    if (rail->phase == TCP_PHASE_CALLING && events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) {
        rail_called(state, peer, number);
    } else if (rail->phase == TCP_PHASE_GREETING) {
        rail_read_hello(state, peer, number);
    } else if (rail->phase == TCP_PHASE_UP) {
        if (events & EPOLLERR && rail->out.zerocopy &&
            disti_tcp_zerocopy_reap(state, peer, rail->fd, rail->out.zerocopy))
            events &= ~(uint32_t)EPOLLERR;
        if (events & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP))
            rail->readable = true;
        if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
            disti_tcp_rail_writable(state, rail, true);
        disti_tcp_list(state, peer);
    }
}

void disti_tcp_rails_end(struct tcp_state *state, struct tcp_peer *peer, int cause)
{
    struct tcp_rails *rails = peer->rails;

    rails->cause = cause;
    if (!rails->deadline)
        rails->deadline = disti_deadline_ms(RAILS_END_MS);
    disti_tcp_list(state, peer);
    disti_tcp_tick_on(state, true);
}

void disti_tcp_rail_ended(struct tcp_state *state, struct tcp_peer *peer, struct tcp_rail *rail,
                          int cause)
{
    if (rail->phase != TCP_PHASE_UP)
        return;
    rail_close(state, rail);
    peer->rails->up--;
    peer->readable = true;
    disti_tcp_rails_end(state, peer, cause);
}

bool disti_tcp_rails_busy(const struct tcp_peer *peer)
{
    for (int number = 1; number < peer->rails->wanted; number++) {
        if (peer->rails->rail[number].phase == TCP_PHASE_CALLING)
            return true;
    }
    return peer->rails->deadline != 0;
}

bool disti_tcp_rails_tick(struct tcp_state *state, struct tcp_peer *peer)
{
    struct tcp_rails *rails = peer->rails;

    for (int number = 1; number < rails->wanted; number++) {
        struct tcp_rail *rail = &rails->rail[number];

        if (rail->phase == TCP_PHASE_CALLING && disti_expired(rail->deadline))
            rail_leave_out(state, peer, rail, ETIMEDOUT);
    }
    if (rails->deadline && disti_expired(rails->deadline)) {
        /* What has come since the last look may be the end of all of them. */
        disti_tcp_receive(state, peer);
        disti_tcp_lose(state, peer, rails->cause,
                       rails->cause ? NULL : "one of its connections has ended");
    }
    return peer->phase == TCP_PHASE_UP && disti_tcp_rails_busy(peer);
}

void disti_tcp_rails_close(struct tcp_state *state, struct tcp_peer *peer)
{
    for (int number = 1; number < DISTI_TCP_SOCKETS; number++)
        rail_close(state, &peer->rails->rail[number]);
    peer->rails->up = 0;
    peer->rails->deadline = 0;
}

void disti_tcp_rails_free(struct tcp_rails *rails)
{
    for (int number = 1; number < DISTI_TCP_SOCKETS; number++) {
        disti_tcp_incoming_clear(&rails->rail[number].in);
        free(rails->rail[number].out.zerocopy);
    }
    free(rails);
}
