/* SPDX-License-Identifier: BSD-3-Clause */
/* Being called: who is let in. A stranger costs a socket for some seconds, no more. */
#include "transports/shm/link.h"

#include "base/clock.h"
#include "base/log.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#define DOOR_ACCEPTS 32       /* in one look */
#define DOOR_STRANGER_MS 5000 /* to introduce itself */

/* Answers a call with a no; the caller knows what to do with each. */
static void door_decline(struct shm_state *state, struct shm_peer *peer, int socket,
                         enum shm_word word, dist_status status)
{
    struct shm_hello hello;

    disti_shm_link_hello(state, peer, word, &hello);
    hello.status = status;
    disti_shm_hello_send(socket, &hello, NULL, 0);
    close(socket);
}

/* The called side's half: takes over the caller's memory, bell and socket. */
static dist_status door_adopt(struct shm_state *state, struct shm_peer *peer, int socket,
                              const struct shm_hello *hello, int fds[SHM_HELLO_FDS])
{
    struct shm_hello answer;
    dist_status status;

    if (!disti_shm_fifo_bytes_valid(hello->fifo_bytes) || fds[0] < 0 || fds[1] < 0 ||
        fcntl(fds[1], F_SETFL, O_NONBLOCK) < 0)
        return disti_fail(DIST_ERR_SYSTEM, "shm: rank %d made an odd call", peer->rank);
    disti_shm_link_hang_up(peer); /* our own call, if there was one */
    peer->fifo_bytes = (size_t)hello->fifo_bytes;
    status = disti_shm_memory_map(fds[0], peer->fifo_bytes, &peer->pair);
    if (status != DIST_OK)
        return status;
    disti_shm_link_hello(state, peer, SHM_ACCEPT, &answer);
    if (!disti_shm_watch(state, socket, SHM_ON_SOCKET, peer->rank, 0) ||
        !disti_shm_hello_send(socket, &answer, &state->bell, 1))
        return disti_fail_errno(DIST_ERR_PEER_LOST, "shm: cannot answer rank %d (pid %d)",
                                peer->rank, peer->pid);
    peer->socket = socket;
    peer->bell = fds[1];
    peer->key = hello->key;
    fds[1] = -1;
    return DIST_OK;
}

/* Somebody of our user called, and said this. Takes the socket and the descriptors over. */
static void door_called(struct shm_state *state, int socket, int pid, const struct shm_hello *hello,
                        int fds[SHM_HELLO_FDS])
{
    struct shm_peer *peer = NULL;
    dist_status status;

    if (disti_shm_hello_valid(hello, state->config.rank, state->config.world_size, state->job) &&
        hello->word == SHM_CALL)
        peer = disti_shm_link_peer(state, hello->from);
    if (!peer) {
        disti_info("shm: turned away process %d, which is no rank of this job", pid);
        close(socket);
    } else if (peer->phase == SHM_CALLING && state->config.rank < peer->rank) {
        door_decline(state, peer, socket, SHM_DEFER, DIST_OK);
    } else if (peer->phase == SHM_CONNECTED || peer->phase == SHM_LOST) {
        door_decline(state, peer, socket, SHM_REFUSE, DIST_ERR_PEER_LOST);
    } else {
        peer->pid = pid;
        status = door_adopt(state, peer, socket, hello, fds);
        if (status == DIST_OK) {
            disti_shm_link_connected(state, peer, 1, hello);
        } else {
            door_decline(state, peer, socket, SHM_REFUSE, status);
            disti_shm_link_lose(state, peer, status);
        }
    }
    disti_shm_close_fds(fds, SHM_HELLO_FDS);
}

/* Keeps a caller that has not spoken yet; the one that has been silent longest makes room. */
static void door_park(struct shm_state *state, int socket, int pid)
{
    int slot = 0;

    for (int i = 0; i < SHM_PENDING_MAX; i++) {
        struct shm_pending *pending = &state->pending[i];

        if (pending->socket < 0) {
            slot = i;
            break;
        }
        if (pending->deadline_ns < state->pending[slot].deadline_ns)
            slot = i;
    }
    disti_shm_close_fd(&state->pending[slot].socket);
    state->pending[slot] = (struct shm_pending){
        .socket = socket, .pid = pid, .deadline_ns = disti_deadline_ms(DOOR_STRANGER_MS)};
    disti_shm_watch(state, socket, SHM_ON_PENDING, slot, 0);
}

/* True: something was there to read, and the socket is dealt with. */
static bool door_hear(struct shm_state *state, int socket, int pid)
{
    struct shm_hello hello;
    int fds[SHM_HELLO_FDS];
    int result = disti_shm_hello_receive(socket, &hello, fds);

    if (result == 0)
        return false;
    if (result < 0)
        close(socket);
    else
        door_called(state, socket, pid, &hello, fds);
    return true;
}

void disti_shm_door_accept(struct shm_state *state)
{
    for (int i = 0; i < DOOR_ACCEPTS; i++) {
        int socket = accept4(state->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        uint32_t uid;
        int pid;

        if (socket < 0)
            return;
        if (!disti_shm_hello_peer(socket, &uid, &pid) || uid != state->address.uid) {
            disti_info("shm: turned away a process of another user");
            close(socket);
        } else if (!door_hear(state, socket, pid)) {
            door_park(state, socket, pid);
        }
    }
}

void disti_shm_door_pending(struct shm_state *state, int slot)
{
    struct shm_pending *pending = &state->pending[slot];
    int socket = pending->socket;

    if (socket >= 0 && epoll_ctl(state->poll, EPOLL_CTL_DEL, socket, NULL) == 0) {
        pending->socket = -1;
        if (!door_hear(state, socket, pending->pid))
            door_park(state, socket, pending->pid);
    }
}

/* Strangers who say nothing for long go. */
void disti_shm_door_expire(struct shm_state *state)
{
    for (int i = 0; i < SHM_PENDING_MAX; i++) {
        struct shm_pending *pending = &state->pending[i];

        if (pending->socket >= 0 && disti_expired(pending->deadline_ns))
            disti_shm_close_fd(&pending->socket);
    }
}
