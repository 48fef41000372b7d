/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory that two ranks share: memfds, sealed and filled before they are used. */
#include "transports/shm/memory.h"

#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

#define MEMORY_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

#if defined(__SANITIZE_THREAD__)
#define MEMORY_ONE_MAPPING 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MEMORY_ONE_MAPPING 1
#endif
#endif

bool disti_shm_fifo_bytes_valid(uint64_t fifo_bytes)
{
    return fifo_bytes >= SHM_FIFO_MIN && fifo_bytes <= SHM_FIFO_MAX &&
           (fifo_bytes & (fifo_bytes - 1)) == 0;
}

#ifdef MEMORY_ONE_MAPPING
/*
 * ThreadSanitizer knows memory by its address, so two ranks that are threads of one
 * process must see their pair at one address, or it would miss every race in it.
 */
#include <pthread.h>
#include <stdlib.h>

struct memory_shared {
    struct memory_shared *next;
    ino_t inode;
    void *memory;
    int users;
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory_shared *memory_list;

static void *memory_map_fd(int fd, ino_t inode, size_t bytes)
{
    struct memory_shared *shared;
    void *memory = MAP_FAILED;

    pthread_mutex_lock(&memory_lock);
    for (shared = memory_list; shared && shared->inode != inode;)
        shared = shared->next;
    if (!shared && (shared = calloc(1, sizeof(*shared)))) {
        shared->inode = inode;
        shared->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        shared->next = memory_list;
        memory_list = shared;
    }
    if (shared) {
        shared->users++;
        memory = shared->memory;
    }
    pthread_mutex_unlock(&memory_lock);
    return memory;
}

static void memory_unmap(void *memory, size_t bytes)
{
    struct memory_shared **link = &memory_list, *shared;

    pthread_mutex_lock(&memory_lock);
    while ((*link)->memory != memory)
        link = &(*link)->next;
    shared = *link;
    if (--shared->users == 0) {
        *link = shared->next;
        munmap(memory, bytes);
        free(shared);
    }
    pthread_mutex_unlock(&memory_lock);
}
#else
static void *memory_map_fd(int fd, ino_t inode, size_t bytes)
{
    (void)inode;
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

static void memory_unmap(void *memory, size_t bytes)
{
    munmap(memory, bytes);
}
#endif

/* Kernels before 6.3 do not know the flag that keeps the memory from being executed. */
static int memory_create_fd(void)
{
    int fd = memfd_create("libdist", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("libdist", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

dist_status disti_shm_memory_make(size_t fifo_bytes, int *fd_p, struct shm_pair **pair_p)
{
    size_t bytes = disti_shm_pair_bytes(fifo_bytes);
    dist_status status;
    int fd = memory_create_fd();

    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        return DIST_IN_PROGRESS;
    if (fd < 0)
        return disti_fail_errno(DIST_ERR_SYSTEM, "shm: memfd_create failed");
    if (disti_file_reserve(fd, 0, bytes) < 0) {
        status = disti_fail_errno(
            DIST_ERR_NO_MEMORY,
            "shm: no room for %zu KiB of shared memory; free memory, raise "
            "the container's limit or that on files (ulimit -f), or set DIST_TRANSPORT=tcp",
            bytes >> 10);
        goto out;
    }
    if (fcntl(fd, F_ADD_SEALS, MEMORY_SEALS) < 0) {
        status = disti_fail_errno(DIST_ERR_SYSTEM, "shm: cannot seal a memfd");
        goto out;
    }
    status = disti_shm_memory_map(fd, fifo_bytes, pair_p);
    if (status == DIST_OK) {
        *fd_p = disti_descriptor_own(fd);
        fd = -1;
    }
out:
    if (fd >= 0)
        close(fd);
    return status;
}

dist_status disti_shm_memory_map(int fd, size_t fifo_bytes, struct shm_pair **pair_p)
{
    size_t bytes = disti_shm_pair_bytes(fifo_bytes);
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat info;
    void *memory;

    if (seals < 0 || (seals & MEMORY_SEALS) != MEMORY_SEALS || fstat(fd, &info) < 0 ||
        info.st_size != (off_t)bytes)
        return disti_fail(DIST_ERR_SYSTEM,
                          "shm: a peer offered memory that is not %zu sealed bytes: give all ranks "
                          "the same version of libdist",
                          bytes);
    memory = memory_map_fd(fd, info.st_ino, bytes);
    if (memory == MAP_FAILED)
        return disti_fail_errno(DIST_ERR_NO_MEMORY, "shm: cannot map %zu KiB", bytes >> 10);
    *pair_p = memory;
    return DIST_OK;
}

void disti_shm_memory_unmap(struct shm_pair *pair, size_t fifo_bytes)
{
    if (pair)
        memory_unmap(pair, disti_shm_pair_bytes(fifo_bytes));
}
