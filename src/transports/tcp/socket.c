/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets, addresses, interfaces and congestion control of the tcp transport. */
#include "base/descriptor.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/net.h"
#include "base/settings/config.h"
#include "transports/tcp/state.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SOCKET_BACKLOG 1024
/*
 * With DIST_TCP_BUFFER: TCP segments that must fit into a socket buffer, and the smallest and
 * largest segment size (TCP_MAXSEG) that is set.
 */
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

static dist_status socket_resolve(struct tcp_state *state, const char *host)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    static const uint8_t wildcard[sizeof(state->local[0].endpoint.host)];
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
    if (memcmp(state->local[0].endpoint.host, wildcard, sizeof(wildcard)) == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "tcp: listening on every address (%s) is not allowed; name the address "
                          "of the interface that reaches the other ranks",
                          host);
    return DIST_OK;
}

static void socket_buffers(const struct tcp_state *state, int fd)
{
    int bytes = (int)state->socket_bytes, segment = bytes / SOCKET_SEGMENTS;

    if (!bytes)
        return;
    /*
     * On loopback, a segment may be larger than the receive window of a small buffer. The kernel
     * would then send only when its probe timer fires, every 200 ms, at 14 KB/s in total. Smaller
     * segments avoid this.
     */
    if (segment < SOCKET_SEGMENT_LEAST)
        segment = SOCKET_SEGMENT_LEAST;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    if (segment <= SOCKET_SEGMENT_MOST)
        setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof(segment));
}

/*
 * Listens at the endpoint's address and stores the port that the kernel chose there. Returns false
 * with errno set.
 */
static bool tcp_listen_at(const struct tcp_state *state, struct disti_tcp_endpoint *endpoint,
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
    if (!tcp_listen_at(state, endpoint, &state->listeners[0]))
        return disti_fail_errno(
            DIST_ERR_SYSTEM,
            "tcp: rank %d cannot listen on %s (check that it is an address of this "
            "machine)",
            state->rank, host);
    disti_machine_id(machine);
    endpoint->machine = disti_hash_text(DISTI_HASH_START, machine);
    state->interfaces = 1;
    return DIST_OK;
}

