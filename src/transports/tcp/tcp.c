/* SPDX-License-Identifier: BSD-3-Clause */
/* The transport functions, peers, progress, loss of peers, cancelling and closing. */
#include "transports/tcp/tcp.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/hash.h"
#include "base/kernels/sink.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "base/thread.h"
#include "transports/match/match.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Ticks that the higher rank of a pair waits for the lower rank to connect. */
#define PEER_PATIENCE 2

/* Plans the connections to a peer from its address. Returns false if there is no memory. */
static bool tcp_plan(struct tcp_state *state, struct tcp_peer *peer,
                     const struct disti_tcp_address *address)
{
    struct disti_tcp_path paths[DISTI_TCP_INTERFACES];
    int count = disti_tcp_paths(state->local, state->interfaces, address, state->routed, paths);
    int wanted = disti_tcp_sockets(state->sockets, address->sockets, count);

    if (address->endpoint[0].machine != state->local[0].endpoint.machine) {
        unsigned used = 0;

        for (int i = 0; i < count; i++)
            used |= 1u << paths[i].local;
        for (int i = 0; i < state->interfaces; i++) {
            if ((used | state->out_of_reach) >> i & 1)
                continue;
            state->out_of_reach |= 1u << i;
            disti_info("rank %d leaves out interface %s, which does not reach rank %d", state->rank,
                       state->local[i].name, peer->rank);
        }
    }
    if (!disti_tcp_grow(peer, wanted))
        return false;
    peer->conn->endpoint = address->endpoint[0];
    for (int number = 1; number < wanted; number++) {
        peer->conn[number].endpoint = address->endpoint[paths[number % count].remote];
        peer->conn[number].interface = paths[number % count].local;
    }
    return true;
}

static void peer_free(struct tcp_peer *peer)
{
    while (peer->stripes.assemblies) {
        struct tcp_assembly *assembly = peer->stripes.assemblies;

        peer->stripes.assemblies = assembly->next;
        free(assembly);
    }
    disti_tcp_control_clear(peer);
    disti_match_clear(&peer->match);
    for (int number = 0; number < peer->conns; number++) {
        disti_tcp_incoming_clear(&peer->conn[number].in);
        free(peer->conn[number].zerocopy);
    }
    free(peer->conn);
    free(peer);
}

