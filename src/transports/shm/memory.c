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

#define MEMORY_SEALS (F_SEAL_SHRINK | F_SEAL_GROW)

bool disti_shm_fifo_bytes_valid(uint64_t fifo_bytes)
{
    return fifo_bytes >= SHM_FIFO_MIN && fifo_bytes <= SHM_FIFO_MAX &&
           (fifo_bytes & (fifo_bytes - 1)) == 0;
}

dist_status disti_shm_memory_make(size_t fifo_bytes, int *fd_p, struct shm_pair **pair_p)
{
    size_t bytes = disti_shm_pair_bytes(fifo_bytes);
    dist_status status;
    int fd = disti_file_memory();

    if (fd < 0 && (errno == EMFILE || errno == ENFILE))
        return DIST_IN_PROGRESS;
    if (fd < 0)
        return disti_fail_call("memfd_create", "shm: cannot make shared memory");
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
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED && errno == EAGAIN)
        return disti_file_locked_too_much(bytes);
    if (memory == MAP_FAILED)
        return disti_fail_errno(DIST_ERR_NO_MEMORY, "shm: cannot map %zu KiB", bytes >> 10);
    *pair_p = memory;
    return DIST_OK;
}

void disti_shm_memory_unmap(struct shm_pair *pair, size_t fifo_bytes)
{
    if (pair)
        munmap(pair, disti_shm_pair_bytes(fifo_bytes));
}
