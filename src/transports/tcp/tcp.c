/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport: its slots, and the turns that its peers take. */
#include "base/settings/config.h"

#include "base/descriptor.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/thread.h"
#include "transports/tcp/state.h"
#include "transports/tcp/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TCP_BUFFER_MAX ((size_t)1 << 30)
#define TCP_EVENTS 64

static dist_status tcp_probe(char *reason, size_t reason_size)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        snprintf(reason, reason_size, "no TCP socket can be made: %s", strerror(errno));
        return DIST_ERR_UNSUPPORTED;
    }
    close(fd);
    return DIST_OK;
}

static dist_status tcp_settings(struct tcp_state *state)
{
    dist_status status = disti_tcp_credit_setting(state);
    int checksum = 0;

    if (status == DIST_OK)
        status = disti_env_bytes("DIST_TCP_BUFFER", 0, &state->socket_bytes);
    if (status == DIST_OK && state->socket_bytes > TCP_BUFFER_MAX)
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT, "DIST_TCP_BUFFER exceeds 1G: give less");
    if (status == DIST_OK)
        status = disti_tcp_zerocopy_setting(state);
    if (status == DIST_OK)
        status = disti_variable_int("DIST_CHECKSUM", 0, &checksum);
    state->checksum = checksum;
    if (status == DIST_OK && disti_env("DIST_TCP_SOCKETS"))
        status = disti_variable_int("DIST_TCP_SOCKETS", 0, &state->sockets);
    return status;
}

static dist_status tcp_memory(struct tcp_state *state)
{
    state->peers = calloc((size_t)state->world_size, sizeof(struct tcp_peer *));
    state->addresses = calloc((size_t)state->world_size, sizeof(*state->addresses));
    if (posix_memalign((void **)&state->buffer, 64, TCP_BUFFER_BYTES))
        state->buffer = NULL;
    if (!state->peers || !state->addresses || !state->buffer)
        return disti_fail(DIST_ERR_NO_MEMORY, "tcp: no memory for %d peers", state->world_size);
    return DIST_OK;
}

static bool tcp_watch_listeners(struct tcp_state *state)
{
    for (int i = 0; i < state->interfaces; i++) {
        if (!disti_tcp_watch(state, state->listeners[i], TCP_EVENT_LISTENER, i, false))
            return false;
        disti_tcp_congestion(state, state->listeners[i]);
    }
    return true;
}