struct tcp_peer *disti_tcp_peer(struct tcp_state *state, int rank)
{
    const struct tcp_address *known;
    struct disti_tcp_address address;
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
    known = state->addresses[rank];
    if (!known || (disti_tcp_address_decode(known->blob, known->size, &address) &&
                   tcp_plan(state, peer, &address)))
        return peer;
    state->peers[rank] = NULL;
    peer_free(peer);
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

void disti_tcp_list(struct tcp_state *state, struct tcp_peer *peer)
{
    if (peer->listed)
        return;
    peer->listed = true;
    LIST_INSERT_HEAD(&state->list, peer, entry);
    state->listed++;
}

static void tcp_unlist(struct tcp_state *state, struct tcp_peer *peer)
{
    if (!peer->listed)
        return;
    LIST_REMOVE(peer, entry);
    peer->listed = false;
    state->listed--;
}

/* ---- turns and deadlines ---- */

/* True if a deadline is set for a further connection or for the end of all connections. */
static bool peer_is_busy(const struct tcp_peer *peer)
{
    for (int number = 1; number < peer->conns; number++) {
        if (peer->conn[number].state == TCP_CONN_CALLING)
            return true;
    }
    return peer->deadline != 0;
}

/* True if data can be sent or received without a new event. */
static bool peer_can_move(const struct tcp_peer *peer)
{
    if (disti_tcp_can_send(peer))
        return true;
    for (int number = 0; number < peer->conns; number++) {
        if (disti_tcp_conn_can_receive(&peer->conn[number], false))
            return true;
    }
    return false;
}

/*
 * Sends to and receives from one peer. `guess`: reads even if epoll has not reported data. Returns
 * nonzero if there was progress.
 */
static int peer_turn(struct tcp_state *state, struct tcp_peer *peer, bool guess)
{
    int moved = disti_tcp_send_turn(state, peer);
    size_t further = 0;

    if (disti_tcp_conn_can_receive(peer->conn, guess))
        moved += disti_tcp_receive(state, peer->conn) > 0;
    /* Further connections receive only stripes. */
    for (int number = 1; number < peer->conns; number++) {
        struct tcp_conn *conn = &peer->conn[number];

        if (disti_tcp_conn_can_receive(conn, guess && peer->stripes.assemblies))
            further += disti_tcp_receive(state, conn);
    }
    /* The first connection may have reached its end already: read it again. */
    if (further && peer->deadline)
        peer->conn->readable = true;
    if (!disti_tcp_has_sends(peer) && !disti_tcp_has_receives(peer) && !peer_can_move(peer) &&
        !peer_is_busy(peer))
        tcp_unlist(state, peer);
    return moved + (further > 0);
}

/*
 * Checks the deadlines of a listed peer, once per tick. Returns true if it still needs the timer.
 */
static bool peer_tick(struct tcp_state *state, struct tcp_peer *peer)
{
    for (int number = 0; number < peer->conns; number++) {
        if (peer->conn[number].deadline && disti_expired(peer->conn[number].deadline))
            disti_tcp_conn_expired(state, &peer->conn[number]);
    }
    if (peer->deadline && disti_expired(peer->deadline)) {
        /* The goodbye or the end of the stream may have arrived since the last read. */
        if (disti_tcp_conn_can_receive(peer->conn, true))
            disti_tcp_receive(state, peer->conn);
        disti_tcp_lose(state, peer, 0, peer->cause ? NULL : "one of its connections has ended");
    }
    if (peer->conn->state == TCP_CONN_IDLE && ++peer->ticks >= PEER_PATIENCE)
        disti_tcp_conn_call(state, peer->conn);
    if (disti_tcp_conn_is_open(peer->conn))
        return peer_is_busy(peer);
    return !disti_tcp_conn_has_ended(peer->conn);
}

/* ---- loss of a peer ---- */

/*
 * Returns the text for the user why the peer is lost. Distinguishes an unreachable peer from one
 * that closed the connection.
 */
static const char *peer_fault_reason(const struct tcp_peer *peer)
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
        return "it is unreachable: no route to its host";
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
                      state->rank, peer->rank, address, peer_fault_reason(peer));
}

void disti_tcp_lose(struct tcp_state *state, struct tcp_peer *peer, int cause, const char *reason)
{
    if (disti_tcp_conn_has_ended(peer->conn))
        return;
    /*
     * Close the sockets first: the kernel must not read a request's memory after the request has
     * ended.
     */
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

/* Detects a machine that no longer answers, but not a peer whose program is computing. */

/*
 * How a connection behaves (see TCP_INFO) while the peer's kernel is alive, even if its program is
 * computing:
 *
 *      all data acknowledged             keepalive probes the peer
 *      data in flight                    acknowledged, or retransmitted
 *      the peer's window is zero         each probe is acknowledged: the program is busy
 *
 * TCP_USER_TIMEOUT would also end the third case and lose messages whose sends have completed.
 * Without it, the second case can last 15 minutes. So this code checks the second case: the
 * connection fails if retransmissions or probes are not answered for the group's timeout.
 */

/* Number of checks within the group's timeout, and the bounds of the interval between two checks.
 */
#define SILENCE_LOOKS 16
#define SILENCE_LEAST_MS 50
#define SILENCE_MOST_MS 1000
static void tcp_silence_extend(struct tcp_state *state)
{
    const int64_t more_ms = state->config->timeout_ms - state->timeout_ms;

    state->timeout_ms = state->config->timeout_ms;
    for (int rank = 0; rank < state->world_size; rank++) {
        struct tcp_peer *peer = state->peers[rank];

        for (int number = 0; peer && number < peer->conns; number++) {
            if (peer->conn[number].fd >= 0)
                disti_tcp_silence_tune(state, peer->conn[number].fd);
            if (peer->conn[number].number == 0 && peer->conn[number].deadline)
                peer->conn[number].deadline += (more_ms * 1000000);
        }
    }
}

/* Returns false if the connection is not open. */
static bool silence_info(const struct tcp_conn *conn, struct tcp_info *info_p)
{
    socklen_t size = sizeof(*info_p);

    *info_p = (struct tcp_info){0};
    return disti_tcp_conn_is_open(conn) &&
           getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, info_p, &size) == 0;
}

