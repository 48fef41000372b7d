/* SPDX-License-Identifier: BSD-3-Clause */
/* Connections to peers: what they are made of, and what happens when one ends. */
#include "transports/shm/connection.h"

#include "base/descriptor.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The arrows of the drawing in state.h, by where they begin. */
static const uint8_t connection_arrows[] = {
    [SHM_IDLE] = 1 << SHM_NEEDED | 1 << SHM_CONNECTED | 1 << SHM_LOST,
    [SHM_NEEDED] = 1 << SHM_CALLING | 1 << SHM_CONNECTED | 1 << SHM_LOST,
    [SHM_CALLING] = 1 << SHM_NEEDED | 1 << SHM_CONNECTED | 1 << SHM_LOST,
    [SHM_CONNECTED] = 1 << SHM_LOST,
    [SHM_LOST] = 0,
};

static bool connection_is_wanting(enum shm_phase phase)
{
    return phase == SHM_NEEDED || phase == SHM_CALLING;
}

dist_status disti_shm_connection_go(struct shm_state *state, struct shm_peer *peer,
                                    enum shm_phase to)
{
    if (!(connection_arrows[peer->phase] & 1 << to))
        return disti_fail(DIST_ERR_INTERNAL,
                          "shm: the connection to rank %d cannot go from phase %d to %d",
                          peer->rank, (int)peer->phase, (int)to);
    state->wanting += connection_is_wanting(to) - connection_is_wanting(peer->phase);
    peer->phase = to;
    return DIST_OK;
}

void disti_shm_close_fd(int *fd_p)
{
    if (*fd_p >= 0)
        disti_descriptor_close(*fd_p);
    *fd_p = -1;
}

void disti_shm_close_fds(int *fds, int count)
{
    for (int i = 0; i < count; i++)
        disti_shm_close_fd(&fds[i]);
}

struct shm_peer *disti_shm_connection_peer(struct shm_state *state, int rank)
{
    struct shm_peer *peer = state->peers[rank];

    if (peer)
        return peer;
    peer = calloc(1, sizeof(*peer));
    if (!peer) {
        disti_fail(DIST_ERR_NO_MEMORY, "shm: no memory for a connection to rank %d", rank);
        return NULL;
    }
    peer->rank = rank;
    peer->match.rank = rank;
    peer->match.set = &state->unexpected;
    peer->memory = peer->socket = peer->doorbell = peer->process = -1;
    peer->lent_free = ~UINT64_C(0);
    state->peers[rank] = peer;
    return peer;
}

/* A copy that another process has would go on waking us. */
static void connection_unwatch(const struct shm_state *state, int *fd_p)
{
    if (*fd_p >= 0)
        epoll_ctl(state->poll, EPOLL_CTL_DEL, *fd_p, NULL);
    disti_shm_close_fd(fd_p);
}

void disti_shm_connection_hang_up(const struct shm_state *state, struct shm_peer *peer)
{
    disti_shm_close_fd(&peer->memory);
    connection_unwatch(state, &peer->socket);
    disti_shm_close_fd(&peer->doorbell);
    connection_unwatch(state, &peer->process);
    disti_shm_memory_unmap(peer->pair, peer->fifo_bytes);
    peer->pair = NULL;
    peer->mine = peer->theirs = NULL;
}

/* What the peer had sent completely before it ended still counts. */
static void connection_drain(struct shm_peer *peer)
{
    int turns = (int)(peer->fifo_bytes / SHM_LINE / SHM_TURN_FRAMES) + 1;

    while (turns-- > 0 && disti_shm_receive_turn(peer) > 0)
        ;
    disti_shm_send_acks(peer);
}

static bool connection_has_requests(const struct shm_peer *peer)
{
    return peer->send_head || ~peer->lent_free || peer->pull_head || peer->match.posted_head ||
           peer->asked_head || peer->announced.count || peer->arrival.request ||
           (peer->arrival.unexpected && peer->arrival.unexpected->claimed);
}

void disti_shm_connection_lose(struct shm_state *state, struct shm_peer *peer, dist_status status)
{
    if (peer->phase == SHM_CONNECTED && !peer->corrupt)
        connection_drain(peer);
    for (int i = 0; i < state->active_count; i++) {
        if (state->active[i] == peer)
            state->active[i--] = state->active[--state->active_count];
    }
    disti_shm_connection_hang_up(state, peer);
    disti_shm_connection_go(state, peer, SHM_LOST);
    peer->status = status;
    disti_shm_send_fail(peer, status);
    disti_shm_receive_fail(peer, status);
}

