/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets and addresses of the tcp transport. */
#include "base/net/socket.h"
#include "base/descriptor.h"
#include "base/hash.h"
#include "base/log.h"
#include "transports/tcp/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#define SOCKET_BACKLOG 1024
/* With DIST_TCP_BUFFER: segments that fit into a buffer, and what TCP_MAXSEG takes. */
#define SOCKET_SEGMENTS 8
#define SOCKET_SEGMENT_LEAST 256
#define SOCKET_SEGMENT_MOST 32767

void disti_tcp_endpoint_of(const struct sockaddr *address, struct disti_tcp_endpoint *endpoint_p)
{
    memset(endpoint_p, 0, sizeof(*endpoint_p));
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;

        endpoint_p->family = 4;
        endpoint_p->port = ntohs(in->sin_port);
        memcpy(endpoint_p->host, &in->sin_addr, 4);
    } else {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)address;

        endpoint_p->family = 6;
        endpoint_p->port = ntohs(in6->sin6_port);
        memcpy(endpoint_p->host, &in6->sin6_addr, 16);
    }
}

socklen_t disti_tcp_sockaddr(const struct disti_tcp_endpoint *endpoint, uint32_t scope,
                             struct sockaddr_storage *address_p)
{
    memset(address_p, 0, sizeof(*address_p));
    if (endpoint->family == 4) {
        struct sockaddr_in *in = (struct sockaddr_in *)address_p;

        in->sin_family = AF_INET;
        in->sin_port = htons(endpoint->port);
        memcpy(&in->sin_addr, endpoint->host, 4);
        return sizeof(*in);
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address_p;

    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons(endpoint->port);
    memcpy(&in6->sin6_addr, endpoint->host, 16);
    if (IN6_IS_ADDR_LINKLOCAL(&in6->sin6_addr))
        in6->sin6_scope_id = scope;
    return sizeof(*in6);
}

void disti_tcp_host_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size)
{
    if (!inet_ntop(endpoint->family == 6 ? AF_INET6 : AF_INET, endpoint->host, text,
                   (socklen_t)size))
        snprintf(text, size, "?");
}

void disti_tcp_endpoint_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size)
{
    char host[INET6_ADDRSTRLEN];

    disti_tcp_host_text(endpoint, host, sizeof(host));
    snprintf(text, size, endpoint->family == 6 ? "[%s]:%u" : "%s:%u", host, endpoint->port);
}

bool disti_tcp_loopback(const struct disti_tcp_endpoint *endpoint)
{
    static const uint8_t six[16] = {[15] = 1};

    return endpoint->family == 4 ? endpoint->host[0] == 127 : memcmp(endpoint->host, six, 16) == 0;
}

static bool socket_wildcard(const struct disti_tcp_endpoint *endpoint)
{
    static const uint8_t zero[16];

    return memcmp(endpoint->host, zero, sizeof(zero)) == 0;
}

static dist_status socket_resolve(struct tcp_state *state, const char *host)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = host ? getaddrinfo(host, "0", &hints, &found) : EAI_NONAME;

    if (failed || (found->ai_family != AF_INET && found->ai_family != AF_INET6)) {
        if (found)
            freeaddrinfo(found);
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "tcp: '%s' is not a numeric IPv4 or IPv6 address to listen on",
                          host ? host : "(none)");
    }
    if (found->ai_family == AF_INET6)
        state->scope = ((struct sockaddr_in6 *)(void *)found->ai_addr)->sin6_scope_id;
    disti_tcp_endpoint_of(found->ai_addr, &state->local[0].endpoint);
    freeaddrinfo(found);
    if (socket_wildcard(&state->local[0].endpoint))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "tcp: listening on every address (%s) is not allowed; name the address "
                          "of the interface that reaches the other ranks",
                          host);
    return DIST_OK;
}

/*
 * The loopback's segments may be longer than the window that a small buffer gives. The kernel then
 * sends what fits by the timer of a probe, every 200 ms: 14 KB/s. Of these several fit.
 */
static int socket_segment(int buffer)
{
    const int bytes = buffer / SOCKET_SEGMENTS;

    return bytes < SOCKET_SEGMENT_LEAST ? SOCKET_SEGMENT_LEAST : bytes;
}

static void socket_buffers(const struct tcp_state *state, int fd)
{
    int bytes = (int)state->socket_bytes, segment = socket_segment(bytes);

    if (!bytes)
        return;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    if (segment <= SOCKET_SEGMENT_MOST)
        setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof(segment));
}

bool disti_tcp_listen_at(const struct tcp_state *state, struct disti_tcp_endpoint *endpoint,
                         int *fd_p)
{
    struct sockaddr_storage address;
    socklen_t length;
    int one = 1;
    int fd;

    endpoint->port = 0;
    length = disti_tcp_sockaddr(endpoint, state->scope, &address);
    fd = disti_descriptor_own(
        socket(address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd < 0)
        return false;
    if (address.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    socket_buffers(state, fd);
    if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, SOCKET_BACKLOG) ||
        getsockname(fd, (struct sockaddr *)&address, &length)) {
        int error = errno;

        disti_descriptor_close(fd);
        errno = error;
        return false;
    }
    disti_tcp_endpoint_of((struct sockaddr *)&address, endpoint);
    *fd_p = fd;
    return true;
}

dist_status disti_tcp_listen(struct tcp_state *state, const char *host)
{
    struct disti_tcp_endpoint *endpoint = &state->local[0].endpoint;
    char machine[DISTI_HOST_SIZE];
    dist_status status = socket_resolve(state, host);

    if (status != DIST_OK)
        return status;
    if (!disti_tcp_listen_at(state, endpoint, &state->listeners[0]))
        return disti_fail_errno(DIST_ERR_SYSTEM,
                                "tcp: rank %d cannot listen on %s (is it an address of this "
                                "machine?)",
                                state->rank, host);
    disti_machine_id(machine);
    endpoint->machine = disti_hash_text(DISTI_HASH_START, machine);
    state->interfaces = 1;
    return DIST_OK;
}

void disti_tcp_tune(const struct tcp_state *state, int fd)
{
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    disti_tcp_silence_tune(state, fd);
    socket_buffers(state, fd);
}

bool disti_tcp_watch(struct tcp_state *state, int fd, int event, int index, bool replace)
{
    struct epoll_event what = {.events = EPOLLIN | EPOLLET};

    if (event >= TCP_EVENT_PENDING)
        what.events |= EPOLLOUT | EPOLLRDHUP;
    what.data.u64 = (uint64_t)event << 32 | (uint32_t)index;
    return epoll_ctl(state->epoll, replace ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &what) == 0;
}

/* A copy of it that a forked child has would go on waking us. */
void disti_tcp_hang_up(const struct tcp_state *state, int fd)
{
    epoll_ctl(state->epoll, EPOLL_CTL_DEL, fd, NULL);
    disti_descriptor_close(fd);
}

void disti_tcp_tick_on(struct tcp_state *state, bool on)
{
    struct itimerspec every = {{0, 0}, {0, 0}};

    if (state->ticking == on)
        return;
    if (on)
        every.it_interval.tv_nsec = every.it_value.tv_nsec = TCP_TICK_MS * 1000000L;
    state->ticking = timerfd_settime(state->timer, 0, &every, NULL) == 0 ? on : state->ticking;
}
