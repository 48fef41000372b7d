/* SPDX-License-Identifier: BSD-3-Clause */
/* Which of this machine's addresses the others should use. */
#include "base/net/socket.h"

#include "base/log.h"
#include "base/process/own.h"
#include "base/settings/config.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* IPv4 before IPv6, as most clusters have it; no link-local addresses, they need a scope. */
static int interface_rank(const struct ifaddrs *interface)
{
    const struct sockaddr *address = interface->ifa_addr;

    if (!address || !(interface->ifa_flags & IFF_UP))
        return 0;
    if (address->sa_family == AF_INET)
        return 2;
    if (address->sa_family != AF_INET6 ||
        IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr))
        return 0;
    return 1;
}

static bool interface_find(const char *spec, char text[DISTI_HOST_SIZE])
{
    struct ifaddrs *all, *i;
    int best = 0;

    if (getifaddrs(&all))
        return false;
    for (i = all; i; i = i->ifa_next) {
        /* Loopback only if it is named, never because "^docker" leaves it over. */
        if (spec[0] == '^' && (i->ifa_flags & IFF_LOOPBACK))
            continue;
        if (interface_rank(i) > best && disti_interface_fits(spec, i->ifa_name)) {
            best = interface_rank(i);
            disti_address_text(i->ifa_addr, text);
        }
    }
    freeifaddrs(all);
    return best > 0;
}

/* The source address that the kernel would use to reach `far`. Nothing is sent. */
static bool interface_route(int family, const char *far, char text[DISTI_HOST_SIZE])
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    struct sockaddr_storage own;
    socklen_t length = sizeof(own);
    int fd = socket(family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool found;

    if (fd < 0)
        return false;
    if (family == AF_INET)
        found = inet_pton(AF_INET, far, &v4.sin_addr) == 1 &&
                connect(fd, (struct sockaddr *)&v4, sizeof(v4)) == 0;
    else
        found = inet_pton(AF_INET6, far, &v6.sin6_addr) == 1 &&
                connect(fd, (struct sockaddr *)&v6, sizeof(v6)) == 0;
    found = found && getsockname(fd, (struct sockaddr *)&own, &length) == 0;
    if (found)
        disti_address_text((struct sockaddr *)&own, text);
    close(fd);
    return found;
}

dist_status disti_primary_address(char text[DISTI_HOST_SIZE])
{
    const char *spec = disti_env("DIST_SOCKET_IFNAME");

    if (spec) {
        if (interface_find(spec, text))
            return DIST_OK;
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "DIST_SOCKET_IFNAME is \"%.64s\", which matches no interface that is up "
                          "and has an address: give the beginning of a name that `ip addr` shows",
                          spec);
    }
    /* Addresses set aside for documentation: only the default route can lead there. */
    if (!interface_route(AF_INET, "198.51.100.1", text) &&
        !interface_route(AF_INET6, "2001:db8::1", text) && !interface_find("^", text))
        snprintf(text, DISTI_HOST_SIZE, "%s", disti_loopback());
    return DIST_OK;
}

void disti_machine_id(char text[DISTI_HOST_SIZE])
{
    char boot[40] = "";
    struct stat network = {0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

    if (!file || !fgets(boot, sizeof(boot), file))
        disti_host_name(text);
    if (file)
        fclose(file);
    boot[strcspn(boot, "\n")] = 0;
    /* Containers share the kernel, but not 127.0.0.1. */
    stat(DISTI_PROCESS_OWN "/ns/net", &network);
    if (boot[0])
        snprintf(text, DISTI_HOST_SIZE, "%s/%llu", boot, (unsigned long long)network.st_ino);
}
