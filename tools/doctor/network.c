/* SPDX-License-Identifier: BSD-3-Clause */
/* The network: which address others get, and what this machine's name stands for. */
#include "doctor.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* An interface with an address that others could be given. */
struct network_link {
    char name[IF_NAMESIZE], address[INET6_ADDRSTRLEN];
    bool virtual; /* of containers and machines inside this one */
};

enum { NETWORK_LINKS = 64 };

static bool network_is_virtual(const char *name)
{
    static const char *const kinds[] = {"docker", "virbr", "veth",   "br-",  "cni",   "flannel",
                                        "lxc",    "lxd",   "podman", "cali", "vmnet", "vboxnet"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strncmp(name, kinds[i], strlen(kinds[i])) == 0)
            return true;
    }
    return false;
}

/* Does the name fit DIST_SOCKET_IFNAME: beginnings, "=names", "^all but these"? */
static bool network_fits(const char *spec, const char *name)
{
    const bool except = *spec == '^', exact = spec[except] == '=';
    bool fits = false;

    spec += except + exact;
    while (*spec) {
        const size_t length = strcspn(spec, ",");

        fits = fits || (length && strncmp(spec, name, length) == 0 && (!exact || !name[length]));
        spec += length + (spec[length] == ',');
    }
    return fits != except;
}

/* IPv4 before IPv6, as libdist takes them. */
static int network_links(struct network_link *links)
{
    struct ifaddrs *all = NULL;
    int count = 0;

    if (getifaddrs(&all) != 0)
        return 0;
    for (int pass = 0; pass < 2; pass++) {
        for (struct ifaddrs *at = all; at && count < NETWORK_LINKS; at = at->ifa_next) {
            struct network_link *link = &links[count];
            const struct sockaddr_in6 *six = (const void *)at->ifa_addr;

            if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK) ||
                at->ifa_addr->sa_family != (pass ? AF_INET6 : AF_INET) ||
                (pass && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)))
                continue;
            snprintf(link->name, sizeof(link->name), "%s", at->ifa_name);
            link->virtual = network_is_virtual(at->ifa_name);
            getnameinfo(at->ifa_addr, pass ? sizeof(*six) : sizeof(struct sockaddr_in),
                        link->address, sizeof(link->address), NULL, 0, NI_NUMERICHOST);
            count++;
        }
    }
    freeifaddrs(all);
    return count;
}

/* The interface of the default route; false: there is none. */
static bool network_route(char name[IF_NAMESIZE])
{
    FILE *routes = fopen("/proc/net/route", "re");
    char line[256], interface[64];
    unsigned long destination;
    bool found = false;

    while (routes && !found && fgets(line, sizeof(line), routes)) {
        found = sscanf(line, "%15s %lx", interface, &destination) == 2 && destination == 0;
        if (found)
            snprintf(name, IF_NAMESIZE, "%.15s", interface);
    }
    if (routes)
        fclose(routes);
    return found;
}

/*
 * From which address packets to that host would go. 1: that address; 0: the host has none; -1: no
 * route leads to it. Nothing is sent.
 */
static int network_source(const char *host, char address[INET6_ADDRSTRLEN])
{
    struct addrinfo hints = {.ai_socktype = SOCK_DGRAM}, *to = NULL;
    struct sockaddr_storage from;
    socklen_t size = sizeof(from);
    int fd, result = -1;

    if (getaddrinfo(host, "9", &hints, &to) != 0)
        return 0;
    fd = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0 &&
        getsockname(fd, (struct sockaddr *)&from, &size) == 0 &&
        getnameinfo((struct sockaddr *)&from, size, address, INET6_ADDRSTRLEN, NULL, 0,
                    NI_NUMERICHOST) == 0)
        result = 1;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(to);
    return result;
}

/*
 * The one that would be taken: as the settings say, else that towards MASTER_ADDR, else that of the
 * default route, else the first.
 */
static const struct network_link *network_taken(const struct network_link *links, int count)
{
    const char *spec = getenv("DIST_SOCKET_IFNAME");
    const struct network_link *first = NULL;
    const char *meeting = getenv("MASTER_ADDR");
    char route[IF_NAMESIZE], source[INET6_ADDRSTRLEN];
    const bool leads = meeting && *meeting && network_source(meeting, source) == 1;

    for (int i = 0; i < count && leads && !(spec && *spec); i++) {
        if (strcmp(links[i].address, source) == 0)
            return &links[i];
    }
    for (int i = 0; i < count && !first; i++) {
        if (!spec || !*spec || network_fits(spec, links[i].name))
            first = &links[i];
    }
    if (!network_route(route) || (spec && *spec && *spec != '^'))
        return first;
    for (int i = 0; i < count; i++) {
        if (strcmp(links[i].name, route) == 0 && (!spec || !*spec || network_fits(spec, route)))
            return &links[i];
    }
    return first;
}

static const struct network_link *network_physical(const struct network_link *links, int count)
{
    for (int i = 0; i < count; i++) {
        if (!links[i].virtual)
            return &links[i];
    }
    return NULL;
}

