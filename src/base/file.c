/* SPDX-License-Identifier: BSD-3-Clause */
/* Files that grow, where the limit on file sizes may be below that. */
#include "base/file.h"

#include "base/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/* SIGXFSZ goes to the thread that made the call. So it is held back meanwhile, and taken away. */
struct file_guard {
    sigset_t mask;
    bool pending; /* one was before: it is not ours */
};

static void file_signal(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGXFSZ);
}

static void file_guard_begin(struct file_guard *guard)
{
    sigset_t set;

    sigpending(&set);
    guard->pending = sigismember(&set, SIGXFSZ) == 1;
    file_signal(&set);
    pthread_sigmask(SIG_BLOCK, &set, &guard->mask);
}

static void file_guard_end(const struct file_guard *guard)
{
    const struct timespec now = {0};
    int error = errno;
    sigset_t set;

    file_signal(&set);
    if (error == EFBIG && !guard->pending)
        sigtimedwait(&set, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
    errno = error;
}

ssize_t disti_file_write(int fd, const void *data, size_t bytes)
{
    struct file_guard guard;
    ssize_t written;

    file_guard_begin(&guard);
    errno = 0;
    written = write(fd, data, bytes);
    file_guard_end(&guard);
    return written;
}

int disti_file_truncate(int fd, uint64_t bytes)
{
    struct file_guard guard;
    int result;

    file_guard_begin(&guard);
    errno = 0;
    result = ftruncate(fd, (off_t)bytes);
    file_guard_end(&guard);
    return result;
}

int disti_file_reserve(int fd, uint64_t offset, uint64_t bytes)
{
    struct file_guard guard;
    int result;

    file_guard_begin(&guard);
    errno = 0;
    result = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
    file_guard_end(&guard);
    return result;
}

bool disti_file_may_have(uint64_t bytes, uint64_t *most_p)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return true;
    if (most_p)
        *most_p = (uint64_t)limit.rlim_cur;
    return false;
}

/* Kernels before 6.3 do not know the flag that keeps the memory from being executed. */
int disti_file_memory(void)
{
    int fd = memfd_create("libdist", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("libdist", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return disti_descriptor_raise(fd);
}