/* True if the peer's machine has not answered on this connection for the group's timeout. */
static bool silence_too_long(const struct tcp_state *state, struct tcp_conn *conn, int64_t now)
{
    struct tcp_info info;
    int64_t heard;

    if (!silence_info(conn, &info) || (info.tcpi_retransmits == 0 && info.tcpi_probes == 0)) {
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

/* One unanswered probe or retransmission is normal, even if the peer's machine answers. */
#define SILENCE_SHOWS 2

/* True if the peer's machine does not answer; false if only its program is busy. */
static bool silence_shows(const struct tcp_conn *conn)
{
    struct tcp_info info;

    return silence_info(conn, &info) && info.tcpi_retransmits + info.tcpi_probes >= SILENCE_SHOWS;
}

static void tcp_silence(struct tcp_state *state)
{
    int64_t now = disti_now_ns();
    int look_ms = state->timeout_ms / SILENCE_LOOKS;
    struct tcp_peer *next;

    if (now < state->silence_ns)
        return;
    if (look_ms < SILENCE_LEAST_MS)
        look_ms = SILENCE_LEAST_MS;
    if (look_ms > SILENCE_MOST_MS)
        look_ms = SILENCE_MOST_MS;
    state->silence_ns = now + 1000000LL * look_ms;
    for (struct tcp_peer *peer = LIST_FIRST(&state->list); peer; peer = next) {
        next = LIST_NEXT(peer, entry);
        if (!disti_tcp_has_sends(peer) && !disti_tcp_has_receives(peer))
            continue;
        for (int number = 0; disti_tcp_conn_is_open(peer->conn) && number < peer->conns; number++) {
            if (silence_too_long(state, &peer->conn[number], now))
                disti_tcp_lose(state, peer, ETIMEDOUT, NULL);
        }
    }
}

/* Cancels the messages of a closed group; other groups that use the transport continue. */

/* Time in ms for the kernel to complete zero-copy calls to a peer whose machine does not answer. */
#define CANCEL_PINNED_MS 500

/*
 * Cancels the messages of a group with one peer. Sends of which nothing has been sent and receives
 * without a message are removed. A partly sent message is replaced by a detached request with a
 * copy of the remaining data. What remains of an arriving message is discarded.
 */
struct cancel {
    struct tcp_state *state;
    struct tcp_peer *peer;
    uint64_t tag, mask;
    bool failed; /* no memory for a detached request */
};

static bool cancel_matches(const struct cancel *cancel, const struct dist_request *request)
{
    return request && disti_standin_is_for(request, cancel->tag, cancel->mask) &&
           !disti_standins_have(&cancel->state->standins, request);
}

/* ---- sends ---- */

/* Replaces the send by a detached request, also in connections that are sending its stripes. */
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

/* Removes requests that have not begun and replaces the other ones. */
static void cancel_queue(struct cancel *cancel, struct tcp_queue *queue, bool begun)
{
    struct tcp_queue kept = {NULL, NULL};
    struct dist_request *next;

    for (struct dist_request *request = queue->head; request; request = next) {
        struct dist_request *keep = request;

        next = request->next;
        if (cancel_matches(cancel, request))
            keep = begun || request->moved ? cancel_send(cancel, request) : NULL;
        if (keep)
            disti_tcp_queue_put(&kept, keep);
    }
    *queue = kept;
}

/* ---- receives ---- */

static void cancel_receives(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;
    struct tcp_assembly *assembly = peer->stripes.assemblies;
    struct dist_request **at = &peer->control.receives;

    disti_standin_unpost(&peer->match, cancel->tag, cancel->mask);
    for (int number = 0; number < peer->conns; number++) {
        if (cancel_matches(cancel, peer->conn[number].in.request))
            peer->conn[number].in.request = NULL;
    }
    for (; assembly; assembly = assembly->next) {
        if (cancel_matches(cancel, assembly->request))
            assembly->request = NULL;
    }
    while (*at) {
        if (cancel_matches(cancel, *at))
            *at = (*at)->next;
        else
            at = &(*at)->next;
    }
    /* Unexpected messages of the group. An RTS is refused if the peer is still connected. */
    for (struct disti_unexpected *unexpected = peer->match.unexpected_head, *next; unexpected;
         unexpected = next) {
        next = unexpected->next;
        if ((unexpected->envelope.tag & cancel->mask) != cancel->tag)
            continue;
        if (unexpected->descriptor && disti_tcp_conn_is_open(peer->conn) &&
            disti_tcp_queue_cts(peer, unexpected->note[0], true) != DIST_OK)
            cancel->failed = true;
        disti_tcp_forget(peer, unexpected);
        disti_tcp_unexpected_release(peer, unexpected);
    }
}

/* ---- zero-copy sends ---- */

/*
 * True if a zero-copy call of a message whose tag matches `tag` in the bits of `mask` is pending.
 * Ignores detached requests, whose memory belongs to libdist.
 */
static bool zerocopy_holds(const struct tcp_state *state, const struct tcp_conn *conn, uint64_t tag,
                           uint64_t mask)
{
    for (int call = 0; conn->zerocopy && call < TCP_ZEROCOPY_CALLS; call++) {
        const struct dist_request *request = conn->zerocopy->request[call];

        if (request && disti_standin_is_for(request, tag, mask) &&
            !disti_standins_have(&state->standins, request))
            return true;
    }
    return false;
}

/*
 * True if the kernel may still read the group's memory. `answers`: check only connections to
 * machines that answer.
 */
static bool cancel_is_pinned(const struct cancel *cancel, bool answers)
{
    struct tcp_peer *peer = cancel->peer;
    bool pinned = false;

    for (int number = 0; peer && peer->pinned && number < peer->conns; number++) {
        struct tcp_conn *conn = &peer->conn[number];

        if (!zerocopy_holds(cancel->state, conn, cancel->tag, cancel->mask) ||
            (answers && silence_shows(conn)))
            continue;
        disti_tcp_zerocopy_reap(cancel->state, conn);
        pinned |= zerocopy_holds(cancel->state, conn, cancel->tag, cancel->mask);
    }
    return pinned;
}

/*
 * Waits until the kernel has completed the group's zero-copy calls, since the program may reuse its
 * memory after the cancel. The calls complete only if the peer reads. The peer may be waiting here
 * too, so this loop calls progress; further sends of the group are copied. A peer that is computing
 * reads in its next call; it has the group's timeout to do so. A peer that does not read by then is
 * lost for all groups, since only closing the sockets releases the memory. So is a peer whose
 * machine does not answer, after CANCEL_PINNED_MS.
 */
static void cancel_unpin(struct tcp_state *state, uint64_t tag, uint64_t mask)
{
    const int64_t patience = disti_deadline_ms(CANCEL_PINNED_MS);
    const int64_t deadline = disti_deadline_ms(state->timeout_ms);
    int moved = 0;

    state->ending_tag = tag;
    state->ending_mask = mask;
    while (moved >= 0 && !disti_expired(deadline)) {
        bool answers = disti_expired(patience), pinned = false;

        for (int rank = 0; state->pinned && rank < state->world_size; rank++) {
            const struct cancel cancel = {
                .state = state, .peer = state->peers[rank], .tag = tag, .mask = mask};

            pinned |= cancel_is_pinned(&cancel, answers);
        }
        if (!pinned)
            break;
        moved = disti_transport_tcp.progress(state);
        if (moved == 0)
            disti_sleep_ns(100 * 1000);
    }
    state->ending_mask = 0;
}

/* ---- the transport function ---- */

static void cancel_peer(struct cancel *cancel)
{
    struct tcp_peer *peer = cancel->peer;

    if (cancel_is_pinned(cancel, false)) {
        disti_tcp_lose(cancel->state, peer, 0,
                       "it did not read the last message of a group that has ended");
        return;
    }
    cancel_receives(cancel);
    cancel_queue(cancel, &peer->sends, false);
    cancel_queue(cancel, &peer->stripes.ready, true);
    cancel_queue(cancel, &peer->stripes.rts_sends, true);
    for (int number = 0; number < peer->conns; number++) {
        if (cancel_matches(cancel, peer->conn[number].out.request))
            cancel_send(cancel, peer->conn[number].out.request);
    }
    if (cancel->failed)
        disti_tcp_lose(cancel->state, peer, ENOMEM, NULL);
    else if (disti_tcp_can_control(peer))
        disti_tcp_list(cancel->state, peer);
}

static void tcp_cancel(void *instance, uint64_t tag, uint64_t mask)
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

/* Default limits in bytes of unexpected messages: per peer, for all peers, and the least per peer.
 */
#define CREDIT_EACH ((size_t)16 << 20)
#define CREDIT_ALL ((size_t)256 << 20)
#define CREDIT_LEAST ((size_t)1 << 20)
#define TCP_BUFFER_MAX ((size_t)1 << 30)
#define TCP_EVENTS 64

static dist_status tcp_probe(char *reason, size_t reason_size)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        snprintf(reason, reason_size, "cannot create a TCP socket: %s", strerror(errno));
        return DIST_ERR_UNSUPPORTED;
    }
    close(fd);
    return DIST_OK;
}