static void network_interface(struct doctor_report *report, const struct network_link *links,
                              int count)
{
    const struct network_link *taken = network_taken(links, count);
    const struct network_link *physical = network_physical(links, count);
    const char *spec = getenv("DIST_SOCKET_IFNAME");

    if (!taken && count) {
        doctor_fault(report, "interface", "DIST_SOCKET_IFNAME=%.40s fits none of the interfaces",
                     spec);
        doctor_mend(report, "export DIST_SOCKET_IFNAME='=%s'", links[0].name);
    } else if (!taken) {
        doctor_note(report, "interface", "loopback only: all ranks must be on this machine");
    } else if (taken->virtual && physical && !(spec && *spec && *spec != '^')) {
        doctor_fault(report, "interface",
                     "other machines would be given %s of %s, which leads into this machine",
                     taken->address, taken->name);
        doctor_mend(report, "export DIST_SOCKET_IFNAME='=%s'", physical->name);
    } else if (taken->virtual) {
        doctor_note(report, "interface", "%s %s, which leads into this machine", taken->name,
                    taken->address);
    } else {
        doctor_ok(report, "interface", "%s %s", taken->name, taken->address);
    }
    doctor_own(report);
}

static void network_meeting(struct doctor_report *report, const struct network_link *physical)
{
    const char *meeting = getenv("MASTER_ADDR");
    char source[INET6_ADDRSTRLEN];
    int found = meeting && *meeting ? network_source(meeting, source) : 0;

    if (found == 0)
        return; /* the check of what MASTER_ADDR is says that */
    if (found > 0) {
        doctor_ok(report, "route", "from %s to MASTER_ADDR", source);
    } else {
        doctor_fault(report, "route", "no route leads to MASTER_ADDR=%.60s", meeting);
        if (physical)
            doctor_mend(report, "ip route add %.60s dev %s", meeting, physical->name);
        doctor_other(report, "set MASTER_ADDR to an address in a network of this machine");
    }
    doctor_own(report);
}

/* ---- the machine's name ---- */

/* The numeric address that the name stands for first; what is wrong, or NULL. */
static const char *network_resolve(const char *name, char address[INET6_ADDRSTRLEN])
{
    struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found = NULL;
    int error = getaddrinfo(name, NULL, &hints, &found);

    if (error) {
        hints.ai_family = AF_INET6;
        error = getaddrinfo(name, NULL, &hints, &found);
    }
    if (error)
        return gai_strerror(error);
    getnameinfo(found->ai_addr, found->ai_addrlen, address, INET6_ADDRSTRLEN, NULL, 0,
                NI_NUMERICHOST);
    freeaddrinfo(found);
    return NULL;
}

/*
 * As Debian has it in /etc/hosts: 127.0.1.1. libdist, distrun and Open MPI ask the interfaces, so
 * it does them no harm; MPICH's mpirun tells its other hosts to call that name.
 */
static void network_hidden(struct doctor_report *report, const struct network_link *taken,
                           const char *address)
{
    const char *hosts = getenv("HYDRA_HOST_FILE"), *interface = getenv("HYDRA_IFACE");

    if (hosts && *hosts && !(interface && *interface))
        doctor_fault(report, "host-name",
                     "/etc/hosts maps this machine's name, %s, to %s, so the other hosts of "
                     "HYDRA_HOST_FILE do not reach MPICH's mpirun here",
                     report->host, address);
    else
        doctor_note(report, "host-name",
                    "/etc/hosts maps this machine's name, %s, to %s: no matter to libdist, but "
                    "MPICH's mpirun over several hosts needs -iface %s then",
                    report->host, address, taken->name);
    /* Not sed -i: in a container the file is a mount, which cannot be replaced. */
    doctor_mend(report,
                "hosts=$(sed '/^127\\./s/[[:space:]]%s\\>//' /etc/hosts) && "
                "printf '%%s\\n%%s\\n' '%s %s' \"$hosts\" >/etc/hosts",
                report->host, taken->address, report->host);
    doctor_other(report, "export HYDRA_IFACE=%s", taken->name);
}

static void network_name(struct doctor_report *report, const struct network_link *taken)
{
    char address[INET6_ADDRSTRLEN];
    const char *wrong = network_resolve(report->host, address);

    if (wrong) {
        doctor_fault(report, "host-name", "this machine's name, %s, stands for no address: %s",
                     report->host, wrong);
        doctor_mend(report, "echo '%s %s' >>/etc/hosts", taken ? taken->address : "127.0.0.1",
                    report->host);
    } else if (strncmp(address, "127.", 4) == 0 && taken) {
        network_hidden(report, taken, address);
    } else {
        doctor_ok(report, "host-name", "%s is %s", report->host, address);
    }
    doctor_own(report);
}

void doctor_network(struct doctor_report *report)
{
    struct network_link links[NETWORK_LINKS];
    const int count = network_links(links);

    network_interface(report, links, count);
    network_meeting(report, network_physical(links, count));
    network_name(report, network_taken(links, count));
}
