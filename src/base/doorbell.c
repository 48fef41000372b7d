/* SPDX-License-Identifier: BSD-3-Clause */
/* What wakes a thread that sleeps on descriptors: an eventfd, one a thread. */
#include "base/doorbell.h"

#include "base/descriptor.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

static _Thread_local int doorbell_fd; /* and one more; 0: there is none */
static pthread_once_t doorbell_once = PTHREAD_ONCE_INIT;
static pthread_key_t doorbell_key;
static bool doorbell_usable;

/* The thread ends. */
static void doorbell_end(void *value)
{
    disti_descriptor_close((int)(intptr_t)value - 1);
    doorbell_fd = 0;
}

/* The descriptor of a forked child is the parent's, and closed there. */
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

void disti_doorbell_hear(void)
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
