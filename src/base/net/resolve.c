/* SPDX-License-Identifier: BSD-3-Clause */
/* The addresses of a host's name: looked up within a deadline, the loopback's, those of no use. */
#include "base/ascii.h"
#include "base/clock.h"
#include "base/net/socket.h"
#include "base/thread.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const struct addrinfo resolve_hints = {
    .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};

/* ---- looking up a name ---- */

/*
 * A lookup in a thread of its own, since getaddrinfo may wait for a name server longer than the
 * caller may. At the deadline the caller abandons the lookup: the thread then frees it.
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

static struct resolve_lookup *resolve_new(const char *host, const char *service)
{
    const size_t length = strlen(host) + 1;
    struct resolve_lookup *lookup = calloc(1, sizeof(*lookup) + length);
    pthread_condattr_t monotonic;

    if (!lookup)
        return NULL;
    memcpy(lookup->host, host, length);
    snprintf(lookup->service, sizeof(lookup->service), "%s", service);
    pthread_mutex_init(&lookup->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&lookup->done_changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return lookup;
}

/* Returns the lookup's code, or EAI_AGAIN at the deadline. Frees the lookup, or leaves it. */
static int resolve_wait(struct resolve_lookup *lookup, int64_t deadline,
                        struct addrinfo **addresses_p)
{
    const struct timespec until = disti_clock_timespec(deadline);
    int code, error = 0;

    pthread_mutex_lock(&lookup->lock);
    while (!lookup->done && !error)
        error = pthread_cond_timedwait(&lookup->done_changed, &lookup->lock, &until);
    if (!lookup->done) {
        lookup->abandoned = true;
        pthread_mutex_unlock(&lookup->lock);
        return EAI_AGAIN;
    }
    pthread_mutex_unlock(&lookup->lock);
    code = lookup->code;
    *addresses_p = lookup->addresses;
    lookup->addresses = NULL;
    resolve_free(lookup);
    return code;
}

int disti_resolve(const char *host, int port, int64_t deadline, struct addrinfo **addresses_p)
{
    struct addrinfo numeric = resolve_hints;
    struct resolve_lookup *lookup;
    char service[16];
    pthread_t thread;
    int code, held;

    *addresses_p = NULL;
    numeric.ai_flags |= AI_NUMERICHOST;
    snprintf(service, sizeof(service), "%d", port);
    code = getaddrinfo(host, service, &numeric, addresses_p);
    if (code != EAI_NONAME)
        return code;
    lookup = resolve_new(host, service);
    if (!lookup)
        return EAI_MEMORY;
    held = disti_cancel_hold();
    if (disti_thread_create(&thread, resolve_run, lookup) == 0) {
        pthread_detach(thread);
        code = resolve_wait(lookup, deadline, addresses_p);
    } else {
        resolve_free(lookup);
        code = getaddrinfo(host, service, &resolve_hints, addresses_p);
    }
    disti_cancel_let(held);
    return code;
}

/* ---- kinds of addresses ---- */

static const struct in6_addr *resolve_v6(const struct sockaddr *address)
{
    return &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr;
}

bool disti_address_is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(resolve_v6(address));
    return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
}

bool disti_address_is_hopeless(const struct sockaddr *address, int error, char *why, size_t size)
{
    char text[DISTI_HOST_SIZE];

    disti_address_text(address, text);
    if (address->sa_family == AF_INET6 && error == EINVAL &&
        IN6_IS_ADDR_LINKLOCAL(resolve_v6(address)) &&
        !((const struct sockaddr_in6 *)(const void *)address)->sin6_scope_id)
        snprintf(why, size,
                 "%s is a link-local address, which is valid on one interface: append its name, "
                 "such as %s%%eth0",
                 text, text);
    else if (disti_address_is_loopback(address) &&
             (error == ENETUNREACH || error == EHOSTUNREACH || error == EADDRNOTAVAIL))
        snprintf(why, size,
                 "the loopback address %s cannot be used here: %s. Bring the loopback interface up "
                 "(ip link set lo up), or choose an address that this machine has",
                 text, strerror(error));
    else
        return false;
    return true;
}

/* The address can be reached: a datagram socket sends nothing by this. */
static bool resolve_has_route(const char *numeric)
{
    struct addrinfo *address;
    bool found;
    int fd;

    if (disti_resolve(numeric, 9, 0, &address) != 0)
        return false;
    fd = socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    found = fd >= 0 && connect(fd, address->ai_addr, address->ai_addrlen) == 0;
    if (fd >= 0)
        close(fd);
    freeaddrinfo(address);
    return found;
}

const char *disti_loopback(void)
{
    return !resolve_has_route("127.0.0.1") && resolve_has_route("::1") ? "::1" : "127.0.0.1";
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
        hidden = disti_address_is_loopback(a->ai_addr);
    freeaddrinfo(addresses);
    return hidden;
}
