/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets, addresses and host names. */
#include "base/net.h"
#include "base/ascii.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/process.h"
#include "base/settings/config.h"
#include "base/thread.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- resolving a name within a deadline ---- */

static const struct addrinfo resolve_hints = {
    .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};

/*
 * A lookup in a separate thread, since getaddrinfo may wait for a name server longer than the
 * caller's deadline. At the deadline the caller abandons the lookup, and the thread frees it.
 */
struct resolve_lookup {
    pthread_mutex_t lock;
    pthread_cond_t done_changed;
    bool done, abandoned;
    int code;
    struct addrinfo *addresses;
    char service[16];
    char host[];
};

static void resolve_free(struct resolve_lookup *lookup)
{
    if (lookup->addresses)
        freeaddrinfo(lookup->addresses);
    pthread_cond_destroy(&lookup->done_changed);
    pthread_mutex_destroy(&lookup->lock);
    free(lookup);
}

static void *resolve_run(void *arg)
{
    struct resolve_lookup *lookup = arg;
    struct addrinfo *addresses = NULL;
    int code = getaddrinfo(lookup->host, lookup->service, &resolve_hints, &addresses);
    bool abandoned;

    pthread_mutex_lock(&lookup->lock);
    lookup->code = code;
    lookup->addresses = addresses;
    lookup->done = true;
    abandoned = lookup->abandoned;
    pthread_cond_signal(&lookup->done_changed);
    pthread_mutex_unlock(&lookup->lock);
    if (abandoned)
        resolve_free(lookup);
    return NULL;
}

int disti_resolve(const char *host, int port, int64_t deadline, struct addrinfo **addresses_p)
{
    const size_t length = strlen(host) + 1;
    struct addrinfo numeric = resolve_hints;
    struct resolve_lookup *lookup;
    pthread_condattr_t monotonic;
    struct timespec until;
    char service[16];
    pthread_t thread;
    int code, held, error = 0;
    bool abandoned;

    *addresses_p = NULL;
    numeric.ai_flags |= AI_NUMERICHOST;
    snprintf(service, sizeof(service), "%d", port);
    code = getaddrinfo(host, service, &numeric, addresses_p);
    if (code != EAI_NONAME)
        return code;
    lookup = calloc(1, sizeof(*lookup) + length);
    if (!lookup)
        return EAI_MEMORY;
    memcpy(lookup->host, host, length);
    snprintf(lookup->service, sizeof(lookup->service), "%s", service);
    pthread_mutex_init(&lookup->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lookup->done_changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    held = disti_cancel_hold();
    if (disti_thread_create(&thread, resolve_run, lookup) == 0) {
        pthread_detach(thread);
        until = disti_clock_timespec(deadline);
        pthread_mutex_lock(&lookup->lock);
        while (!lookup->done && !error)
            error = pthread_cond_timedwait(&lookup->done_changed, &lookup->lock, &until);
        code = lookup->done ? lookup->code : EAI_AGAIN;
        if (lookup->done) {
            *addresses_p = lookup->addresses;
            lookup->addresses = NULL;
        } else
            lookup->abandoned = true;
        abandoned = lookup->abandoned;
        pthread_mutex_unlock(&lookup->lock);
        if (!abandoned)
            resolve_free(lookup);
    } else {
        resolve_free(lookup);
        code = getaddrinfo(host, service, &resolve_hints, addresses_p);
    }
    disti_cancel_let(held);
    return code;
}

/* ---- kinds of addresses ---- */

static const struct sockaddr_in6 *net_v6(const struct sockaddr *address)
{
    return (const void *)address;
}

static bool address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&net_v6(address)->sin6_addr);
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}

bool disti_address_is_hopeless(const struct sockaddr *address, int error, char *why, size_t size)
{
    char text[DISTI_HOST_SIZE];

    disti_address_text(address, text);
    if (address->sa_family == AF_INET6 && error == EINVAL &&
        IN6_IS_ADDR_LINKLOCAL(&net_v6(address)->sin6_addr) && !net_v6(address)->sin6_scope_id)
        snprintf(why, size,
                 "%s is a link-local address, which is valid on one interface: append its name, "
                 "such as %s%%eth0",
                 text, text);
    else if (address_is_loopback(address) &&
             (error == ENETUNREACH || error == EHOSTUNREACH || error == EADDRNOTAVAIL))
        snprintf(why, size,
                 "the loopback address %s cannot be used here: %s. Bring the loopback interface up "
                 "(ip link set lo up), or choose an address that this machine has",
                 text, strerror(error));
    else
        return false;
    return true;
}

/*
 * True if the kernel has a route to a numeric address. Copies the local address of that route to
 * `text`, unless it is NULL. Connecting a datagram socket sends nothing.
 */