static dist_status tcp_open(void *instance, const struct dist_transport_config *config)
{
    struct tcp_state *state = instance;
    dist_status status;

    state->open = true;
    state->config = config;
    state->rank = config->rank;
    state->world_size = config->world_size;
    state->timeout_ms = config->timeout_ms;
    state->job = disti_hash_text(DISTI_HASH_START, config->job);
    disti_secret_set_bytes(&state->key, config->secret, config->secret_bytes);
    state->accepting = true;
    state->epoll = state->timer = -1;
    status = tcp_settings(state);
    if (status == DIST_OK)
        status = disti_tls_open(&state->tls);
    if (status == DIST_OK)
        status = tcp_memory(state);
    if (status == DIST_OK)
        status = disti_tcp_listen(state, config->bind_host);
    if (status == DIST_OK)
        disti_tcp_interfaces(state);
    if (status == DIST_OK)
        status = disti_tcp_pending_open(state);
    if (status == DIST_OK)
        status = disti_tcp_congestion_open(state);
    if (status != DIST_OK)
        return status;
    state->epoll = disti_descriptor_raise(epoll_create1(EPOLL_CLOEXEC));
    state->timer =
        disti_descriptor_raise(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
    if (state->epoll < 0 || state->timer < 0 || !tcp_watch_listeners(state) ||
        !disti_tcp_watch(state, state->timer, TCP_EVENT_TIMER, 0, false))
        return disti_fail_call("epoll_create1 or timerfd_create",
                               "tcp: rank %d cannot watch its connections", state->rank);
    return DIST_OK;
}

static dist_status tcp_address(void *instance, void *blob, size_t *size_p)
{
    struct tcp_state *state = instance;

    struct disti_tcp_address address = {.interfaces = state->interfaces, .sockets = state->sockets};

    for (int i = 0; i < state->interfaces; i++)
        address.endpoint[i] = state->local[i].endpoint;
    *size_p = disti_tcp_address_encode(&address, blob);
    return DIST_OK;
}

/*
 * Both ranks of a pair come to the same answer. A loopback address serves only those who
 * share the machine and its network namespace.
 */
static dist_status tcp_reach(void *instance, const void *blob, size_t size,
                             struct dist_reach *reach_p)
{
    struct tcp_state *state = instance;
    const struct disti_tcp_endpoint *here = &state->local[0].endpoint;
    struct disti_tcp_address there;
    bool near;

    if (!disti_tcp_address_decode(blob, size, &there) || there.endpoint[0].family != here->family)
        return DIST_ERR_UNSUPPORTED;
    near = there.endpoint[0].machine == here->machine;
    if (!near && (disti_tcp_loopback(&there.endpoint[0]) || disti_tcp_loopback(here)))
        return DIST_ERR_UNSUPPORTED;
    reach_p->latency_ns = near ? 10e3 : 20e3;
    reach_p->bytes_per_second = near ? 3e9 : 2e9;
    return DIST_OK;
}

/* A peer takes memory with the first message: most ranks exchange messages with few. */
static bool tcp_note_address(struct tcp_state *state, int rank, const void *blob, size_t size)
{
    struct tcp_address *address = malloc(sizeof(*address) + size);

    if (!address)
        return false;
    address->size = size;
    memcpy(address->blob, blob, size);
    free(state->addresses[rank]);
    state->addresses[rank] = address;
    return true;
}

static dist_status tcp_connect(void *instance, int rank, const void *blob, size_t size)
{
    struct tcp_state *state = instance;
    struct disti_tcp_address address;

    if (rank < 0 || rank >= state->world_size || rank == state->rank)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "tcp: rank %d cannot be connected with rank %d", state->rank, rank);
    if (!disti_tcp_address_decode(blob, size, &address))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "tcp: rank %d gave no tcp address", rank);
    if (!tcp_note_address(state, rank, blob, size) ||
        (state->peers[rank] && !disti_tcp_plan(state, state->peers[rank], &address)))
        return disti_fail(DIST_ERR_NO_MEMORY, "tcp: no memory for rank %d", rank);
    return DIST_OK;
}

/* The peer of a request, on its way to being connected; NULL: the request has failed. */
static struct tcp_peer *tcp_request_peer(struct tcp_state *state, struct dist_request *request)
{
    struct tcp_peer *peer = NULL;

    if (request->peer >= 0 && request->peer < state->world_size)
        peer = disti_tcp_peer(state, request->peer);
    if (!peer || !peer->conn->endpoint.family) {
        request->status =
            disti_fail(DIST_ERR_INVALID_ARGUMENT, "tcp: rank %d has no address of rank %d",
                       state->rank, request->peer);
        return NULL;
    }
    if (peer->rank > state->rank)
        disti_tcp_conn_call(state, peer->conn);
    if (peer->conn->state < TCP_CONN_UP)
        disti_tcp_tick_on(state, true);
    return peer;
}

static void tcp_send(void *instance, struct dist_request *request)
{
    struct tcp_peer *peer = tcp_request_peer(instance, request);
    int held = disti_cancel_hold();

    if (peer)
        disti_tcp_send(instance, peer, request);
    disti_cancel_let(held);
}

static void tcp_recv(void *instance, struct dist_request *request)
{
    struct tcp_state *state = instance;
    struct tcp_peer *peer = tcp_request_peer(state, request);
    const struct dist_sink *sink = &request->sink;
    size_t element = sink->src ? dist_dtype_size(sink->dtype) : 1;
    int held;

    if (!peer)
        return;
    held = disti_cancel_hold();
    if (sink->bytes < request->envelope.bytes || !element || request->envelope.bytes % element)
        request->status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                                     "tcp: a message of %llu bytes does not fit its sink",
                                     (unsigned long long)request->envelope.bytes);
    else
        disti_tcp_recv(state, peer, request);
    disti_cancel_let(held);
}