static int socket_between(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

void disti_tcp_silence_tune(const struct tcp_state *state, int fd)
{
    int one = 1, probes = 4;
    int idle = socket_between(state->timeout_ms / 3000, 1, 32767);
    int interval = socket_between(state->timeout_ms / 6000, 1, 32767);
    int apart = socket_between(state->timeout_ms / 4, 1000, 120000);

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &apart, sizeof(apart));
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

/*
 * Removes the socket from epoll explicitly: if a forked child has a copy of the descriptor, close
 * does not end the socket's events.
 */
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

/* Further interfaces, in addition to the one of the first listener. */

/*
 * Properties of a network card. By default, two interfaces are used together only if these are
 * equal.
 */
struct interfaces_card {
    char driver[32];
    unsigned speed; /* Mbit/s; all bits set: unknown */
    int mtu;
};

/* Reads the properties of the interface's card. Returns false if the interface is virtual. */
static bool interfaces_card(const char *name, struct interfaces_card *card_p)
{
    static const char *const made_up[] = {"bridge", "tun", "dummy", "bonding", "team", ""};
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    struct ethtool_cmd speed = {.cmd = ETHTOOL_GSET};
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
    *card_p = (struct interfaces_card){.speed = UINT32_MAX};
    request.ifr_data = (char *)&driver;
    if (fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0)
        snprintf(card_p->driver, sizeof(card_p->driver), "%.31s", driver.driver);
    request.ifr_data = (char *)&speed;
    if (fd >= 0 && ioctl(fd, SIOCETHTOOL, &request) == 0)
        card_p->speed = (uint32_t)speed.speed_hi << 16 |
                        speed.speed; /* ethtool_cmd_speed() shifts a signed value */
    if (fd >= 0 && ioctl(fd, SIOCGIFMTU, &request) == 0)
        card_p->mtu = request.ifr_mtu;
    if (fd >= 0)
        close(fd);
    for (size_t i = 0; i < sizeof(made_up) / sizeof(made_up[0]); i++) {
        if (strcmp(card_p->driver, made_up[i]) == 0)
            return false;
    }
    return true;
}

/* Returns the length of the network prefix in bits. Without a mask: 128, the whole address. */
static int interfaces_prefix(const struct sockaddr *mask)
{
    struct disti_tcp_endpoint bits = {0};
    int prefix = 0;

    if (!mask)
        return 128;
    disti_tcp_endpoint_of(mask, &bits);
    while (prefix < 128 && bits.host[prefix / 8] & (0x80 >> prefix % 8))
        prefix++;
    return prefix;
}

/*
 * True if the address can be used: it has the family of the first listener's address, its interface
 * is up and not loopback, and it is not an IPv6 link-local address.
 */
static bool interfaces_usable(const struct tcp_state *state, const struct ifaddrs *entry)
{
    int family = state->local[0].endpoint.family == 6 ? AF_INET6 : AF_INET;

    if (!entry->ifa_addr || entry->ifa_addr->sa_family != family ||
        entry->ifa_flags & IFF_LOOPBACK ||
        (entry->ifa_flags & (IFF_UP | IFF_RUNNING)) != (IFF_UP | IFF_RUNNING) ||
        strlen(entry->ifa_name) >= sizeof(state->local[0].name))
        return false;
    return family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(
               &((const struct sockaddr_in6 *)(const void *)entry->ifa_addr)->sin6_addr);
}

/* True if the address is in the interface's network. */
static bool tcp_in_network(const struct disti_tcp_local *local,
                           const struct disti_tcp_endpoint *remote)
{
    for (int bit = 0; bit < local->prefix; bit++) {
        int differ = local->endpoint.host[bit / 8] ^ remote->host[bit / 8];

        if (differ & (0x80 >> bit % 8))
            return false;
    }
    return true;
}

/*
 * Adds an interface if DIST_SOCKET_IFNAME names it. By default, adds it only if its card equals the
 * first interface's and no interface in use is in the same network, since the kernel would send all
 * traffic of one network through the same interface.
 */
static void interfaces_add(struct tcp_state *state, const struct ifaddrs *entry)
{
    struct disti_tcp_local *local = &state->local[state->interfaces];
    const char *spec = disti_env("DIST_SOCKET_IFNAME");
    struct interfaces_card first, card;
    char text[TCP_TEXT];

    *local = (struct disti_tcp_local){.prefix = interfaces_prefix(entry->ifa_netmask)};
    disti_tcp_endpoint_of(entry->ifa_addr, &local->endpoint);
    if (spec && !disti_interface_fits(spec, entry->ifa_name))
        return;
    for (int i = 0; i < state->interfaces; i++) {
        if (strcmp(state->local[i].name, entry->ifa_name) == 0 ||
            (!state->routed && tcp_in_network(&state->local[i], &local->endpoint)))
            return;
    }
    if (!state->routed &&
        (!interfaces_card(state->local[0].name, &first) ||
         !interfaces_card(entry->ifa_name, &card) || strcmp(first.driver, card.driver) != 0 ||
         first.speed != card.speed || first.mtu != card.mtu))
        return;
    snprintf(local->name, sizeof(local->name), "%s", entry->ifa_name);
    if (!tcp_listen_at(state, &local->endpoint, &state->listeners[state->interfaces])) {
        disti_info("rank %d leaves out interface %s: it cannot listen there: %s", state->rank,
                   local->name, strerror(errno));
        return;
    }
    local->endpoint.machine = state->local[0].endpoint.machine;
    disti_tcp_endpoint_text(&local->endpoint, text, sizeof(text));
    disti_info("rank %d also uses interface %s (%s)", state->rank, local->name, text);
    state->interfaces++;
}

/* Finds the name and network prefix of the first listener's interface. */
static void interfaces_first(struct tcp_state *state, const struct ifaddrs *all)
{
    struct disti_tcp_local *first = &state->local[0];

    for (const struct ifaddrs *entry = all; entry; entry = entry->ifa_next) {
        struct disti_tcp_endpoint endpoint;

        if (!interfaces_usable(state, entry))
            continue;
        disti_tcp_endpoint_of(entry->ifa_addr, &endpoint);
        if (memcmp(endpoint.host, first->endpoint.host, sizeof(endpoint.host)) != 0)
            continue;
        first->prefix = interfaces_prefix(entry->ifa_netmask);
        snprintf(first->name, sizeof(first->name), "%.15s", entry->ifa_name);
        return;
    }
}

void disti_tcp_interfaces(struct tcp_state *state)
{
    const char *spec = disti_env("DIST_SOCKET_IFNAME");
    struct ifaddrs *all;

    state->routed = spec && spec[0] != '^';
    if (state->sockets == 1 || disti_tcp_loopback(&state->local[0].endpoint) || getifaddrs(&all))
        return;
    interfaces_first(state, all);
    for (const struct ifaddrs *entry = all; entry && state->local[0].name[0];
         entry = entry->ifa_next) {
        if (state->interfaces < DISTI_TCP_INTERFACES && interfaces_usable(state, entry))
            interfaces_add(state, entry);
    }
    freeifaddrs(all);
}

/* Paths between the interfaces of two ranks, and the division of messages into stripes. */

/*
 * Stripes per socket into which the remaining bytes of a message are divided. With several stripes
 * per socket, a faster socket can send more of them. The size is computed anew for each stripe, so
 * stripes become smaller towards the end, and a slow socket delays the end only a little.
 */
#define PATHS_STRIPES_EACH 4

uint64_t disti_tcp_stripe_bytes(uint64_t bytes, int sockets, uint64_t offset)
{
    uint64_t each = (bytes - offset) / (uint64_t)(sockets * PATHS_STRIPES_EACH);

    if (each < DISTI_TCP_STRIPE_LEAST)
        each = DISTI_TCP_STRIPE_LEAST;
    if (each > DISTI_TCP_STRIPE_MOST)
        each = DISTI_TCP_STRIPE_MOST;
    each -= each % DISTI_TCP_STRIPE_ALIGN;
    return bytes - offset < each ? bytes - offset : each;
}

bool disti_tcp_stripe_fits(uint64_t bytes, uint64_t offset, uint64_t stripe)
{
    return stripe > 0 && offset < bytes && stripe <= bytes - offset &&
           offset % DISTI_TCP_STRIPE_ALIGN == 0 &&
           (stripe % DISTI_TCP_STRIPE_ALIGN == 0 || stripe == bytes - offset);
}

/* Paths chosen so far. local_used and remote_used: a bit per interface that is on a path. */
struct paths_plan {
    const struct disti_tcp_local *local;
    int locals;
    const struct disti_tcp_address *remote;
    struct disti_tcp_path *paths;
    int count;
    unsigned local_used, remote_used;
};

static void paths_add(struct paths_plan *plan, int local, int remote)
{
    if (plan->count == DISTI_TCP_INTERFACES)
        return;
    plan->paths[plan->count++] = (struct disti_tcp_path){local, remote};
    plan->local_used |= 1u << local;
    plan->remote_used |= 1u << remote;
}

/*
 * Adds a path for each pair of interfaces in one network. With local_new, only local interfaces
 * without a path are considered; remote_new does the same for remote interfaces.
 */
static void paths_join(struct paths_plan *plan, bool local_new, bool remote_new)
{
    for (int l = 0; l < plan->locals; l++) {
        for (int r = 0; r < plan->remote->interfaces; r++) {
            if ((local_new && plan->local_used >> l & 1) ||
                (remote_new && plan->remote_used >> r & 1) ||
                !tcp_in_network(&plan->local[l], &plan->remote->endpoint[r]))
                continue;
            paths_add(plan, l, r);
        }
    }
}

/*
 * Pairs the unused interfaces of both sides in order, without regard to networks. If one side has
 * more, pairs its remaining interfaces with used interfaces of the other side.
 */
static void paths_route(struct paths_plan *plan)
{
    int r = 0;

    for (int l = 0; l < plan->locals; l++) {
        if (plan->local_used >> l & 1)
            continue;
        while (r < plan->remote->interfaces && plan->remote_used >> r & 1)
            r++;
        paths_add(plan, l, r < plan->remote->interfaces ? r : l % plan->remote->interfaces);
    }
    for (r = 0; r < plan->remote->interfaces; r++) {
        if (!(plan->remote_used >> r & 1))
            paths_add(plan, r % plan->locals, r);
    }
}

int disti_tcp_paths(const struct disti_tcp_local *local, int locals,
                    const struct disti_tcp_address *remote, bool routed,
                    struct disti_tcp_path paths_p[DISTI_TCP_INTERFACES])
{
    struct paths_plan plan = {.local = local, .locals = locals, .remote = remote, .paths = paths_p};
    int home = 0;

    while (home < locals && !tcp_in_network(&local[home], &remote->endpoint[0]))
        home++;
    paths_add(&plan, home < locals ? home : 0, 0);
    if (local[0].endpoint.machine == remote->endpoint[0].machine)
        return plan.count;
    paths_join(&plan, true, true);
    paths_join(&plan, true, false);
    paths_join(&plan, false, true);
    if (routed)
        paths_route(&plan);
    return plan.count;
}

int disti_tcp_sockets(int own, int remote, int paths)
{
    int here = own ? own : paths, there = remote ? remote : paths;

    return here < there ? here : there;
}

/* The congestion control of connections. */

/* Used instead of bbr for peers on the same network. Every kernel has it, without privileges. */
#define CONGESTION_NEAR "reno"
/* The value of DIST_TCP_CONGESTION that selects the system's default. */
#define CONGESTION_SYSTEM "system"

static bool congestion_set(int fd, const char *name)
{
    return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)) == 0;
}

