/* SPDX-License-Identifier: BSD-3-Clause */
/* Being called: who is let in. A caller may take its time, as it may be a rank. */
#include "transports/shm/connection.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ACCEPT_ACCEPTS 32 /* in one look */
#define ACCEPT_ROOM 32    /* callers that have not spoken yet, at first */
/* Of more than all other ranks and so many, the one that has been silent longest must call again.
 */
#define ACCEPT_STRANGERS 256

/* Answers a call with a no; the caller knows what to do with each. */
static void accept_decline(struct shm_state *state, struct shm_peer *peer, int socket,
                           enum shm_word word, dist_status status)
{
    struct shm_hello hello;

    disti_shm_connection_hello(state, peer, word, &hello);
    hello.status = status;
    disti_shm_hello_send(socket, &hello, NULL, 0);
    disti_descriptor_close(socket);
}

/* The called side's half: takes over the caller's memory, doorbell and socket. */
static dist_status accept_adopt(struct shm_state *state, struct shm_peer *peer, int socket,
                                const struct shm_hello *hello, int fds[SHM_HELLO_FDS])
{
    struct shm_hello answer;
    dist_status status;

    if (!disti_shm_fifo_bytes_valid(hello->fifo_bytes) || fds[0] < 0 || fds[1] < 0 ||
        fcntl(fds[1], F_SETFL, O_NONBLOCK) < 0)
        return disti_fail(
            DIST_ERR_SYSTEM,
            "shm: rank %d sent an invalid hello: give all ranks the same version of libdist",
            peer->rank);
    disti_shm_connection_hang_up(state, peer); /* our own call, if there was one */
    peer->fifo_bytes = (size_t)hello->fifo_bytes;
    status = disti_shm_memory_map(fds[0], peer->fifo_bytes, &peer->pair);
    if (status != DIST_OK)
        return status;
    disti_shm_connection_hello(state, peer, SHM_ACCEPT, &answer);
    if (!disti_shm_watch(state, socket, SHM_ON_SOCKET, peer->rank, 0) ||
        !disti_shm_hello_send(socket, &answer, &state->doorbell, 1))
        return disti_fail_errno(DIST_ERR_PEER_LOST, "shm: cannot answer rank %d (pid %d)",
                                peer->rank, peer->pid);
    peer->socket = socket;
    peer->doorbell = fds[1];
    peer->key = hello->key;
    fds[1] = -1;
    return DIST_OK;
}

/* Somebody of our user called, and said this. Takes the socket and the descriptors over. */
static void accept_called(struct shm_state *state, int socket, int pid,
                          const struct shm_hello *hello, int fds[SHM_HELLO_FDS])
{
    struct shm_peer *peer = NULL;
    dist_status status;

    if (disti_shm_hello_valid(hello, state->config.rank, state->config.world_size, state->job) &&
        hello->word == SHM_CALL)
        peer = disti_shm_connection_peer(state, hello->from);
    if (!peer) {
        disti_info("shm: refused process %d, which is not a rank of this job", pid);
        disti_descriptor_close(socket);
    } else if (peer->phase == SHM_CALLING && state->config.rank < peer->rank) {
        accept_decline(state, peer, socket, SHM_DEFER, DIST_OK);
    } else if (peer->phase == SHM_CONNECTED || peer->phase == SHM_LOST) {
        accept_decline(state, peer, socket, SHM_REFUSE, DIST_ERR_PEER_LOST);
    } else {
        peer->pid = pid;
        status = accept_adopt(state, peer, socket, hello, fds);
        if (status == DIST_OK) {
            disti_shm_connection_connected(state, peer, 1, hello);
        } else {
            accept_decline(state, peer, socket, SHM_REFUSE, status);
            disti_shm_connection_lose(state, peer, status);
        }
    }
    disti_shm_close_fds(fds, SHM_HELLO_FDS);
}