/* Reads DIST_TCP_ZEROCOPY. */
static dist_status zerocopy_setting(struct tcp_state *state)
{
    static const char *const names[] = {"off", "auto", "on"};
    const char *value = disti_env("DIST_TCP_ZEROCOPY");

    for (int i = 0; value && i < 3; i++) {
        if (strcmp(value, names[i]) == 0) {
            state->zerocopy = (enum tcp_zerocopy_setting)i;
            return DIST_OK;
        }
    }
    return value ? disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "DIST_TCP_ZEROCOPY is \"%.32s\": set it to off, auto or on", value)
                 : DIST_OK;
}

static dist_status tcp_settings(struct tcp_state *state)
{
    size_t early = CREDIT_EACH;
    int checksum = 0;
    dist_status status;

    if (state->world_size > 1 && CREDIT_ALL / (size_t)(state->world_size - 1) < early)
        early = CREDIT_ALL / (size_t)(state->world_size - 1);
    status = disti_env_bytes("DIST_TCP_EARLY_LIMIT", early < CREDIT_LEAST ? CREDIT_LEAST : early,
                             &state->unexpected_limit);
    if (status == DIST_OK)
        status = disti_env_bytes("DIST_TCP_BUFFER", 0, &state->socket_bytes);
    if (status == DIST_OK && state->socket_bytes > TCP_BUFFER_MAX)
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT, "DIST_TCP_BUFFER exceeds the maximum of 1G");
    if (status == DIST_OK)
        status = zerocopy_setting(state);
    if (status == DIST_OK)
        status = disti_variable_int("DIST_CHECKSUM", 0, &checksum);
    state->checksum = checksum;
    if (status == DIST_OK && disti_env("DIST_TCP_SOCKETS"))
        status = disti_variable_int("DIST_TCP_SOCKETS", 0, &state->sockets);
    return status;
}

