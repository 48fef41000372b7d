/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_minimal.so: who can be reached, and the connections of a rank to the others. */
#include "minimal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Keeps the borders of what is sent. */
#define MINIMAL_SOCKET (SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC)

/* ---- which machine is this? ---- */

static bool minimal_locate(struct minimal_address *address)
{
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    bool ok = fd >= 0 && read(fd, address->boot, sizeof(address->boot)) > 0 &&
              readlink("/proc/self/ns/net", address->network, sizeof(address->network)) > 0 &&
              getrandom(&address->name, sizeof(address->name), 0) == sizeof(address->name);

    address->user = geteuid();
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Where /proc is not as it is on Linux this transport is left out. */
dist_status minimal_probe(char *reason, size_t reason_size)
{
    struct minimal_address address;

    if (minimal_locate(&address))
        return DIST_OK;
    snprintf(reason, reason_size, "this machine has no id: %m");
    return DIST_ERR_UNSUPPORTED;
}

dist_status minimal_address(void *state, void *blob, size_t *size_p)
{
    const struct minimal *m = state;

    memcpy(blob, &m->address, sizeof(m->address));
    *size_p = sizeof(m->address);
    return DIST_OK;
}

dist_status minimal_reach(void *state, const void *blob, size_t size, struct dist_reach *reach_p)
{
    const struct minimal *m = state;

    if (size != sizeof(m->address) ||
        memcmp(blob, &m->address, offsetof(struct minimal_address, name)) != 0)
        return DIST_ERR_UNSUPPORTED;
    *reach_p = (struct dist_reach){.latency_ns = 5000, .bytes_per_second = 3e9};
    return DIST_OK;
}

/* ---- a socket for each peer ---- */

static dist_status minimal_errno(const struct minimal *m, const char *what)
{
    return m->host->fail(DIST_ERR_SYSTEM, "minimal: rank %d cannot %s: %m", m->rank, what);
}

/* Binds or connects (`call`) to the name that a rank is called by, or that another calls it from.
 * The zero in front keeps it out of the file system: the name ends with the socket. */
static bool minimal_name(int (*call)(int, const struct sockaddr *, socklen_t), int fd,
                         uint64_t number, int from)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, "dist-minimal/%llx/%d",
             (unsigned long long)number, from);
    return call(fd, (const struct sockaddr *)&name, sizeof(name)) == 0;
}

/* Events are edges: who hears of one goes on until there is no more to be had. */
static bool minimal_watch(const struct minimal *m, int rank)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.u32 = (uint32_t)rank};

    return epoll_ctl(m->epoll, EPOLL_CTL_ADD, m->peers[rank].fd, &event) == 0;
}

dist_status minimal_open(void *state, const struct dist_transport_config *config)
{
    struct minimal *m = state;
    int fd = socket(AF_UNIX, MINIMAL_SOCKET, 0);

    m->host = config->host;
    m->rank = config->rank;
    m->epoll = epoll_create1(EPOLL_CLOEXEC);
    m->peers = calloc((size_t)config->world_size, sizeof(*m->peers));
    for (m->ranks = 0; m->peers && m->ranks < config->world_size; m->ranks++)
        m->peers[m->ranks].fd = m->ranks == m->rank ? fd : MINIMAL_NONE;
    if (!m->peers && fd >= 0)
        close(fd);
    if (!m->peers || m->epoll < 0 || !minimal_locate(&m->address) ||
        !minimal_name(bind, fd, m->address.name, -1) || listen(fd, SOMAXCONN) != 0 ||
        !minimal_watch(m, m->rank))
        return minimal_errno(m, "listen");
    return DIST_OK;
}

/* The lower rank calls the higher. One that refuses has gone: reading will tell. */
dist_status minimal_connect(void *state, int rank, const void *blob, size_t size)
{
    struct minimal *m = state;
    struct minimal_address peer;
    int fd;

    if (rank < m->rank)
        return DIST_OK;
    memcpy(&peer, blob, size);
    fd = m->peers[rank].fd = socket(AF_UNIX, MINIMAL_SOCKET, 0);
    if (!minimal_name(bind, fd, peer.name, m->rank) || !minimal_watch(m, rank) ||
        (!minimal_name(connect, fd, peer.name, -1) && errno != ECONNREFUSED))
        return minimal_errno(m, "call a peer");
    return DIST_OK;
}

int minimal_accept(struct minimal *m)
{
    struct sockaddr_un from = {0};
    struct ucred caller = {0};
    socklen_t from_size = sizeof(from), caller_size = sizeof(caller);
    int fd = accept4(m->peers[m->rank].fd, (struct sockaddr *)&from, &from_size,
                     SOCK_NONBLOCK | SOCK_CLOEXEC);
    unsigned long long name;
    int rank;

    if (fd < 0)
        return errno == EAGAIN ? 0 : minimal_errno(m, "take a call");
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &caller, &caller_size);
    if (caller.uid != m->address.user ||
        sscanf(from.sun_path + 1, "dist-minimal/%llx/%d", &name, &rank) != 2 ||
        name != m->address.name || rank < 0 || rank >= m->rank ||
        m->peers[rank].fd != MINIMAL_NONE) {
        close(fd);
        return 1;
    }
    m->peers[rank].fd = fd;
    return minimal_watch(m, rank) ? 1 : minimal_errno(m, "take a call");
}