/* Looks at all deadlines; the timer stops when there are none. */
static void tcp_tick(struct tcp_state *state)
{
    struct tcp_peer *next;
    bool needed = false;
    uint64_t times;

    (void)!read(state->timer, &times, sizeof(times));
    disti_tcp_pending_tick(state);
    for (struct tcp_peer *peer = state->list; peer; peer = next) {
        next = peer->next;
        if (disti_tcp_peer_tick(state, peer))
            needed = true;
    }
    if (!needed && !state->pending_count)
        disti_tcp_tick_on(state, false);
}

static void tcp_event(struct tcp_state *state, uint64_t data, uint32_t events)
{
    int index = (int)(uint32_t)data, what = (int)(data >> 32);

    if (what == TCP_EVENT_LISTENER)
        state->accepting = true;
    else if (what == TCP_EVENT_PENDING)
        disti_tcp_pending_event(state, index);
    else if (what >= TCP_EVENT_CONN)
        disti_tcp_conn_event(state, &state->peers[index]->conn[what - TCP_EVENT_CONN], events);
}

/* Asks epoll. Returns the number of events, or ERR_SYSTEM. */
static int tcp_poll(struct tcp_state *state)
{
    struct epoll_event events[TCP_EVENTS];
    int count = epoll_wait(state->epoll, events, TCP_EVENTS, 0);
    bool tick = false;

    state->calls = 0;
    if (state->timeout_ms != state->config->timeout_ms)
        disti_tcp_silence_extend(state);
    if (count < 0)
        return errno == EINTR ? 0 : disti_fail_errno(DIST_ERR_SYSTEM, "tcp: epoll failed");
    for (int i = 0; i < count; i++) {
        tick |= events[i].data.u64 >> 32 == TCP_EVENT_TIMER;
        tcp_event(state, events[i].data.u64, events[i].events);
    }
    /* What has come in time is looked at first. */
    if (tick)
        tcp_tick(state);
    disti_tcp_silence(state);
    return count;
}

/*
 * With few peers to look at, trying them costs less than asking epoll and then trying
 * them. Every so many calls epoll is asked all the same, for callers and for the rest.
 */
static int tcp_move(struct tcp_state *state)
{
    bool guess =
        state->listed <= TCP_DIRECT_PEERS && !state->ticking && !state->blocked && !state->pinned;
    struct tcp_peer *next;
    int moved = 0;

    if (!guess || ++state->calls >= TCP_DIRECT_CALLS) {
        int pinned = state->pinned, events = tcp_poll(state);

        if (events < 0)
            return events;
        /* Sends may have ended by what epoll had to say alone. */
        moved += pinned - state->pinned;
    }
    if (state->accepting)
        moved += disti_tcp_accept(state);
    for (struct tcp_peer *peer = state->list; peer; peer = next) {
        next = peer->next;
        moved += disti_tcp_peer_turn(state, peer, guess);
    }
    return moved;
}

static int tcp_progress(void *instance)
{
    int held = disti_cancel_hold();
    int moved = tcp_move(instance);

    disti_cancel_let(held);
    return moved;
}

static int tcp_arm(void *instance)
{
    struct tcp_state *state = instance;

    if (state->accepting)
        return -2;
    for (const struct tcp_peer *peer = state->list; peer; peer = peer->next) {
        if (disti_tcp_peer_can_move(peer))
            return -2;
    }
    /* Edges of what has been read already are taken off, so that the sleep is a sleep. */
    return tcp_poll(state) ? -2 : state->epoll;
}

static void tcp_disarm(void *instance)
{
    (void)instance;
}

static void tcp_close(void *instance)
{
    struct tcp_state *state = instance;

    if (!state->open)
        return;
    if (state->peers && state->buffer)
        disti_tcp_leave(state);
    for (int rank = 0; state->peers && rank < state->world_size; rank++) {
        if (state->peers[rank])
            disti_tcp_peer_free(state->peers[rank]);
        if (state->addresses)
            free(state->addresses[rank]);
    }
    disti_tcp_pending_close(state);
    for (int i = 0; i < state->interfaces; i++)
        disti_descriptor_close(state->listeners[i]);
    if (state->timer >= 0)
        close(state->timer);
    if (state->epoll >= 0)
        close(state->epoll);
    disti_standins_free(&state->standins);
    disti_tls_context_free(state->tls);
    free(state->peers);
    free(state->addresses);
    free(state->buffer);
    state->open = false;
}