static dist_status tcp_open(void *instance, const struct dist_transport_config *config)
{
    struct tcp_state *state = instance;
    bool watched = true;
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
    if (status != DIST_OK)
        return status;
    state->peers = calloc((size_t)state->world_size, sizeof(struct tcp_peer *));
    state->addresses = calloc((size_t)state->world_size, sizeof(*state->addresses));
    if (posix_memalign((void **)&state->buffer, 64, TCP_BUFFER_BYTES))
        state->buffer = NULL;
    if (!state->peers || !state->addresses || !state->buffer)
        return disti_fail(DIST_ERR_NO_MEMORY, "tcp: no memory for %d peers", state->world_size);
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
    if (state->epoll < 0 || state->timer < 0 ||
        !disti_tcp_watch(state, state->timer, TCP_EVENT_TIMER, 0, false))
        watched = false;
    for (int i = 0; watched && i < state->interfaces; i++) {
        watched = disti_tcp_watch(state, state->listeners[i], TCP_EVENT_LISTENER, i, false);
        if (watched)
            disti_tcp_congestion(state, state->listeners[i]);
    }
    if (!watched)
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
 * The result is the same on both ranks of a pair. A loopback address can be reached only from the
 * same network namespace.
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

static dist_status tcp_connect(void *instance, int rank, const void *blob, size_t size)
{
    struct tcp_state *state = instance;
    struct disti_tcp_address address;
    struct tcp_address *kept;

    if (rank < 0 || rank >= state->world_size || rank == state->rank)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "tcp: rank %d cannot connect to rank %d: invalid rank", state->rank,
                          rank);
    if (!disti_tcp_address_decode(blob, size, &address))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "tcp: the address of rank %d is invalid",
                          rank);
    /*
     * Keep only the address; the peer is allocated for its first message, since most ranks
     * exchange messages with few peers.
     */
    kept = malloc(sizeof(*kept) + size);
    if (kept) {
        kept->size = size;
        memcpy(kept->blob, blob, size);
        free(state->addresses[rank]);
        state->addresses[rank] = kept;
    }
    if (!kept || (state->peers[rank] && !tcp_plan(state, state->peers[rank], &address)))
        return disti_fail(DIST_ERR_NO_MEMORY, "tcp: no memory for rank %d", rank);
    return DIST_OK;
}

