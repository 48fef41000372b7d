/* SPDX-License-Identifier: BSD-3-Clause */
/* What two ranks say to each other before they share memory. */
#include "transports/shm/hello.h"

#include "base/descriptor.h"
#include "transports/shm/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_MAGIC 0x6c6c6568a7736d68ull
#define HELLO_VERSION 5u

/* Room for the descriptors of one packet, aligned as a header. */
union hello_control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(SHM_HELLO_FDS * sizeof(int))];
};

void disti_shm_hello_init(struct shm_hello *hello, enum shm_word word, int from, int to,
                          uint64_t job)
{
    memset(hello, 0, sizeof(*hello));
    hello->magic = HELLO_MAGIC;
    hello->version = HELLO_VERSION;
    hello->word = word;
    hello->from = from;
    hello->to = to;
    hello->job = job;
}

bool disti_shm_hello_valid(const struct shm_hello *hello, int to, int world_size, uint64_t job)
{
    return hello->magic == HELLO_MAGIC && hello->version == HELLO_VERSION && hello->to == to &&
           hello->from >= 0 && hello->from < world_size && hello->from != to && hello->job == job;
}

bool disti_shm_hello_send(int socket, const struct shm_hello *hello, const int *fds, int count)
{
    struct iovec part = {.iov_base = (void *)hello, .iov_len = sizeof(*hello)};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    union hello_control control;

    memset(&control, 0, sizeof(control));
    if (count > 0) {
        size_t bytes = (size_t)count * sizeof(int);

        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(bytes);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(&control.header), fds, bytes);
    }
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(*hello);
}

/* Takes the descriptors out of a packet; control truncated by the kernel brings fewer. */
static void hello_take_fds(struct msghdr *message, int fds[SHM_HELLO_FDS])
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    size_t count;

    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
        return;
    count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(header), (count < SHM_HELLO_FDS ? count : SHM_HELLO_FDS) * sizeof(int));
}

/* The kernel throws away descriptors for which there is no room: is there some? Else errno. */
static bool hello_has_room(int socket)
{
    int spare[SHM_HELLO_FDS], count = 0, error;

    while (count < SHM_HELLO_FDS && (spare[count] = fcntl(socket, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    error = errno;
    for (int i = 0; i < count; i++)
        close(spare[i]);
    errno = error;
    return count == SHM_HELLO_FDS;
}

int disti_shm_hello_receive(int socket, struct shm_hello *hello, int fds[SHM_HELLO_FDS])
{
    struct iovec part = {.iov_base = hello, .iov_len = sizeof(*hello)};
    union hello_control control;
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    ssize_t got;

    for (int i = 0; i < SHM_HELLO_FDS; i++)
        fds[i] = -1;
    if (!hello_has_room(socket))
        return 0;
    got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        errno = EAGAIN;
    if (got < 0)
        return errno == EAGAIN ? 0 : -1;
    hello_take_fds(&message, fds);
    for (int i = 0; i < SHM_HELLO_FDS; i++)
        fds[i] = disti_descriptor_own(fds[i]);
    if (got == (ssize_t)sizeof(*hello) && !(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return 1;
    disti_shm_close_fds(fds, SHM_HELLO_FDS);
    return -1;
}

bool disti_shm_hello_peer(int socket, uint32_t *uid_p, int *pid_p)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return false;
    *uid_p = (uint32_t)peer.uid;
    *pid_p = (int)peer.pid;
    return true;
}
