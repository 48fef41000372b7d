/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: memory of the device. */
#include "backends/nccl/stage.h"

#include <stdlib.h>

/* What dist_alloc promises of the address. */
#define MEMORY_PAGE ((size_t)4096)
#define MEMORY_LARGE ((size_t)2 << 20)

/* What was allocated for the program. */
struct disti_nccl_memory {
    struct disti_nccl_memory *next;
    void *memory;   /* what the program has */
    void *nccl;     /* NCCL's, or NULL */
    uintptr_t base; /* the driver's, or 0 */
    void *handle;   /* of its registration, or NULL */
};

/* What was kept for data of the host makes room. */
static bool memory_give_way(struct disti_nccl_state *nccl)
{
    struct disti_nccl_region **entry = &nccl->gpu->regions, *region;
    bool freed = false;

    while ((region = *entry)) {
        if (region->used) {
            entry = &region->next;
            continue;
        }
        *entry = region->next;
        nccl->driver->memory_free(region->memory);
        free(region);
        freed = true;
    }
    return freed;
}

uintptr_t disti_nccl_device_memory(struct disti_nccl_state *nccl, size_t bytes)
{
    uintptr_t memory = 0;

    if (nccl->driver->memory_alloc(&memory, bytes) == 0)
        return memory;
    if (memory_give_way(nccl) && nccl->driver->memory_alloc(&memory, bytes) == 0)
        return memory;
    return 0;
}

static void memory_drop(struct disti_nccl_state *nccl, struct disti_nccl_memory *m)
{
    if (m->handle && nccl->comm)
        nccl->api->comm_deregister(nccl->comm, m->handle);
    if (m->nccl)
        nccl->api->mem_free(m->nccl);
    if (m->base)
        nccl->driver->memory_free(m->base);
    free(m);
}

static size_t memory_page(size_t bytes)
{
    return bytes < MEMORY_LARGE ? MEMORY_PAGE : MEMORY_LARGE;
}

/* NCCL's memory can be registered with it, so that it is moved without copies on the way. */
static bool memory_of_nccl(struct disti_nccl_state *nccl, size_t bytes, struct disti_nccl_memory *m)
{
    const struct disti_nccl_api *api = nccl->api;

    if (!api->mem_alloc || !api->mem_free ||
        api->mem_alloc(&m->nccl, bytes) != DISTI_NCCL_SUCCESS || !m->nccl)
        return false;
    if ((uintptr_t)m->nccl % memory_page(bytes)) { /* where it cannot map, it takes what it gets */
        api->mem_free(m->nccl);
        m->nccl = NULL;
        return false;
    }
    m->memory = m->nccl;
    if (!api->comm_register || !api->comm_deregister ||
        api->comm_register(nccl->comm, m->nccl, bytes, &m->handle) != DISTI_NCCL_SUCCESS)
        m->handle = NULL;
    return true;
}

static bool memory_of_driver(struct disti_nccl_state *nccl, size_t bytes,
                             struct disti_nccl_memory *m)
{
    const size_t page = memory_page(bytes);

    if (bytes > SIZE_MAX - page)
        return false;
    m->nccl = NULL;
    m->base = disti_nccl_device_memory(nccl, bytes + page);
    m->memory = disti_nccl_pointer((m->base + page - 1) / page * page);
    return m->base != 0;
}

/* On a stream that is behind no call. */
static bool memory_zero(struct disti_nccl_state *nccl, void *memory, size_t bytes)
{
    const struct disti_driver *driver = nccl->driver;
    void *stream = NULL;
    bool good = driver->stream_create(&stream, DISTI_DRIVER_STREAM_NON_BLOCKING) == 0 &&
                driver->fill((uintptr_t)memory, 0, bytes, stream) == 0 &&
                driver->stream_synchronize(stream) == 0;

    if (stream)
        driver->stream_destroy(stream);
    return good;
}

static void *memory_make(struct disti_nccl_state *nccl, size_t bytes)
{
    struct disti_nccl_memory *m = calloc(1, sizeof(*m));

    if (!m)
        return NULL;
    if ((!memory_of_nccl(nccl, bytes, m) && !memory_of_driver(nccl, bytes, m)) ||
        !memory_zero(nccl, m->memory, bytes)) {
        memory_drop(nccl, m);
        return NULL;
    }
    m->next = nccl->memory;
    nccl->memory = m;
    return m->memory;
}

void *disti_nccl_alloc(void *state, size_t bytes)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    void *memory;

    if (!nccl->comm || !disti_nccl_enter(nccl->gpu, &visit))
        return NULL;
    memory = memory_make(nccl, bytes);
    disti_nccl_exit(nccl->gpu, &visit);
    return memory;
}

void disti_nccl_free(void *state, void *memory)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_memory **entry = &nccl->memory, *m;
    struct disti_nccl_visit visit;

    while (*entry && (*entry)->memory != memory)
        entry = &(*entry)->next;
    m = *entry;
    if (!m || !disti_nccl_enter(nccl->gpu, &visit))
        return;
    *entry = m->next;
    memory_drop(nccl, m);
    disti_nccl_exit(nccl->gpu, &visit);
}