/*
 * Returns the peer of a request and starts connecting to it. Returns NULL if the request has
 * failed.
 */
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

/* Handles pending events. Returns the number of events, or ERR_SYSTEM. */
static int tcp_poll(struct tcp_state *state)
{
    struct epoll_event events[TCP_EVENTS];
    int count = epoll_wait(state->epoll, events, TCP_EVENTS, 0);
    bool tick = false;

    state->calls = 0;
    if (state->timeout_ms != state->config->timeout_ms)
        tcp_silence_extend(state);
    if (count < 0)
        return errno == EINTR ? 0 : disti_fail_errno(DIST_ERR_SYSTEM, "tcp: epoll failed");
    for (int i = 0; i < count; i++) {
        int index = (int)(uint32_t)events[i].data.u64, what = (int)(events[i].data.u64 >> 32);

        tick |= what == TCP_EVENT_TIMER;
        if (what == TCP_EVENT_LISTENER)
            state->accepting = true;
        else if (what == TCP_EVENT_PENDING)
            disti_tcp_pending_event(state, index);
        else if (what >= TCP_EVENT_CONN)
            disti_tcp_conn_event(state, &state->peers[index]->conn[what - TCP_EVENT_CONN],
                                 events[i].events);
    }
    /* Check deadlines after the events, so that data that arrived in time are handled first. */
    if (tick) {
        struct tcp_peer *next;
        bool needed = false;
        uint64_t times;

        (void)!read(state->timer, &times, sizeof(times));
        disti_tcp_pending_tick(state);
        for (struct tcp_peer *peer = LIST_FIRST(&state->list); peer; peer = next) {
            next = LIST_NEXT(peer, entry);
            if (peer_tick(state, peer))
                needed = true;
        }
        if (!needed && !state->pending_count)
            disti_tcp_tick_on(state, false);
    }
    tcp_silence(state);
    return count;
}

/*
 * With few listed peers, reading their sockets directly is cheaper than calling epoll_wait before.
 * Every TCP_DIRECT_CALLS-th call polls epoll in any case, for new connections and for peers that
 * are not listed.
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
        /* Zero-copy completions in the error queue also count as progress. */
        moved += pinned - state->pinned;
    }
    if (state->accepting)
        moved += disti_tcp_accept(state);
    for (struct tcp_peer *peer = LIST_FIRST(&state->list); peer; peer = next) {
        next = LIST_NEXT(peer, entry);
        moved += peer_turn(state, peer, guess);
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
    const struct tcp_peer *peer;

    if (state->accepting)
        return -2;
    LIST_FOREACH(peer, &state->list, entry)
    {
        if (peer_can_move(peer))
            return -2;
    }
    /* Consume the events of data that have been read already; they would wake the thread at once.
     */
    return tcp_poll(state) ? -2 : state->epoll;
}

static void tcp_disarm(void *instance)
{
    (void)instance;
}

/* Closing: says goodbye to every peer and closes the sockets without losing data already sent. */

/* Total time in ms to wait for room in the sockets for unsent data. */
#define LEAVE_MS 100

/*
 * Sends a goodbye if no message is partly sent, so that the peer does not report this rank as
 * lost.
 */
static void leave_send_goodbye(struct tcp_state *state, struct tcp_peer *peer)
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