dist_status disti_tcp_congestion_open(struct tcp_state *state)
{
    const char *name = disti_env("DIST_TCP_CONGESTION");
    socklen_t size = sizeof(state->paced) - 1;

    if (name && strcmp(name, CONGESTION_SYSTEM) == 0)
        return DIST_OK;
    if (name &&
        !congestion_set(state->listeners[0], name)) /* fails if the kernel does not allow it */
        return disti_fail_errno(
            DIST_ERR_INVALID_ARGUMENT,
            "DIST_TCP_CONGESTION is \"%.32s\", which this kernel refuses: set it to "
            "\"" CONGESTION_SYSTEM "\" or a name in "
            "/proc/sys/net/ipv4/tcp_allowed_congestion_control",
            name);
    if (name) {
        snprintf(state->congestion, sizeof(state->congestion), "%s", name);
        return DIST_OK;
    }
    if (getsockopt(state->listeners[0], IPPROTO_TCP, TCP_CONGESTION, state->paced, &size) ||
        !(strncmp(state->paced, "bbr", 3) == 0) ||
        !congestion_set(state->listeners[0], CONGESTION_NEAR))
        state->paced[0] = '\0';
    else
        snprintf(state->congestion, sizeof(state->congestion), "%s", CONGESTION_NEAR);
    return DIST_OK;
}

void disti_tcp_congestion(const struct tcp_state *state, int fd)
{
    if (state->congestion[0])
        (void)congestion_set(fd, state->congestion);
}