static bool net_route(const char *numeric, char *text)
{
    struct sockaddr_storage own;
    socklen_t length = sizeof(own);
    struct addrinfo *address;
    bool found;
    int fd;

    if (disti_resolve(numeric, 9, 0, &address) != 0)
        return false;
    fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    found = fd >= 0 && connect(fd, address->ai_addr, address->ai_addrlen) == 0 &&
            (!text || getsockname(fd, (struct sockaddr *)&own, &length) == 0);
    if (found && text)
        disti_address_text((struct sockaddr *)&own, text);
    if (fd >= 0)
        close(fd);
    freeaddrinfo(address);
    return found;
}

const char *disti_loopback(void)
{
    return !net_route("127.0.0.1", NULL) && net_route("::1", NULL) ? "::1" : "127.0.0.1";
}

/* ---- names ---- */

void disti_host_normalize(char *host)
{
    const size_t length = strlen(host);
    unsigned char bytes[sizeof(struct in6_addr)];

    if (host[0] == '[' && host[length - 1] == ']') {
        memmove(host, host + 1, length - 2);
        host[length - 2] = '\0';
    }
    /* The IPv4 text is never longer than the IPv6 text that it replaces. */
    if (inet_pton(AF_INET6, host, bytes) == 1 &&
        IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)bytes))
        inet_ntop(AF_INET, bytes + 12, host, INET_ADDRSTRLEN);
}

bool disti_host_is_loopback(const char *host)
{
    unsigned char bytes[sizeof(struct in6_addr)];

    if (inet_pton(AF_INET, host, bytes) == 1)
        return bytes[0] == 127;
    if (inet_pton(AF_INET6, host, bytes) == 1)
        return IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)(const void *)bytes);
    for (const char *at = host; *at; at++) {
        if ((at == host || at[-1] == '.') && disti_ascii_begins_same(at, "localhost", 9))
            return true;
    }
    return disti_ascii_same(host, "ip6-loopback") || disti_ascii_same(host, "ip6-localhost");
}

bool disti_host_is_hidden(const char *host, int64_t deadline)
{
    struct addrinfo *addresses;
    bool hidden = true;

    if (!host[0] || disti_host_is_loopback(host) || disti_resolve(host, 0, deadline, &addresses))
        return false;
    for (const struct addrinfo *a = addresses; a && hidden; a = a->ai_next)
        hidden = address_is_loopback(a->ai_addr);
    freeaddrinfo(addresses);
    return hidden;
}

/* ---- the address of this machine for other machines ---- */

/*
 * Returns the preference of an address: 2 for IPv4, which most clusters use, 1 for IPv6, 0 if it
 * cannot be used. Link-local IPv6 addresses cannot, since they need a scope.
 */
static int interface_rank(const struct ifaddrs *interface)
{
    const struct sockaddr *address = interface->ifa_addr;

    if (!address || !(interface->ifa_flags & IFF_UP))
        return 0;
    if (address->sa_family == AF_INET)
        return 2;
    return address->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&net_v6(address)->sin6_addr);
}

static bool interface_find(const char *spec, char text[DISTI_HOST_SIZE])
{
    struct ifaddrs *all, *i;
    int best = 0;

    if (getifaddrs(&all))
        return false;
    for (i = all; i; i = i->ifa_next) {
        /*
         * Use the loopback interface only if the spec names it, not because "^docker" does not
         * exclude it.
         */
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
    /* These addresses are reserved for documentation, so only the default route matches them. */
    if (!net_route("198.51.100.1", text) && !net_route("2001:db8::1", text) &&
        !interface_find("^", text))
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

/* ---- listening; addresses as text ---- */

void disti_address_text(const struct sockaddr *address, char text[DISTI_HOST_SIZE])
{
    socklen_t length =
        address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);

    if (getnameinfo(address, length, text, DISTI_HOST_SIZE, NULL, 0, NI_NUMERICHOST))
        snprintf(text, DISTI_HOST_SIZE, "?");
}

int disti_address_port(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return ntohs(net_v6(address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
}

/* Returns 0 and *fd_p, or an errno. */
static int socket_listen_at(const struct addrinfo *address, int *fd_p, int *port_p)
{
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    /* "::" accepts IPv4 connections too. */
    int on = 1, error,
        only_v6 = address->ai_family != AF_INET6 ||
                  !IN6_IS_ADDR_UNSPECIFIED(&net_v6(address->ai_addr)->sin6_addr);
    int fd = disti_descriptor_own(
        socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));

    if (fd < 0)
        return errno;
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof(only_v6));
    /* Allows binding a port that a previous job has just released, but not one in use. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&bound, &length)) {
        error = errno;
        disti_descriptor_close(fd);
        return error;
    }
    *fd_p = fd;
    *port_p = disti_address_port((struct sockaddr *)&bound);
    return 0;
}

/* True if this process itself listens on the port. */
static bool socket_is_own_port(int port)
{
    DIR *directory = opendir(DISTI_PROCESS_OWN "/fd");
    const struct dirent *entry;
    bool own = false;

    while (directory && !own && (entry = readdir(directory))) {
        struct sockaddr_storage at;
        socklen_t size = sizeof(at), flag_size = sizeof(int);
        int fd = atoi(entry->d_name), listens = 0;

        own = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag_size) == 0 && listens &&
              getsockname(fd, (struct sockaddr *)&at, &size) == 0 &&
              (at.ss_family == AF_INET || at.ss_family == AF_INET6) &&
              disti_address_port((struct sockaddr *)&at) == port;
    }
    if (directory)
        closedir(directory);
    return own;
}

static dist_status socket_listen_failed(const char *host, int port, const char *numeric, int error)
{
    if (error == EADDRINUSE && socket_is_own_port(port))
        return disti_fail(DIST_ERR_ADDRESS_IN_USE,
                          "this process already uses %s port %d: if it has joined a job there, "
                          "create more groups with dist_new_group, or destroy the first group "
                          "before joining again; else choose another port (MASTER_PORT, "
                          "tcp://%s:PORT)",
                          numeric, port, host);
    if (error == EADDRINUSE)
        return disti_fail(DIST_ERR_ADDRESS_IN_USE,
                          "%s port %d is already in use on this machine: end the program that "
                          "uses it, or choose another port (MASTER_PORT, tcp://%s:PORT)",
                          numeric, port, host);
    if (error == EADDRNOTAVAIL)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank 0 must listen on %s (%s), which is not an address of this machine: "
                          "set MASTER_ADDR to the machine where rank 0 runs",
                          host, numeric);
    errno = error;
    return disti_fail_errno(error == EACCES ? DIST_ERR_RENDEZVOUS : DIST_ERR_SYSTEM,
                            "cannot listen on %s port %d", numeric, port);
}

