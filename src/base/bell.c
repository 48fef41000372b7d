/* SPDX-License-Identifier: BSD-3-Clause */
/* What wakes a thread that sleeps on descriptors: an eventfd, one a thread. */
#include "base/bell.h"

#include "base/descriptor.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static _Thread_local int bell_fd; /* and one more; 0: there is none */
static pthread_once_t bell_once = PTHREAD_ONCE_INIT;
static pthread_key_t bell_key;
static bool bell_usable;

/* The thread ends. */
static void bell_end(void *value)
{
    disti_descriptor_close((int)(intptr_t)value - 1);
    bell_fd = 0;
}

/* The descriptor of a forked child is the parent's, and closed there. */
static void bell_child(void)
{
    if (bell_usable)
        (void)pthread_setspecific(bell_key, NULL);
    bell_fd = 0;
}

static void bell_begin(void)
{
    bell_usable =
        pthread_key_create(&bell_key, bell_end) == 0 && pthread_atfork(NULL, NULL, bell_child) == 0;
}

int disti_bell(void)
{
    int fd;

    if (bell_fd)
        return bell_fd - 1;
    pthread_once(&bell_once, bell_begin);
    fd = bell_usable ? disti_descriptor_own(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) : -1;
    if (fd >= 0 && pthread_setspecific(bell_key, (void *)(intptr_t)(fd + 1)) != 0) {
        disti_descriptor_close(fd);
        fd = -1;
    }
    bell_fd = fd + 1;
    return fd;
}

void disti_bell_leave(void)
{
    if (!bell_fd)
        return;
    (void)pthread_setspecific(bell_key, NULL);
    disti_descriptor_close(bell_fd - 1);
    bell_fd = 0;
}

void disti_bell_hear(void)
{
    uint64_t times;

    if (bell_fd)
        (void)!read(bell_fd - 1, &times, sizeof(times));
}

void disti_bell_ring(int bell)
{
    uint64_t one = 1;

    if (bell >= 0)
        (void)!write(bell, &one, sizeof(one));
}
