/* SPDX-License-Identifier: BSD-3-Clause */
/* Sockets that belong to this process alone, and are closed in a child that it forks. */
#include "base/descriptor.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Descriptors above this are not looked after: a bit each, so that the child needs no lock. */
#define DESCRIPTOR_MOST 65536
#define DESCRIPTOR_BITS 64

static _Atomic uint64_t descriptor_owned[DESCRIPTOR_MOST / DESCRIPTOR_BITS];
static pthread_once_t descriptor_once = PTHREAD_ONCE_INIT;
static bool descriptor_forked;

static void descriptor_child(void)
{
    descriptor_forked = true;
    for (int word = 0; word < DESCRIPTOR_MOST / DESCRIPTOR_BITS; word++) {
        uint64_t bits = atomic_exchange(&descriptor_owned[word], 0);

        for (; bits; bits &= bits - 1)
            close(word * DESCRIPTOR_BITS + __builtin_ctzll(bits));
    }
}

static void descriptor_start(void)
{
    (void)pthread_atfork(NULL, NULL, descriptor_child);
}

int disti_descriptor_raise(int fd)
{
    int error = errno, raised;

    if (fd < 0 || fd > STDERR_FILENO)
        return fd;
    raised = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    errno = error;
    if (raised < 0)
        return fd;
    close(fd);
    return raised;
}

int disti_descriptor_own(int fd)
{
    fd = disti_descriptor_raise(fd);
    if (fd < 0 || fd >= DESCRIPTOR_MOST)
        return fd;
    pthread_once(&descriptor_once, descriptor_start);
    atomic_fetch_or(&descriptor_owned[fd / DESCRIPTOR_BITS], UINT64_C(1) << fd % DESCRIPTOR_BITS);
    return fd;
}

void disti_descriptor_close(int fd)
{
    bool owned = false;

    if (fd < 0)
        return;
    if (fd < DESCRIPTOR_MOST) {
        uint64_t bit = UINT64_C(1) << fd % DESCRIPTOR_BITS;

        owned = atomic_fetch_and(&descriptor_owned[fd / DESCRIPTOR_BITS], ~bit) & bit;
    }
    if (owned || !descriptor_forked)
        close(fd);
}

size_t disti_descriptor_allow(size_t count)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return SIZE_MAX;
    if (files.rlim_cur >= count)
        return files.rlim_cur;
    files.rlim_cur = files.rlim_max < count ? files.rlim_max : count;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    return getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : SIZE_MAX;
}

int disti_descriptor_for_strangers(int count)
{
    size_t quarter = disti_descriptor_allow(0) / 4;

    return quarter < (size_t)count ? (int)quarter : count;
}

bool disti_call_denied(int error)
{
    return error == EPERM || error == ENOSYS || error == EACCES;
}

dist_status disti_fail_call(const char *calls, const char *format, ...)
{
    const int error = errno;
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (disti_call_denied(error))
        return disti_fail(
            DIST_ERR_SYSTEM,
            "%s: the system call %s is denied here (%s), as by the seccomp filter of a "
            "container: allow it (docker run --security-opt seccomp=unconfined)",
            text, calls, strerror(error));
    if (error == EMFILE || error == ENFILE)
        return disti_fail(DIST_ERR_SYSTEM, "%s: %s: raise the limit of open files (ulimit -n)",
                          text, strerror(error));
    return disti_fail(DIST_ERR_SYSTEM, "%s: %s", text, strerror(error));
}