void disti_shm_connection_ended(struct shm_state *state, struct shm_peer *peer)
{
    if (peer->phase == SHM_CONNECTED)
        connection_drain(peer);
    if (connection_has_requests(
            peer)) /* else it is nothing bad: groups end one rank after the other */
        disti_fail(
            DIST_ERR_PEER_LOST,
            "shm: rank %d lost rank %d (pid %d on this machine): it ended or left the group; "
            "its own output says why",
            state->config.rank, peer->rank, peer->pid);
    disti_shm_connection_lose(state, peer, DIST_ERR_PEER_LOST);
}

dist_status disti_shm_lost(const struct shm_peer *peer)
{
    return disti_fail(peer->status,
                      "shm: rank %d (pid %d on this machine) has ended: its own output says why",
                      peer->rank, peer->pid);
}

/* Can we read the peer's memory? It is asked to show us one word of it. */
static enum shm_verdict connection_check(const struct shm_state *state, const struct shm_peer *peer,
                                         const struct shm_hello *hello)
{
    uint64_t word = 0;
    int error;

    if (!state->cma)
        return SHM_CMA_REFUSED;
    if (peer->pid <= 0)
        error = ESRCH; /* it lives in a process namespace that we do not see */
    else
        error = disti_shm_machine_read(peer->pid, &word, hello->probe_address, sizeof(word));
    if (!error && word == hello->probe)
        return SHM_CMA_WORKS;
    disti_info("shm: long messages from rank %d are copied twice, as its memory cannot be read "
               "(%s): `dist_info memory` says what to do",
               peer->rank, error ? strerror(error) : "another process answered");
    return SHM_CMA_REFUSED;
}

void disti_shm_connection_connected(struct shm_state *state, struct shm_peer *peer, int side,
                                    const struct shm_hello *hello)
{
    unsigned char *fifos[2] = {peer->pair->fifos, peer->pair->fifos + peer->fifo_bytes};
    size_t most = disti_shm_frame_max(peer->fifo_bytes);

    peer->mine = &peer->pair->side[side];
    peer->theirs = &peer->pair->side[1 - side];
    peer->out = (struct shm_out){.ring = fifos[side],
                                 .size = peer->fifo_bytes,
                                 .key = peer->key,
                                 .consumed_now = &peer->theirs->consumed};
    peer->in = (struct shm_in){.ring = fifos[1 - side],
                               .size = peer->fifo_bytes,
                               .key = peer->key,
                               .consumed = &peer->mine->consumed};
    peer->credit.limit = peer->debit.limit = SHM_CREDIT_FIFOS * (uint64_t)peer->fifo_bytes;
    peer->whole_max = most < SHM_COPY_MAX ? most : SHM_COPY_MAX;
    peer->lend = state->cma ? SHM_CMA_UNKNOWN : SHM_CMA_REFUSED;
    disti_shm_close_fd(&peer->memory);
    disti_shm_connection_go(state, peer, SHM_CONNECTED);
    state->active[state->active_count++] = peer;
    /*
     * The socket's end is the peer's, unless a child of the peer still holds it: so the
     * process is watched as well, where it can be.
     */
    if (peer->pid > 0)
        peer->process = disti_descriptor_own((int)syscall(SYS_pidfd_open, peer->pid, 0));
    if (peer->process >= 0)
        disti_shm_watch(state, peer->process, SHM_ON_PROCESS, peer->rank, 0);
    atomic_store_explicit(&peer->mine->verdict, connection_check(state, peer, hello),
                          memory_order_seq_cst);
    disti_shm_ring(peer);
}

void disti_shm_ring_slow(struct shm_peer *peer)
{
    const uint64_t one = 1;
    int held;

    if (!atomic_exchange_explicit(&peer->theirs->asleep, 0, memory_order_seq_cst))
        return;
    held = disti_cancel_hold();
    (void)!write(peer->doorbell, &one, sizeof(one)); /* fails if it rings already */
    disti_cancel_let(held);
}

void disti_shm_connection_hello(const struct shm_state *state, const struct shm_peer *peer,
                                enum shm_word word, struct shm_hello *hello)
{
    disti_shm_hello_init(hello, word, state->config.rank, peer->rank, state->job);
    hello->probe_address = (uint64_t)(uintptr_t)&state->probe;
    hello->probe = state->probe;
}

void disti_shm_connection_close(struct shm_state *state)
{
    for (int rank = 0; rank < state->config.world_size; rank++) {
        struct shm_peer *peer = state->peers[rank];

        if (!peer)
            continue;
        if (peer->mine)
            atomic_store_explicit(&peer->mine->closed, 1, memory_order_seq_cst);
        disti_shm_connection_hang_up(state, peer);
        disti_match_clear(&peer->match);
        disti_shm_announce_free(peer);
        free(peer);
    }
    for (int i = 0; i < state->pending_room; i++)
        disti_shm_close_fd(&state->pending[i].socket);
    free(state->pending);
    disti_shm_close_fd(&state->listener);
    disti_shm_close_fd(&state->doorbell);
    disti_shm_close_fd(&state->poll);
}