/*
 * Reads and discards received data: closing a socket with unread data would reset the connection,
 * and the peer might lose the last messages. Returns true if data are unsent or the kernel may
 * still read the program's memory.
 */
static bool leave_under_way(struct tcp_state *state, struct tcp_conn *conn)
{
    int unsent = 0;
    ssize_t got;

    do {
        got = recv(conn->fd, state->buffer, TCP_BUFFER_BYTES, MSG_DONTWAIT);
    } while (got > 0 || (got < 0 && errno == EINTR));
    if ((got == 0 || errno == EAGAIN) && ioctl(conn->fd, SIOCOUTQNSD, &unsent) == 0 && unsent)
        return true;
    disti_tcp_zerocopy_reap(state, conn);
    return disti_tcp_zerocopy_pending(conn);
}

static void tcp_leave(struct tcp_state *state)
{
    int64_t deadline = disti_deadline_ms(LEAVE_MS);
    int apart = 120000;

    for (int rank = 0; rank < state->world_size; rank++) {
        if (state->peers[rank])
            leave_send_goodbye(state, state->peers[rank]);
    }
    for (int rank = 0; rank < state->world_size; rank++) {
        struct tcp_peer *peer = state->peers[rank];

        for (int number = 0; peer && number < peer->conns; number++) {
            struct tcp_conn *conn = &peer->conn[number];

            if (conn->fd < 0)
                continue;
            while (disti_tcp_conn_is_open(conn) && !disti_expired(deadline) &&
                   leave_under_way(state, conn))
                disti_sleep_ns(100 * 1000);
            /*
             * After close, the kernel continues to send to a peer that is computing, but gives up
             * when the interval of its probes has reached the maximum. So set the largest maximum.
             */
            (void)setsockopt(conn->fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &apart, sizeof(apart));
            shutdown(conn->fd, SHUT_WR);
            disti_tcp_close(state, conn);
        }
    }
}

static void tcp_close(void *instance)
{
    struct tcp_state *state = instance;

    if (!state->open)
        return;
    if (state->peers && state->buffer)
        tcp_leave(state);
    for (int rank = 0; state->peers && rank < state->world_size; rank++) {
        if (state->peers[rank])
            peer_free(state->peers[rank]);
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

/* Writes "; " and the reason why messages do not reach the peer, or "". */
static void probe_trouble(const struct tcp_peer *peer, const char *address, char *text, size_t size)
{
    struct tcp_info info;

    text[0] = '\0';
    if (peer->conn->state == TCP_CONN_CALLING)
        snprintf(text, size,
                 "; %s has not answered the connection request: check whether a firewall drops it",
                 address);
    else if (peer->conn->state == TCP_CONN_GREETING)
        snprintf(text, size,
                 "; that process has not accepted the connection to %s: check whether it computes "
                 "outside libdist, or is stopped",
                 address);
    for (int number = 0; !text[0] && number < peer->conns; number++) {
        if (!silence_info(&peer->conn[number], &info) ||
            (info.tcpi_unacked == 0 && info.tcpi_notsent_bytes == 0) ||
            (info.tcpi_retransmits + info.tcpi_probes < SILENCE_SHOWS &&
             (info.tcpi_unacked == 0 || info.tcpi_backoff < SILENCE_SHOWS)))
            continue;
        snprintf(text, size,
                 "; packets of up to %u bytes to %s were retransmitted and not acknowledged for "
                 "%.1f s (%llu bytes were acknowledged before, %u bytes wait): if ping reaches "
                 "that machine, "
                 "something on the way drops packets of this size, so compare the MTU of all "
                 "interfaces (ping -M do -s %u)",
                 info.tcpi_snd_mss, address, info.tcpi_last_ack_recv * 1e-3,
                 (unsigned long long)info.tcpi_bytes_acked, info.tcpi_notsent_bytes,
                 info.tcpi_snd_mss);
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
             silence_shows(peer->conn) ? "unreachable: " : "", address, states[peer->conn->state],
             (unsigned long long)peer->sent_bytes, (unsigned long long)peer->received_bytes,
             peer->match.held_bytes, peer->further + 1, trouble);
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
    .cancel = tcp_cancel,
    .files = tcp_files,
};
