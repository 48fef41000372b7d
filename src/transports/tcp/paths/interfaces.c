/* SPDX-License-Identifier: BSD-3-Clause */
/* Which further interfaces of this machine carry, beside the one that the listener has. */
#include "base/descriptor.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "transports/tcp/state.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* What makes two interfaces equal; of such as are no network cards nothing does. */
struct interfaces_card {
    char driver[32];
    unsigned speed; /* Mbit/s; all ones if it is not known */
    int mtu;
};

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
        card_p->speed =
            (uint32_t)speed.speed_hi << 16 | speed.speed; /* the header's shift is signed */
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

static bool interfaces_equal(const char *one, const char *other)
{
    struct interfaces_card a, b;

    return interfaces_card(one, &a) && interfaces_card(other, &b) &&
           strcmp(a.driver, b.driver) == 0 && a.speed == b.speed && a.mtu == b.mtu;
}

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

/* An address that could serve: of the first one's family, and not the loopback's. */
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

/*
 * Shall it carry too? If it is named, yes. Unasked, only if it is the first one's equal, in a
 * network of its own: two in one network are one to the kernel, which sends all by the same.
 */
static bool interfaces_wanted(const struct tcp_state *state, const struct ifaddrs *entry,
                              const struct disti_tcp_endpoint *endpoint)
{
    const char *spec = disti_env("DIST_SOCKET_IFNAME");

    if (spec && !disti_interface_fits(spec, entry->ifa_name))
        return false;
    for (int i = 0; i < state->interfaces; i++) {
        if (strcmp(state->local[i].name, entry->ifa_name) == 0 ||
            (!state->routed && disti_tcp_in_network(&state->local[i], endpoint)))
            return false;
    }
    return state->routed || interfaces_equal(state->local[0].name, entry->ifa_name);
}

static void interfaces_add(struct tcp_state *state, const struct ifaddrs *entry)
{
    struct disti_tcp_local *local = &state->local[state->interfaces];
    char text[TCP_TEXT];

    *local = (struct disti_tcp_local){.prefix = interfaces_prefix(entry->ifa_netmask)};
    disti_tcp_endpoint_of(entry->ifa_addr, &local->endpoint);
    if (!interfaces_wanted(state, entry, &local->endpoint))
        return;
    snprintf(local->name, sizeof(local->name), "%s", entry->ifa_name);
    if (!disti_tcp_listen_at(state, &local->endpoint, &state->listeners[state->interfaces])) {
        disti_info("rank %d leaves out interface %s: it cannot listen there: %s", state->rank,
                   local->name, strerror(errno));
        return;
    }
    local->endpoint.machine = state->local[0].endpoint.machine;
    disti_tcp_endpoint_text(&local->endpoint, text, sizeof(text));
    disti_info("rank %d also uses interface %s (%s)", state->rank, local->name, text);
    state->interfaces++;
}

/* The name and the network of the interface that the first listener has. */
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
