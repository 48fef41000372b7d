/* SPDX-License-Identifier: BSD-3-Clause */
/* Calling a peer: when, how, and what its answer means. */
#include "transports/shm/connection.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>

#define CALL_HIGHER_WAITS_NS (5 * 1000 * 1000) /* for the lower rank's call */
#define CALL_RETRY_NS (50 * 1000 * 1000)       /* after DEFER, or a call in vain */

/* The call was in vain, for reasons that pass. */
static void call_retry(struct shm_state *state, struct shm_peer *peer)
{
    disti_shm_connection_hang_up(state, peer);
    if (peer->phase == SHM_CALLING)
        disti_shm_connection_go(state, peer, SHM_NEEDED);
    peer->called_in_vain = true;
    peer->call_ns = disti_now_ns() + CALL_RETRY_NS;
}

static bool call_lacks_descriptors(struct shm_state *state)
{
    if (errno != EMFILE && errno != ENFILE)
        return false;
    disti_shm_report_descriptors(state);
    return true;
}

/* The caller's half, once the socket is connected. IN_PROGRESS: it has to call again. */
static dist_status call_speak(struct shm_state *state, struct shm_peer *peer)
{
    struct shm_hello hello;
    uint32_t uid;
    dist_status status;
    int fds[SHM_HELLO_FDS];

    if (!disti_shm_hello_peer(peer->socket, &uid, &peer->pid) || uid != state->address.uid)
        return disti_fail(
            DIST_ERR_PEER_LOST,
            "shm: another user's process listens for rank %d: run all ranks as one user",
            peer->rank);
    peer->fifo_bytes = state->fifo_bytes;
    status = disti_shm_memory_make(peer->fifo_bytes, &peer->memory, &peer->pair);
    if (status == DIST_IN_PROGRESS)
        disti_shm_report_descriptors(state);
    if (status != DIST_OK)
        return status;
    if (!disti_shm_machine_random(&peer->key, sizeof(peer->key)))
        return disti_fail_call("getrandom", "shm: cannot get random bytes");
    peer->key |= 1; /* no stamp is 0, which new memory is full of */
    disti_shm_connection_hello(state, peer, SHM_CALL, &hello);
    hello.key = peer->key;
    hello.fifo_bytes = peer->fifo_bytes;
    fds[0] = peer->memory;
    fds[1] = state->doorbell;
    if (!disti_shm_hello_send(peer->socket, &hello, fds, 2))
        return disti_shm_machine_runs(peer->pid) ? DIST_IN_PROGRESS : disti_shm_lost(peer);
    if (!disti_shm_watch(state, peer->socket, SHM_ON_SOCKET, peer->rank, 0))
        return disti_fail_errno(DIST_ERR_PEER_LOST, "shm: cannot connect to rank %d (pid %d)",
                                peer->rank, peer->pid);
    return disti_shm_connection_go(state, peer, SHM_CALLING);
}

/* False: it has to be tried again later. A failure loses the peer. */
static bool call_peer(struct shm_state *state, struct shm_peer *peer)
{
    struct sockaddr_un name;
    const struct shm_address *address = &state->addresses[peer->rank];
    socklen_t size = disti_shm_machine_socket(address, &name);
    dist_status status;

    peer->socket =
        disti_descriptor_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (peer->socket < 0 && call_lacks_descriptors(state)) {
        status = DIST_IN_PROGRESS;
    } else if (peer->socket < 0) {
        status = disti_fail_errno(DIST_ERR_SYSTEM, "shm: no socket for rank %d", peer->rank);
    } else if (connect(peer->socket, (struct sockaddr *)&name, size) == 0) {
        status = call_speak(state, peer);
    } else if (errno == EAGAIN || errno == EINTR) {
        status = DIST_IN_PROGRESS;
    } else {
        status = disti_fail_errno(
            DIST_ERR_PEER_LOST,
            "shm: rank %d (pid %u on this machine) no longer listens: its own output says why",
            peer->rank, address->pid);
    }
    if (status == DIST_IN_PROGRESS)
        call_retry(state, peer);
    else if (status != DIST_OK)
        disti_shm_connection_lose(state, peer, status);
    return status != DIST_IN_PROGRESS;
}

void disti_shm_call_want(struct shm_state *state, struct shm_peer *peer)
{
    bool lower = state->config.rank < peer->rank;

    if (peer->phase != SHM_IDLE)
        return;
    disti_shm_connection_go(state, peer, SHM_NEEDED);
    peer->call_ns = disti_now_ns() + (lower ? 0 : CALL_HIGHER_WAITS_NS);
    if (lower)
        disti_shm_connection_look(state); /* it may have called us; else this calls it */
}

static bool call_knows(const struct shm_state *state, int rank)
{
    return state->addresses[rank].magic;
}

bool disti_shm_call_all(struct shm_state *state)
{
    int64_t now = disti_now_ns();
    bool all = true;

    for (int rank = 0; rank < state->config.world_size && state->wanting; rank++) {
        struct shm_peer *peer = state->peers[rank];

        if (!peer || peer->phase != SHM_NEEDED || !call_knows(state, rank))
            continue;
        if (peer->called_in_vain && peer->call_ns > now)
            all = false;
        else
            all = call_peer(state, peer) && all;
    }
    return all;
}

/* Calls those whose time has come. */
void disti_shm_call_due(struct shm_state *state)
{
    int64_t now = disti_now_ns();

    for (int rank = 0; rank < state->config.world_size; rank++) {
        struct shm_peer *peer = state->peers[rank];

        if (peer && peer->phase == SHM_NEEDED && call_knows(state, rank) && peer->call_ns <= now)
            call_peer(state, peer);
    }
}

/* The answer to our call. */
void disti_shm_call_answered(struct shm_state *state, struct shm_peer *peer)
{
    struct shm_hello hello;
    int fds[SHM_HELLO_FDS];
    int result = disti_shm_hello_receive(peer->socket, &hello, fds);

    if (result == 0 && errno != EAGAIN)
        disti_shm_back_off(state, peer->socket, SHM_ON_SOCKET, peer->rank);
    if (result == 0)
        return;
    if (result < 0 && disti_shm_machine_runs(peer->pid)) { /* it let others in first, or closes */
        call_retry(state, peer);
        return;
    }
    if (result < 0) {
        disti_shm_connection_ended(state, peer);
        return;
    }
    if (!disti_shm_hello_valid(&hello, state->config.rank, state->config.world_size, state->job) ||
        hello.from != peer->rank || (hello.word == SHM_ACCEPT && fds[0] < 0)) {
        hello.word = SHM_REFUSE;
        hello.status = DIST_ERR_PEER_LOST;
    }
    if (hello.word == SHM_ACCEPT) {
        peer->doorbell = fds[0];
        fds[0] = -1;
        fcntl(peer->doorbell, F_SETFL, O_NONBLOCK);
        disti_shm_connection_connected(state, peer, 0, &hello);
    } else if (hello.word == SHM_DEFER) {
        disti_shm_connection_hang_up(state, peer);
        disti_shm_connection_go(state, peer, SHM_NEEDED);
        peer->call_ns = disti_now_ns() + CALL_RETRY_NS;
    } else {
        disti_fail(DIST_ERR_PEER_LOST, "shm: rank %d (pid %d) refused to share memory: %s",
                   peer->rank, peer->pid, dist_status_string(hello.status));
        disti_shm_connection_lose(state, peer,
                                  hello.status < 0 ? hello.status : DIST_ERR_PEER_LOST);
    }
    disti_shm_close_fds(fds, SHM_HELLO_FDS);
}