/* Writes "; " and why messages to the peer do not get through, or "". */
static void probe_trouble(const struct tcp_peer *peer, const char *address, char *text, size_t size)
{
    struct tcp_stuck stuck;

    text[0] = '\0';
    if (peer->conn->state == TCP_CONN_CALLING)
        snprintf(text, size,
                 "; %s has not answered the connection request: see whether a firewall drops it",
                 address);
    else if (peer->conn->state == TCP_CONN_GREETING)
        snprintf(text, size,
                 "; that process has not accepted the connection to %s: see whether it computes "
                 "outside libdist, or is stopped",
                 address);
    for (int number = 0; !text[0] && number < peer->conns; number++) {
        if (!disti_tcp_silence_stuck(&peer->conn[number], &stuck))
            continue;
        snprintf(text, size,
                 "; packets of up to %u bytes to %s were sent again and not acknowledged for "
                 "%.1f s (%llu bytes were before, %u bytes wait): if ping reaches that machine, "
                 "something on the way drops packets of this size, so compare the MTU of all "
                 "interfaces (ping -M do -s %u)",
                 stuck.packet_bytes, address, stuck.silent_ms * 1e-3, stuck.acked_bytes,
                 stuck.waiting_bytes, stuck.packet_bytes);
    }
}

static void tcp_describe(void *instance, int rank, char *text, size_t size)
{
    static const char *const states[] = {
        [TCP_CONN_IDLE] = "not connected", [TCP_CONN_CALLING] = "calling",
        [TCP_CONN_GREETING] = "greeting",  [TCP_CONN_UP] = "connected",
        [TCP_CONN_WAITING] = "connected",  [TCP_CONN_RESUMING] = "connected",
        [TCP_CONN_LEAVING] = "connected",  [TCP_CONN_DRAINING] = "connected",
        [TCP_CONN_LEFT] = "lost",          [TCP_CONN_LOST] = "lost"};
    struct tcp_state *state = instance;
    const struct tcp_peer *peer = NULL;
    char address[TCP_TEXT], trouble[400];

    if (rank >= 0 && rank < state->world_size && state->addresses && state->addresses[rank])
        peer = disti_tcp_peer(state, rank);
    if (!peer) {
        snprintf(text, size, "tcp: no peer");
        return;
    }
    disti_tcp_endpoint_text(&peer->conn->endpoint, address, sizeof(address));
    probe_trouble(peer, address, trouble, sizeof(trouble));
    snprintf(text, size,
             "%stcp %s, %s, %llu bytes sent, %llu received, %zu held early, %d sockets%s",
             disti_tcp_silence_shows(peer->conn) ? "unreachable: " : "", address,
             states[peer->conn->state], (unsigned long long)peer->sent_bytes,
             (unsigned long long)peer->received_bytes, peer->match.held_bytes, peer->further + 1,
             trouble);
}

static int tcp_probe_tag(void *instance, uint64_t tag)
{
    return disti_match_probe(&((const struct tcp_state *)instance)->unexpected, tag);
}

static void tcp_unexpected(void *instance, uint64_t tag, uint64_t mask, int most,
                           dist_unexpected_fn see, void *arg)
{
    disti_match_show(&((struct tcp_state *)instance)->unexpected, tag, mask, most, see, arg);
}

static int tcp_files(void)
{
    int sockets = 1;

    return disti_variable_int("DIST_TCP_SOCKETS", 1, &sockets) == DIST_OK ? sockets : 1;
}

const struct dist_transport disti_transport_tcp = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = "tcp",
    .summary = "TCP connections between two ranks, over IPv4 or IPv6",
    .state_size = sizeof(struct tcp_state),
    .probe = tcp_probe,
    .open = tcp_open,
    .address = tcp_address,
    .reach = tcp_reach,
    .connect = tcp_connect,
    .send = tcp_send,
    .recv = tcp_recv,
    .progress = tcp_progress,
    .probe_tag = tcp_probe_tag,
    .unexpected = tcp_unexpected,
    .arm = tcp_arm,
    .disarm = tcp_disarm,
    .close = tcp_close,
    .describe = tcp_describe,
    .cancel = disti_tcp_cancel,
    .files = tcp_files,
};

/* Looks at peers that change nothing: whose message waits for its receive, what can be said. */
