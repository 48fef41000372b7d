/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library for LD_PRELOAD that hooks mmap, munmap, mremap and madvise as UCX 1.13 does: mremap
 * loses its fifth argument, each call locks a mutex, and a cache drops the pages that the calls
 * concern. Two kinds of calls could wait forever for that mutex: those of a signal handler that has
 * interrupted a hook, and those of a forked child. Both kill the process with a message.
 */
#include "tests/standin/hooks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static pthread_mutex_t hooks_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread bool hooks_held; /* this thread holds hooks_lock */
static pid_t hooks_pid;
static bool hooks_misleads;
static struct {
    uintptr_t begin, end;
} hooks_pinned;

static long (*hooks_syscall)(long number, ...);

__attribute__((constructor)) static void hooks_begin(void)
{
    void *symbol = dlsym(RTLD_NEXT, "syscall");

    memcpy(&hooks_syscall, &symbol, sizeof(symbol));
    hooks_pid = getpid();
}

static void hooks_refuse(const char *call, const char *where)
{
    (void)!write(2, call, strlen(call));
    (void)!write(2, where, strlen(where));
    abort();
}

static void hooks_enter(const char *call)
{
    if (hooks_held)
        hooks_refuse(call, ": called by a signal handler that has interrupted a hook\n");
    if (hooks_pid && getpid() != hooks_pid)
        hooks_refuse(call, ": called by a forked child\n");
    pthread_mutex_lock(&hooks_lock);
    hooks_held = true;
}

static void hooks_leave(void)
{
    hooks_held = false;
    pthread_mutex_unlock(&hooks_lock);
}

/* Drops cached pages. Caller holds the lock. */
static void hooks_forget(const void *memory, size_t bytes)
{
    uintptr_t begin = (uintptr_t)memory;

    if (begin < hooks_pinned.end && begin + bytes > hooks_pinned.begin)
        hooks_pinned.end = hooks_pinned.begin = 0;
}

/* ---- functions for the program ---- */

EXPORT void hooks_pin(const void *memory, size_t bytes)
{
    hooks_enter("hooks_pin");
    hooks_pinned.begin = (uintptr_t)memory;
    hooks_pinned.end = (uintptr_t)memory + bytes;
    hooks_leave();
}

EXPORT bool hooks_has_pinned(void)
{
    return hooks_pinned.end > 0;
}

EXPORT void hooks_interrupt(void)
{
    hooks_enter("hooks_interrupt");
    raise(SIGUSR1);
    hooks_leave();
}

EXPORT void hooks_mislead(bool misleads)
{
    hooks_misleads = misleads;
}

/* ---- hooked functions of libc ---- */

EXPORT void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    void *memory;

    if (!hooks_syscall)
        hooks_begin();
    hooks_enter("mmap");
    if (flags & MAP_FIXED)
        hooks_forget(at, bytes);
    memory = (void *)hooks_syscall(SYS_mmap, at, bytes, (long)protection, (long)flags, (long)fd,
                                   (long)offset);
    hooks_leave();
    return memory;
}

EXPORT int munmap(void *memory, size_t bytes)
{
    long status;

    hooks_enter("munmap");
    hooks_forget(memory, bytes);
    status = hooks_syscall(SYS_munmap, memory, bytes);
    hooks_leave();
    return (int)status;
}

/* libc's declaration has a fifth argument if flags has MREMAP_FIXED. */
EXPORT void *mremap(void *memory, size_t bytes, size_t new_bytes, int flags, ...)
{
    void *moved;

    hooks_enter("mremap");
    hooks_forget(memory, bytes);
    moved = (void *)hooks_syscall(SYS_mremap, memory, bytes, new_bytes, (long)flags, NULL);
    hooks_leave();
    return moved;
}

EXPORT int madvise(void *memory, size_t bytes, int advice)
{
    long status;

    hooks_enter("madvise");
    if (advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE)
        hooks_forget(memory, bytes);
    status = hooks_syscall(SYS_madvise, memory, bytes, (long)advice);
    hooks_leave();
    return (int)status;
}

/*
 * UCX does not hook this function, but other tools do. If hooks_mislead was called, places a
 * mapping elsewhere than the program requests.
 */
EXPORT long syscall(long number, ...)
{
    long a[6];
    va_list list;

    va_start(list, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (!hooks_syscall)
        hooks_begin();
    if (hooks_misleads && number == SYS_mremap && a[3] & MREMAP_FIXED)
        a[4] = hooks_syscall(SYS_mmap, NULL, a[2], (long)PROT_NONE,
                             (long)(MAP_PRIVATE | MAP_ANONYMOUS), -1L, 0L);
    return hooks_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
