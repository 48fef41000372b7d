/* SPDX-License-Identifier: BSD-3-Clause */
/* Connects the ranks of a communicator by abstract sockets, which leave no files. */
#include "communicator.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Microseconds between two attempts to reach a rank that does not listen yet. */
#define MESH_RETRY_US 2000
/* Buffer size of the sockets. */
#define MESH_BUFFER (1 << 20)

/* The first bytes on a connection: the sender's identity, and the direction of the data. */
struct hello {
    struct nccl_identity identity;
    int32_t gives;
};

static socklen_t mesh_address(const unsigned char *id, int rank, struct sockaddr_un *address_p)
{
    int length = 0;

    *address_p = (struct sockaddr_un){.sun_family = AF_UNIX};
    length += snprintf(address_p->sun_path + 1, sizeof(address_p->sun_path) - 1, "standin-");
    for (int i = 0; i < 16; i++)
        length += snprintf(address_p->sun_path + 1 + length, 3, "%02x", id[i]);
    length += snprintf(address_p->sun_path + 1 + length, 16, "-%d", rank);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int mesh_socket(void)
{
    int size = MESH_BUFFER, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    return fd;
}

/* Waits until the socket is ready; returns false after an abort. */
static bool mesh_poll(struct ncclComm *comm, int fd, short events)
{
    struct pollfd fds[] = {{.fd = fd, .events = events}, {.fd = comm->doorbell, .events = POLLIN}};

    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    return !comm->aborted;
}

/* Transfers all bytes of data, in or out. */
static int mesh_transfer(struct ncclComm *comm, int fd, void *data, size_t bytes, bool out)
{
    unsigned char *at = data;

    while (bytes) {
        ssize_t n = out ? send(fd, at, bytes, MSG_NOSIGNAL) : recv(fd, at, bytes, 0);

        if (n > 0) {
            at += n;
            bytes -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            return nccl_fail(RESULT_RemoteError, "socket: connection closed by remote peer");
        } else if (!mesh_poll(comm, fd, out ? POLLOUT : POLLIN)) {
            return RESULT_InternalError;
        }
    }
    return RESULT_Success;
}

static int mesh_listen(const unsigned char *id, int rank, int ranks, int *fd_p)
{
    struct sockaddr_un address;
    socklen_t length = mesh_address(id, rank, &address);
    int fd = mesh_socket();

    if (fd < 0)
        return nccl_fail(RESULT_SystemError, "socket: %s", strerror(errno));
    *fd_p = fd;
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 2 * ranks) != 0)
        return nccl_fail(errno == EADDRINUSE ? RESULT_InvalidUsage : RESULT_SystemError,
                         "rank %d: bind: %s", rank, strerror(errno));
    return RESULT_Success;
}

/* Connects to a rank, which may not listen yet. */
static int mesh_reach(struct ncclComm *comm, const unsigned char *id, int peer, int *fd_p)
{
    struct sockaddr_un address;
    socklen_t length = mesh_address(id, peer, &address);
    int fd = mesh_socket();

    if (fd < 0)
        return nccl_fail(RESULT_SystemError, "socket: %s", strerror(errno));
    *fd_p = fd;
    while (connect(fd, (struct sockaddr *)&address, length) != 0) {
        if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR)
            return nccl_fail(RESULT_SystemError, "connect: %s", strerror(errno));
        if (comm->aborted)
            return RESULT_InternalError;
        standin_sleep_us(MESH_RETRY_US);
    }
    return RESULT_Success;
}

/* Makes one connection to a lower rank, for the data of one direction. */
static int mesh_call(struct ncclComm *comm, const unsigned char *id,
                     const struct nccl_identity *own, int peer, struct nccl_identity *identity_p,
                     int *fd_p, bool gives)
{
    struct hello hello = {.identity = *own, .gives = gives};
    int result = mesh_reach(comm, id, peer, fd_p);

    if (!result)
        result = mesh_transfer(comm, *fd_p, &hello, sizeof(hello), true);
    if (!result)
        result = mesh_transfer(comm, *fd_p, identity_p, sizeof(*identity_p), false);
    return result;
}

/* Accepts one connection of a higher rank. */
static int mesh_answer(struct ncclComm *comm, int listener, const struct nccl_identity *own,
                       struct nccl_identity *identities, int *to, int *from)
{
    struct nccl_identity identity = *own;
    struct hello hello;
    int fd, result, *at, size = MESH_BUFFER;

    while ((fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return nccl_fail(RESULT_SystemError, "accept: %s", strerror(errno));
        if (!mesh_poll(comm, listener, POLLIN))
            return RESULT_InternalError;
    }
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    result = mesh_transfer(comm, fd, &hello, sizeof(hello), false);
    if (!result && (hello.identity.rank <= own->rank || hello.identity.rank >= own->ranks))
        result = nccl_fail(RESULT_InvalidUsage, "rank %d is not one of %d", hello.identity.rank,
                           own->ranks);
    at = result ? NULL : &(hello.gives ? from : to)[hello.identity.rank];
    if (at && *at >= 0)
        result = nccl_fail(RESULT_InvalidUsage, "rank %d exists twice", hello.identity.rank);
    if (result) {
        close(fd);
        return result;
    }
    *at = fd;
    identities[hello.identity.rank] = hello.identity;
    return mesh_transfer(comm, fd, &identity, sizeof(identity), true);
}

int nccl_mesh(struct ncclComm *comm, const unsigned char *id, const struct nccl_identity *own,
              struct nccl_identity *identities, int *to, int *from)
{
    int listener = -1, result = mesh_listen(id, own->rank, own->ranks, &listener);

    identities[own->rank] = *own;
    for (int peer = 0; peer < own->rank && !result; peer++) {
        result = mesh_call(comm, id, own, peer, &identities[peer], &to[peer], true);
        if (!result)
            result = mesh_call(comm, id, own, peer, &identities[peer], &from[peer], false);
    }
    for (int i = 0; i < 2 * (own->ranks - 1 - own->rank) && !result; i++)
        result = mesh_answer(comm, listener, own, identities, to, from);
    for (int peer = 0; peer < own->ranks && !result; peer++) {
        if (identities[peer].ranks != own->ranks)
            result = nccl_fail(RESULT_InvalidUsage, "rank %d has %d ranks, rank %d has %d", peer,
                               identities[peer].ranks, own->rank, own->ranks);
    }
    if (listener >= 0)
        close(listener);
    return result;
}
