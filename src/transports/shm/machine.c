/* SPDX-License-Identifier: BSD-3-Clause */
/* Which machine this is, and how its ranks find each other's listeners. */
#include "transports/shm/machine.h"

#include "base/process/own.h"
#include "base/process/reach.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MACHINE_MAGIC 0x6d687364u
#define MACHINE_BOOT_ID "/proc/sys/kernel/random/boot_id"
#define MACHINE_NETWORK DISTI_PROCESS_OWN "/ns/net"
#define MACHINE_NAME "libdist-"

static bool machine_boot_id(char boot[SHM_BOOT_BYTES])
{
    int fd = open(MACHINE_BOOT_ID, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, boot, SHM_BOOT_BYTES - 1);

    if (fd >= 0)
        close(fd);
    return got > 0;
}

static dist_status machine_unsupported(char *reason, size_t reason_size, const char *what)
{
    if (reason)
        snprintf(reason, reason_size, "%s: %s", what, strerror(errno));
    return DIST_ERR_UNSUPPORTED;
}

dist_status disti_shm_machine_self(struct shm_address *address, char *reason, size_t reason_size)
{
    struct shm_address made = {.magic = MACHINE_MAGIC, .abi = DIST_ABI};
    struct stat network;

    if (!machine_boot_id(made.boot))
        return machine_unsupported(reason, reason_size, "cannot read " MACHINE_BOOT_ID);
    if (stat(MACHINE_NETWORK, &network) < 0)
        return machine_unsupported(reason, reason_size, "cannot look at " MACHINE_NETWORK);
    if (!disti_shm_machine_random(made.name, sizeof(made.name)))
        return machine_unsupported(reason, reason_size, "no random numbers");
    made.uid = (uint32_t)geteuid();
    made.pid = (uint32_t)getpid();
    made.network_device = network.st_dev;
    made.network_inode = network.st_ino;
    *address = made;
    return DIST_OK;
}

bool disti_shm_machine_same(const struct shm_address *mine, const struct shm_address *theirs)
{
    return theirs->magic == MACHINE_MAGIC && theirs->abi == mine->abi && theirs->uid == mine->uid &&
           theirs->network_device == mine->network_device &&
           theirs->network_inode == mine->network_inode &&
           memcmp(theirs->boot, mine->boot, sizeof(mine->boot)) == 0;
}

socklen_t disti_shm_machine_socket(const struct shm_address *address, struct sockaddr_un *name)
{
    char *path = name->sun_path + 1; /* the first byte stays 0: no file, nothing to unlink */

    memset(name, 0, sizeof(*name));
    name->sun_family = AF_UNIX;
    path += sprintf(path, MACHINE_NAME);
    for (int i = 0; i < SHM_NAME_BYTES; i++)
        path += sprintf(path, "%02x", address->name[i]);
    return (socklen_t)(path - (char *)name);
}

int disti_shm_machine_read(int pid, void *data, uint64_t address, size_t bytes)
{
    struct iovec here = {.iov_base = data, .iov_len = bytes};
    struct iovec there = {.iov_base = (void *)(uintptr_t)address, .iov_len = bytes};
    ssize_t got = disti_process_read(pid, &here, &there);

    if (got < 0)
        return errno;
    return (size_t)got == bytes ? 0 : EFAULT;
}

bool disti_shm_machine_runs(int pid)
{
    int process = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
    struct pollfd ended = {.fd = process, .events = POLLIN};
    bool runs;

    if (process < 0)
        return pid <= 0 || errno != ESRCH;
    runs = poll(&ended, 1, 0) == 0; /* one that has ended and is not waited for has a number too */
    close(process);
    return runs;
}

bool disti_shm_machine_random(void *data, size_t bytes)
{
    return getrandom(data, bytes, 0) == (ssize_t)bytes;
}
