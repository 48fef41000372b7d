/* SPDX-License-Identifier: BSD-3-Clause */
/* What the transport listens to: the epoll, who is told of its events, and doing without one. */
#include "transports/shm/connection.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#define WATCH_BACKLOG 4096
#define WATCH_EVENTS 32
#define WATCH_BACKOFF_NS (50 * 1000 * 1000) /* without a descriptor */

static bool watch_epoll(struct shm_state *state, int operation, int fd, uint32_t events,
                        enum shm_event event, int index)
{
    struct epoll_event watched = {.events = events,
                                  .data.u64 = (uint64_t)event << 32 | (uint32_t)index};

    return epoll_ctl(state->poll, operation, fd, &watched) == 0;
}

bool disti_shm_watch(struct shm_state *state, int fd, enum shm_event event, int index,
                     uint32_t flags)
{
    return watch_epoll(state, EPOLL_CTL_ADD, fd, EPOLLIN | flags, event, index);
}

void disti_shm_report_descriptors(struct shm_state *state)
{
    if (!state->reported_descriptors)
        disti_notice(
            "shm: rank %d has no file descriptor left for a connection to a rank; it tries "
            "again until there is one: raise `ulimit -n`",
            state->config.rank);
    state->reported_descriptors = true;
}

void disti_shm_back_off(struct shm_state *state, int fd, enum shm_event event, int index)
{
    disti_shm_report_descriptors(state);
    watch_epoll(state, EPOLL_CTL_MOD, fd, 0, event, index);
    state->resume_ns = disti_now_ns() + WATCH_BACKOFF_NS;
}

static void watch_resume_one(struct shm_state *state, int fd, enum shm_event event, int index)
{
    if (fd >= 0)
        watch_epoll(state, EPOLL_CTL_MOD, fd, EPOLLIN, event, index);
}

/* What was not listened to for lack of descriptors is, when it is time. */
static void watch_resume(struct shm_state *state)
{
    if (!state->resume_ns || disti_now_ns() < state->resume_ns)
        return;
    state->resume_ns = 0;
    watch_resume_one(state, state->listener, SHM_ON_LISTENER, 0);
    for (int i = 0; i < state->pending_room; i++)
        watch_resume_one(state, state->pending[i].socket, SHM_ON_PENDING, i);
    for (int rank = 0; rank < state->config.world_size; rank++) {
        if (state->peers[rank] && state->peers[rank]->phase == SHM_CALLING)
            watch_resume_one(state, state->peers[rank]->socket, SHM_ON_SOCKET, rank);
    }
}

dist_status disti_shm_connection_open(struct shm_state *state)
{
    struct sockaddr_un name;
    socklen_t size = disti_shm_machine_socket(&state->address, &name);

    state->poll = disti_descriptor_own(epoll_create1(EPOLL_CLOEXEC));
    state->doorbell = disti_descriptor_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    state->listener =
        disti_descriptor_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (state->poll < 0 || state->doorbell < 0 || state->listener < 0)
        return disti_fail_call("epoll_create1, eventfd or socket",
                               "shm: rank %d cannot listen to its peers", state->config.rank);
    if (bind(state->listener, (struct sockaddr *)&name, size) < 0 ||
        listen(state->listener, WATCH_BACKLOG) < 0)
        return disti_fail_errno(DIST_ERR_SYSTEM, "shm: cannot listen on a Unix socket");
    /* The doorbell is edge-triggered: it is never read, and counts up to 2^64 rings. */
    if (!disti_shm_watch(state, state->listener, SHM_ON_LISTENER, 0, 0) ||
        !disti_shm_watch(state, state->doorbell, SHM_ON_DOORBELL, 0, EPOLLET))
        return disti_fail_errno(DIST_ERR_SYSTEM, "shm: epoll_ctl failed");
    return DIST_OK;
}

/* A connected peer says nothing more on its socket: it becomes readable when it ends. */
static void watch_socket(struct shm_state *state, struct shm_peer *peer)
{
    char byte;

    if (peer->phase == SHM_CALLING)
        disti_shm_call_answered(state, peer);
    else if (peer->phase == SHM_CONNECTED &&
             (recv(peer->socket, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN))
        disti_shm_connection_ended(state, peer);
}

static void watch_handle(struct shm_state *state, uint64_t data)
{
    int index = (int)(uint32_t)data;

    switch ((enum shm_event)(data >> 32)) {
    case SHM_ON_LISTENER:
        disti_shm_accept_callers(state);
        break;
    case SHM_ON_PENDING:
        disti_shm_accept_pending(state, index);
        break;
    case SHM_ON_SOCKET:
        watch_socket(state, state->peers[index]);
        break;
    case SHM_ON_PROCESS:
        if (state->peers[index]->phase == SHM_CONNECTED)
            disti_shm_connection_ended(state, state->peers[index]);
        break;
    case SHM_ON_DOORBELL:
        break;
    }
}

int disti_shm_connection_look(struct shm_state *state)
{
    struct epoll_event events[WATCH_EVENTS];
    int count, handled = 0, held = disti_cancel_hold();

    watch_resume(state);
    count = epoll_wait(state->poll, events, WATCH_EVENTS, 0);
    state->calls = 0;
    state->look = count == WATCH_EVENTS;
    for (int i = 0; i < count; i++) {
        watch_handle(state, events[i].data.u64);
        handled += events[i].data.u64 >> 32 != SHM_ON_DOORBELL;
    }
    disti_shm_accept_expire(state);
    if (state->wanting)
        disti_shm_call_due(state);
    disti_cancel_let(held);
    return handled;
}