dist_status disti_listen(const char *host, int port, int64_t deadline, int *fd_p, int *port_p)
{
    char numeric[DISTI_HOST_SIZE] = "no address", why[256];
    struct addrinfo *addresses;
    int error = EADDRNOTAVAIL, code = disti_resolve(host, port, deadline, &addresses);
    bool next = true;

    if (code)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "cannot resolve \"%s\": %s; set MASTER_ADDR, or the init method, to a "
                          "host that this machine can resolve",
                          host, gai_strerror(code));
    /*
     * Listen on the first address that belongs to this machine. A machine's own name often also
     * resolves to 127.0.1.1, which other machines cannot reach, so try that last.
     */
    for (int loopback = 0; loopback < 2 && next; loopback++) {
        for (const struct addrinfo *a = addresses; a && next; a = a->ai_next) {
            if (address_is_loopback(a->ai_addr) != (loopback == 1))
                continue;
            disti_address_text(a->ai_addr, numeric);
            error = socket_listen_at(a, fd_p, port_p);
            /* Not an address of this machine, or its family is not available: try the next one. */
            next = error == EADDRNOTAVAIL || error == EAFNOSUPPORT;
        }
    }
    if (error && !addresses->ai_next &&
        disti_address_is_hopeless(addresses->ai_addr, error, why, sizeof(why))) {
        freeaddrinfo(addresses);
        return disti_fail(DIST_ERR_RENDEZVOUS, "cannot listen on \"%s\": %s", host, why);
    }
    freeaddrinfo(addresses);
    return error ? socket_listen_failed(host, port, numeric, error) : DIST_OK;
}

dist_status disti_listen_everywhere(int port, int *fd_p, int *port_p)
{
    static const char *const all[] = {"::", "0.0.0.0"};
    int error = EAFNOSUPPORT;

    for (int i = 0; i < 2; i++) {
        struct addrinfo *addresses;

        if (disti_resolve(all[i], port, 0, &addresses))
            continue;
        error = socket_listen_at(addresses, fd_p, port_p);
        freeaddrinfo(addresses);
        if (error != EAFNOSUPPORT && error != EADDRNOTAVAIL)
            break;
    }
    return error ? socket_listen_failed("HOST", port, "any address,", error) : DIST_OK;
}

void disti_socket_tune(int fd)
{
    int on = 1, idle_s = 20, interval_s = 5, probes = 4, unacknowledged_ms = 60000;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof(unacknowledged_ms));
}

dist_status disti_random_id(char text[33])
{
    unsigned char bytes[16];

    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
        return disti_fail_call("getrandom", "cannot get random bytes");
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return DIST_OK;
}

/* ---- the name of this machine ---- */

void disti_host_name(char text[DISTI_HOST_SIZE])
{
    memset(text, 0, DISTI_HOST_SIZE);
    if (gethostname(text, DISTI_HOST_SIZE - 1) != 0 || !text[0])
        memcpy(text, "?", 2);
    for (char *c = text; *c; c++) {
        if (*c <= ' ' || *c > '~' || *c == '/')
            *c = '?';
    }
}

void disti_host_short(char text[DISTI_HOST_SIZE])
{
    disti_host_name(text);
    text[strcspn(text, ".")] = '\0';
}
