/* SPDX-License-Identifier: BSD-3-Clause */
/* Descriptors that are closed in forked children, limits, and doorbells. */
#include "base/descriptor.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

/*
 * Limit of the descriptors that are registered. There is one atomic bit per descriptor, so that the
 * child needs no lock.
 */
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

/* ---- doorbells: the eventfd of a thread that sleeps on descriptors ---- */

static _Thread_local int doorbell_fd; /* doorbell + 1; 0: none */
static pthread_once_t doorbell_once = PTHREAD_ONCE_INIT;
static pthread_key_t doorbell_key;
static bool doorbell_usable;

/* Closes the doorbell when its thread ends. */
static void doorbell_end(void *value)
{
    disti_descriptor_close((int)(intptr_t)value - 1);
    doorbell_fd = 0;
}

/* Forgets the doorbell in a forked child, where descriptor_child has closed it. */
static void doorbell_child(void)
{
    if (doorbell_usable)
        (void)pthread_setspecific(doorbell_key, NULL);
    doorbell_fd = 0;
}

static void doorbell_begin(void)
{
    doorbell_usable = pthread_key_create(&doorbell_key, doorbell_end) == 0 &&
                      pthread_atfork(NULL, NULL, doorbell_child) == 0;
}

int disti_doorbell(void)
{
    int fd;

    if (doorbell_fd)
        return doorbell_fd - 1;
    pthread_once(&doorbell_once, doorbell_begin);
    fd = doorbell_usable ? disti_descriptor_own(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) : -1;
    if (fd >= 0 && pthread_setspecific(doorbell_key, (void *)(intptr_t)(fd + 1)) != 0) {
        disti_descriptor_close(fd);
        fd = -1;
    }
    doorbell_fd = fd + 1;
    return fd;
}

void disti_doorbell_close(void)
{
    if (!doorbell_fd)
        return;
    (void)pthread_setspecific(doorbell_key, NULL);
    disti_descriptor_close(doorbell_fd - 1);
    doorbell_fd = 0;
}

void disti_doorbell_reset(void)
{
    uint64_t times;

    if (doorbell_fd)
        (void)!read(doorbell_fd - 1, &times, sizeof(times));
}

void disti_doorbell_ring(int doorbell)
{
    uint64_t one = 1;
    int held;

    if (doorbell < 0)
        return;
    held = disti_cancel_hold();
    (void)!write(doorbell, &one, sizeof(one));
    disti_cancel_let(held);
}
