/* SPDX-License-Identifier: BSD-3-Clause */
/* The discovery: port and word, handed to processes of the same user. */
#include "rendezvous/discovery.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "store/server/server.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The answer: u32 magic, u32 port, the word filled up with zero bytes. */
#define DISCOVERY_ANSWER (8 + 128)
#define DISCOVERY_ACCEPTS 32 /* in a row, before others are heard */

static socklen_t discovery_address(const char *job, struct sockaddr_un *address)
{
    int length;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    /* The first byte stays 0: abstract, so nothing is left behind in a file system. */
    length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "dist/%u/%s",
                      (unsigned)geteuid(), job);
    if (length > (int)sizeof(address->sun_path) - 2)
        length = (int)sizeof(address->sun_path) - 2;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool discovery_same_user(int fd)
{
    struct ucred other;
    socklen_t size = sizeof(other);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == geteuid();
}

dist_status disti_discovery_open(const char *job, int *fd_p)
{
    struct sockaddr_un address;
    socklen_t length = discovery_address(job, &address);
    int fd = disti_descriptor_own(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    dist_status status = DIST_IN_PROGRESS;

    if (fd < 0)
        return disti_fail_call("socket", "cannot make a Unix socket");
    if (bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, SOMAXCONN) == 0) {
        *fd_p = fd;
        return DIST_OK;
    }
    if (errno != EADDRINUSE)
        status =
            disti_fail_errno(DIST_ERR_SYSTEM,
                             "rank 0 cannot listen on the Unix socket \"@%s\", where the ranks of "
                             "this machine meet: set MASTER_ADDR and MASTER_PORT instead",
                             address.sun_path + 1);
    disti_descriptor_close(fd);
    return status;
}

void disti_store_discovery_answer(struct disti_store_server *server)
{
    unsigned char answer[DISCOVERY_ANSWER] = {0};
    int fd = -1;

    disti_wire_put32(answer, DISTI_WIRE_MAGIC);
    disti_wire_put32(answer + 4, (uint32_t)server->port);
    memcpy(answer + 8, server->secret.bytes,
           server->secret.length < 127 ? server->secret.length : 127);
    for (int i = 0; i < DISCOVERY_ACCEPTS; i++) {
        fd = accept4(server->discovery_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
        /* A fresh socket has room for so little. */
        if (discovery_same_user(fd))
            (void)!send(fd, answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    }
    if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        disti_store_server_back_off(server);
}

/* Reads the whole answer, for a second at most. */
static bool discovery_read(int fd, unsigned char *answer)
{
    int64_t deadline = disti_deadline_ms(1000);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    size_t got = 0;

    while (got < DISCOVERY_ANSWER) {
        ssize_t n = recv(fd, answer + got, DISCOVERY_ANSWER - got, MSG_DONTWAIT);

        if (n > 0)
            got += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
        else if (disti_expired(deadline) || poll(&readable, 1, disti_left_ms(deadline)) < 0)
            return false;
    }
    return true;
}

dist_status disti_discovery_ask(const char *job, int *port_p, char word[128])
{
    unsigned char answer[DISCOVERY_ANSWER];
    struct sockaddr_un address;
    socklen_t length = discovery_address(job, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    dist_status status = DIST_IN_PROGRESS;

    if (fd < 0)
        return disti_fail_call("socket", "cannot make a Unix socket");
    if (connect(fd, (struct sockaddr *)&address, length) == 0) {
        if (!discovery_same_user(fd))
            status = disti_fail(DIST_ERR_RENDEZVOUS,
                                "the Unix socket \"@%s\" belongs to another user: set MASTER_ADDR "
                                "and MASTER_PORT instead",
                                address.sun_path + 1);
        else if (discovery_read(fd, answer) && disti_wire_get32(answer) == DISTI_WIRE_MAGIC &&
                 answer[DISCOVERY_ANSWER - 1] == 0) {
            *port_p = (int)(disti_wire_get32(answer + 4) & 0xffff);
            memcpy(word, answer + 8, 128);
            status = DIST_OK;
        }
    }
    close(fd);
    return status;
}