/* A place for a caller that has not spoken yet; -1: there are as many as there may be. */
static int accept_slot(struct shm_state *state)
{
    int most = state->config.world_size + ACCEPT_STRANGERS;
    int room = state->pending_room ? state->pending_room * 2 : ACCEPT_ROOM;
    int room_was;
    struct shm_pending *pending;

    for (int i = 0; i < state->pending_room; i++) {
        if (state->pending[i].socket < 0)
            return i;
    }
    if (state->pending_room >= most)
        return -1;
    pending = realloc(state->pending, (size_t)room * sizeof(*pending));
    if (!pending)
        return -1;
    for (int i = state->pending_room; i < room; i++)
        pending[i].socket = -1;
    state->pending = pending;
    room_was = state->pending_room;
    state->pending_room = room;
    return room_was;
}

/* The one that has been silent longest makes room. If it is a rank, it calls again. */
static int accept_evict(struct shm_state *state)
{
    int slot = 0;

    for (int i = 1; i < state->pending_room; i++) {
        if (state->pending[i].deadline_ns < state->pending[slot].deadline_ns)
            slot = i;
    }
    if (state->pending_room)
        disti_shm_close_fd(&state->pending[slot].socket);
    return state->pending_room ? slot : -1;
}

/* Keeps a caller that has not spoken yet, as long as a call of the program may wait for it. */
static void accept_park(struct shm_state *state, int socket, int pid)
{
    int slot = accept_slot(state);

    if (slot < 0)
        slot = accept_evict(state);
    if (slot < 0 || !disti_shm_watch(state, socket, SHM_ON_PENDING, slot, 0)) {
        disti_descriptor_close(socket); /* without memory: it calls again */
        return;
    }
    state->pending[slot] = (struct shm_pending){
        .socket = socket, .pid = pid, .deadline_ns = disti_deadline_ms(state->config.timeout_ms)};
}

/* True: something was there to read, and the socket is dealt with. */
static bool accept_hear(struct shm_state *state, int socket, int pid)
{
    struct shm_hello hello;
    int fds[SHM_HELLO_FDS];
    int result = disti_shm_hello_receive(socket, &hello, fds);

    if (result == 0)
        return false;
    if (result < 0)
        disti_descriptor_close(socket);
    else
        accept_called(state, socket, pid, &hello, fds);
    return true;
}

/* The ranks may have taken on another user's rights since they opened: they call as he. */
static bool accept_is_own(const struct shm_state *state, uint32_t uid)
{
    return uid == state->address.uid || uid == (uint32_t)geteuid();
}

void disti_shm_accept_callers(struct shm_state *state)
{
    for (int i = 0; i < ACCEPT_ACCEPTS; i++) {
        int socket = disti_descriptor_own(
            accept4(state->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        uint32_t uid;
        int pid;

        if (socket < 0 &&
            (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
            disti_shm_back_off(state, state->listener, SHM_ON_LISTENER, 0);
        if (socket < 0 && (errno == ECONNABORTED || errno == EINTR))
            continue;
        if (socket < 0)
            return;
        if (!disti_shm_hello_peer(socket, &uid, &pid) || !accept_is_own(state, uid)) {
            disti_info("shm: refused a process of another user");
            disti_descriptor_close(socket);
        } else if (!accept_hear(state, socket, pid)) {
            accept_park(state, socket, pid);
        }
    }
}

void disti_shm_accept_pending(struct shm_state *state, int slot)
{
    struct shm_pending *pending = &state->pending[slot];
    int socket = pending->socket;
    bool silent;

    if (socket < 0 || epoll_ctl(state->poll, EPOLL_CTL_DEL, socket, NULL) < 0)
        return;
    if (accept_hear(state, socket, pending->pid)) { /* it has taken the socket over */
        state->pending[slot].socket = -1;
        return;
    }
    silent = errno == EAGAIN;
    disti_shm_watch(state, socket, SHM_ON_PENDING, slot, 0);
    if (!silent)
        disti_shm_back_off(state, socket, SHM_ON_PENDING, slot);
}

/* Strangers who say nothing for long go. */
void disti_shm_accept_expire(struct shm_state *state)
{
    for (int i = 0; i < state->pending_room; i++) {
        struct shm_pending *pending = &state->pending[i];

        if (pending->socket >= 0 && disti_expired(pending->deadline_ns))
            disti_shm_close_fd(&pending->socket);
    }
}
