/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info memory: two processes, one of which wants the memory of the other. */
#include "memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBE_BYTES 4096
#define PROBE_SECONDS 10
#define PROBE_WORD UINT64_C(0x6c69626469737421)

/* What the three processes share, since the first forks the others. */
struct probe {
    struct memory_finding finding;
    pid_t owner;
    int fd;
    const uint64_t *place; /* of a word in the owner's ordinary memory */
};

/* The owner must not be the reader's parent or child: to these the kernel allows more. */
static void probe_own(struct probe *probe, int ready, int hold)
{
    uint64_t word = PROBE_WORD ^ (uint64_t)getpid();
    char byte;

    alarm(PROBE_SECONDS);
    probe->owner = getpid();
    probe->place = &word;
    probe->fd = memfd_create("libdist", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (probe->fd < 0 || pwrite(probe->fd, &word, sizeof(word), 0) != (ssize_t)sizeof(word) ||
        ftruncate(probe->fd, PROBE_BYTES) < 0)
        probe->finding.share = errno;
    if (write(ready, "x", 1) != 1 || read(hold, &byte, 1) != 0)
        _exit(1);
    _exit(0);
}

static int probe_map(const struct probe *probe, uint64_t word)
{
    uint64_t *memory;
    char path[64];
    int fd, error = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)probe->owner, probe->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    memory = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        error = errno;
    else if (*memory != word)
        error = EIO;
    close(fd);
    return error;
}

static int probe_direct(const struct probe *probe, uint64_t word)
{
    uint64_t copy = 0;
    struct iovec here = {.iov_base = &copy, .iov_len = sizeof(copy)};
    struct iovec there = {.iov_base = (void *)(uintptr_t)probe->place, .iov_len = sizeof(copy)};

    if (process_vm_readv(probe->owner, &here, 1, &there, 1, 0) < 0)
        return errno;
    return copy == word ? 0 : EIO;
}

static void probe_use(struct probe *probe)
{
    uint64_t word = PROBE_WORD ^ (uint64_t)probe->owner;

    alarm(PROBE_SECONDS);
    if (probe->finding.share == 0)
        probe->finding.map = probe_map(probe, word);
    probe->finding.direct = probe_direct(probe, word);
    _exit(0);
}

static void probe_close(int *end)
{
    if (*end >= 0)
        close(*end);
    *end = -1;
}

/* The owner stays until the parent closes hold[1]. */
static int probe_run(struct probe *probe, int ready[2], int hold[2], pid_t *owner_p)
{
    pid_t user, owner = fork();
    int status;
    char byte;

    if (owner == 0) {
        probe_close(&hold[1]);
        probe_own(probe, ready[1], hold[0]);
    }
    probe_close(&ready[1]); /* so that the end of an owner that fails is the end of the file */
    if (owner < 0)
        return -1;
    *owner_p = owner;
    if (read(ready[0], &byte, 1) != 1)
        return -1;
    user = fork();
    if (user == 0)
        probe_use(probe);
    if (user < 0 || waitpid(user, &status, 0) != user)
        return -1;
    return status == 0 ? 0 : -1;
}

int memory_probe(struct memory_finding *finding_p)
{
    struct probe *probe =
        mmap(NULL, sizeof(*probe), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ready[2] = {-1, -1}, hold[2] = {-1, -1}, result = -1;
    pid_t owner = -1;

    if (probe == MAP_FAILED)
        return -1;
    if (pipe2(ready, O_CLOEXEC) == 0 && pipe2(hold, O_CLOEXEC) == 0)
        result = probe_run(probe, ready, hold, &owner);
    for (int i = 0; i < 2; i++) {
        probe_close(&hold[i]);
        probe_close(&ready[i]);
    }
    if (owner > 0)
        waitpid(owner, NULL, 0);
    if (result == 0)
        *finding_p = probe->finding;
    munmap(probe, sizeof(*probe));
    return result;
}
