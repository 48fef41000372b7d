/* SPDX-License-Identifier: BSD-3-Clause */
/* Callers: a stranger costs its own socket, and nobody else anything. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <errno.h>
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
