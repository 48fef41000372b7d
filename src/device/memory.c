/* SPDX-License-Identifier: BSD-3-Clause */
/* Moving bytes between a device and the host. */
#include "device/memory.h"

#include "base/lock.h"

#include <pthread.h>

/* What is kept of memory that was given back: to pin a page takes longer than to copy it. */
#define PINNED_KEPT ((size_t)64 << 20)
/* Pieces have powers of two of bytes, this many at least. */
#define PINNED_LEAST ((size_t)64 << 10)

/* A piece that nobody uses; it stands at its own beginning. */
struct pinned_piece {
    struct pinned_piece *next;
    size_t bytes;
};

DISTI_PROCESS_LOCK(pinned_lock);
static struct pinned_piece *pinned_free;
static size_t pinned_kept;

/* 0: there is no such size. */
static size_t pinned_size(size_t bytes)
{
    size_t size = PINNED_LEAST;

    while (size && size < bytes)
        size *= 2;
    return size;
}

void *disti_pinned_take(const struct disti_driver *driver, const void *device, size_t bytes)
{
    struct pinned_piece **entry = &pinned_free, *piece;
    size_t size = pinned_size(bytes);
    void *memory = NULL;

    if (!size)
        return NULL;
    pthread_mutex_lock(&pinned_lock);
    while (*entry && (*entry)->bytes != size)
        entry = &(*entry)->next;
    piece = *entry;
    if (piece) {
        *entry = piece->next;
        pinned_kept -= size;
    }
    pthread_mutex_unlock(&pinned_lock);
    memory = piece;
    if (memory || !disti_driver_enter(driver, device))
        return memory;
    if (driver->host_alloc(&memory, size, DISTI_DRIVER_HOST_PORTABLE))
        memory = NULL;
    disti_driver_exit(driver);
    return memory;
}

void disti_pinned_give(const struct disti_driver *driver, const void *device, void *memory,
                       size_t bytes)
{
    struct pinned_piece *piece = memory;
    size_t size = pinned_size(bytes);
    bool keep;

    if (!memory)
        return;
    pthread_mutex_lock(&pinned_lock);
    keep = pinned_kept + size <= PINNED_KEPT;
    if (keep) {
        piece->next = pinned_free;
        piece->bytes = size;
        pinned_free = piece;
        pinned_kept += size;
    }
    pthread_mutex_unlock(&pinned_lock);
    if (keep)
        return;
    if (!disti_driver_enter(driver, device))
        return; /* the context is gone, and its memory with it */
    driver->host_free(memory);
    disti_driver_exit(driver);
}

int disti_device_fetch(const struct disti_driver *driver, void *to, const void *device,
                       size_t bytes, void *stream)
{
    int error;

    if (!disti_driver_enter(driver, device))
        return DISTI_DRIVER_NO_CONTEXT;
    error = bytes ? driver->copy_out(to, (uintptr_t)device, bytes, stream) : 0;
    if (!error)
        error = driver->stream_synchronize(stream);
    disti_driver_exit(driver);
    return error;
}

/* A stream of its own: the program's may have work on it for a long time. */
int disti_device_store(const struct disti_driver *driver, void *device, const void *from,
                       size_t bytes)
{
    void *stream = NULL;
    int error;

    if (!disti_driver_enter(driver, device))
        return DISTI_DRIVER_NO_CONTEXT;
    error = driver->stream_create(&stream, DISTI_DRIVER_STREAM_NON_BLOCKING);
    if (!error)
        error = driver->copy_in((uintptr_t)device, from, bytes, stream);
    if (!error)
        error = driver->stream_synchronize(stream);
    if (stream)
        driver->stream_destroy(stream);
    disti_driver_exit(driver);
    return error;
}
