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
 * Callers that are kept though they have not said who they are: all ranks that may call, which can
 * be slow to greet, and so many strangers. The oldest is hung up when there are more; a rank calls
 * again.
 */
#define ACCEPT_STRANGERS 64

dist_status disti_tcp_pending_open(struct tcp_state *state)
{
    int sockets = state->sockets ? state->sockets : state->interfaces;

    state->pending_max = (state->world_size - 1) * sockets + ACCEPT_STRANGERS;
    state->pending = calloc((size_t)state->pending_max, sizeof(*state->pending));
    if (!state->pending)
        return disti_fail(DIST_ERR_NO_MEMORY, "tcp: no memory for %d callers", state->pending_max);
    for (int i = 0; i < state->pending_max; i++)
        state->pending[i].fd = -1;
    return DIST_OK;
}

static void pending_drop(struct tcp_state *state, struct tcp_pending *pending)
{
    disti_descriptor_close(pending->fd);
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

/* The whole hello is there: the caller is a rank of this job, or is shown out. */
static void pending_check(struct tcp_state *state, struct tcp_pending *pending)
{
    struct disti_tcp_hello hello;

    if (!disti_tcp_hello_valid(state, pending->hello, &hello)) {
        disti_info("rank %d refused a caller that is not a rank of this job", state->rank);
        pending_drop(state, pending);
        return;
    }
    state->pending_count--;
    disti_tcp_conn_adopt(state, pending->fd, &hello);
    pending->fd = -1;
}

int disti_tcp_pending_event(struct tcp_state *state, int slot)
{
    struct tcp_pending *pending = &state->pending[slot];

    while (pending->fd >= 0) {
        ssize_t got = recv(pending->fd, pending->hello + pending->bytes,
                           sizeof(pending->hello) - pending->bytes, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            break;
        if (got <= 0) {
            pending_drop(state, pending);
            break;
        }
        pending->bytes += (size_t)got;
        if (pending->bytes == sizeof(pending->hello)) {
            pending_check(state, pending);
            break;
        }
    }
    return 1;
}

static void accept_one(struct tcp_state *state, int fd)
{
    int slot = pending_slot(state);
    struct tcp_pending *pending = &state->pending[slot];

    if (!disti_tcp_watch(state, fd, TCP_EVENT_PENDING, slot, false)) {
        disti_descriptor_close(fd);
        return;
    }
    pending->fd = fd;
    pending->bytes = 0;
    pending->deadline = disti_deadline_ms(state->timeout_ms);
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
        disti_warn("rank %d cannot accept connections: %s%s", state->rank, strerror(errno),
                   errno == EMFILE ? "; raise the limit on open files (ulimit -n)" : "");
    state->warned = true;
}

/* True: there may be more. */
static bool accept_turn(struct tcp_state *state, int listener, int *turn)
{
    while (*turn < ACCEPT_TURN && state->accepting) {
        int fd = disti_descriptor_own(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));

        if (fd < 0 && errno == EAGAIN)
            return false;
        ++*turn;
        if (fd >= 0)
            accept_one(state, fd);
        else if (errno != EINTR && errno != ECONNABORTED)
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

void disti_tcp_pending_tick(struct tcp_state *state)
{
    if (state->no_accept) {
        state->no_accept = false;
        state->accepting = true;
    }
    for (int i = 0; i < state->pending_max; i++) {
        if (state->pending[i].fd >= 0 && disti_expired(state->pending[i].deadline))
            pending_drop(state, &state->pending[i]);
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
