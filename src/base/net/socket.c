/* SPDX-License-Identifier: BSD-3-Clause */
/* Listening; addresses as text. */
#include "base/net/socket.h"

#include "base/descriptor.h"
#include "base/log.h"
#include "base/process/own.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

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
        return ntohs(((const struct sockaddr_in6 *)(const void *)address)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port);
}

/* Of IPv6: that stands for all of IPv4 too. */
static bool socket_is_any(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_UNSPECIFIED(
               &((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* 0 and *fd_p, or errno. */
static int socket_listen_at(const struct addrinfo *address, int *fd_p, int *port_p)
{
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    int on = 1, only_v6 = !socket_is_any(address->ai_addr), error;
    int fd = disti_descriptor_own(
        socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));

    if (fd < 0)
        return errno;
    if (address->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_v6, sizeof(only_v6));
    /* A port that the last job used a moment ago is free again, one in use is not. */
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

/* Does this process itself listen there? */
static bool socket_is_own_port(int port)
{
    DIR *folder = opendir(DISTI_PROCESS_OWN "/fd");
    const struct dirent *entry;
    bool own = false;

    while (folder && !own && (entry = readdir(folder))) {
        struct sockaddr_storage at;
        socklen_t size = sizeof(at), flag_size = sizeof(int);
        int fd = atoi(entry->d_name), listens = 0;

        own = getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &flag_size) == 0 && listens &&
              getsockname(fd, (struct sockaddr *)&at, &size) == 0 &&
              (at.ss_family == AF_INET || at.ss_family == AF_INET6) &&
              disti_address_port((struct sockaddr *)&at) == port;
    }
    if (folder)
        closedir(folder);
    return own;
}

static dist_status socket_listen_failed(const char *host, int port, const char *numeric, int error)
{
    if (error == EADDRINUSE && socket_is_own_port(port))
        return disti_fail(DIST_ERR_ADDRESS_IN_USE,
                          "this process already uses %s port %d: if it has joined a job there, "
                          "make more groups with dist_new_group, or destroy the first before "
                          "joining again; else choose another port (MASTER_PORT, tcp://%s:PORT)",
                          numeric, port, host);
    if (error == EADDRINUSE)
        return disti_fail(DIST_ERR_ADDRESS_IN_USE,
                          "%s port %d is already in use on this machine: end the program that "
                          "holds it, or choose another port (MASTER_PORT, tcp://%s:PORT)",
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

/*
 * Listens at the first of the addresses that this machine has; 0 or errno. A machine's own
 * name often stands for 127.0.1.1 too, where nobody else could come: that is tried last.
 */
static int socket_listen_any(const struct addrinfo *addresses, char numeric[DISTI_HOST_SIZE],
                             int *fd_p, int *port_p)
{
    int error = EADDRNOTAVAIL;

    for (int loopback = 0; loopback < 2; loopback++) {
        for (const struct addrinfo *a = addresses; a; a = a->ai_next) {
            if (disti_address_is_loopback(a->ai_addr) != (loopback == 1))
                continue;
            disti_address_text(a->ai_addr, numeric);
            error = socket_listen_at(a, fd_p, port_p);
            /* Not an own one, or of a family that this machine does not have: the next one. */
            if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT)
                return error;
        }
    }
    return error;
}

dist_status disti_listen(const char *host, int port, int64_t deadline, int *fd_p, int *port_p)
{
    char numeric[DISTI_HOST_SIZE] = "no address", why[256];
    struct addrinfo *addresses;
    int error, code = disti_resolve(host, port, deadline, &addresses);

    if (code)
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "cannot resolve \"%s\": %s; set MASTER_ADDR, or the init method, to a "
                          "host that this machine can resolve",
                          host, gai_strerror(code));
    error = socket_listen_any(addresses, numeric, fd_p, port_p);
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
