/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend hccl: device memory, and the classification of addresses. */
#include "hccl.h"

#include <stdio.h>
#include <stdlib.h>

#define MEMORY_PAGE ((size_t)4096)

/* Memory allocated by dist_alloc, for all groups of the process. */
struct memory_allocation {
    struct memory_allocation *next;
    void *base; /* the runtime's address; memory begins at the next page boundary */
    char *memory;
    size_t bytes;
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory_allocation *memory_allocations;

static bool memory_is_allocated(const void *memory)
{
    const struct memory_allocation *allocation;

    pthread_mutex_lock(&memory_lock);
    allocation = memory_allocations;
    while (allocation && ((const char *)memory < allocation->memory ||
                          (const char *)memory >= allocation->memory + allocation->bytes))
        allocation = allocation->next;
    pthread_mutex_unlock(&memory_lock);
    return allocation != NULL;
}

bool hccl_is_device(const struct hccl_group *g, const void *memory)
{
    struct hccl_acl_pointer what = {.type = -1};
    void *previous;

    if (!memory)
        return false;
    if (memory_is_allocated(memory))
        return true;
    if (!g->api->acl.pointer || !hccl_enter(g, &previous))
        return false;
    if (g->api->acl.pointer(memory, &what))
        what.type = -1;
    hccl_leave(g, previous);
    return what.type == HCCL_ACL_MEMORY_DEVICE;
}

bool hccl_enter(const struct hccl_group *g, void **previous_p)
{
    void *previous = NULL;

    if (g->api->acl.context_get(&previous))
        previous = NULL;
    *previous_p = previous;
    return previous == g->context || g->api->acl.context_set(g->context) == 0;
}

/* If the thread had no context, it keeps the group's, because a context cannot be unset. */
void hccl_leave(const struct hccl_group *g, void *previous)
{
    if (previous && previous != g->context)
        g->api->acl.context_set(previous);
}

/* ---- dist_alloc ---- */

static bool memory_fill(const struct hccl_group *g, struct memory_allocation *allocation,
                        size_t bytes)
{
    size_t whole = (bytes + 2 * MEMORY_PAGE - 1) / MEMORY_PAGE * MEMORY_PAGE;
    void *previous;
    bool filled;

    if (whole < bytes || !hccl_enter(g, &previous))
        return false;
    filled = g->api->acl.malloc(&allocation->base, whole, HCCL_ACL_HUGE_FIRST) == 0;
    if (filled && g->api->acl.memset(allocation->base, whole, 0, whole)) {
        g->api->acl.free(allocation->base);
        filled = false;
    }
    hccl_leave(g, previous);
    allocation->memory =
        (char *)(((uintptr_t)allocation->base + MEMORY_PAGE - 1) & ~(MEMORY_PAGE - 1));
    allocation->bytes = bytes;
    return filled;
}

void *hccl_alloc(void *state, size_t bytes)
{
    const struct hccl_state *s = state;
    struct memory_allocation *allocation = calloc(1, sizeof(*allocation));

    if (!allocation || !memory_fill(s->group, allocation, bytes)) {
        free(allocation);
        return NULL;
    }
    pthread_mutex_lock(&memory_lock);
    allocation->next = memory_allocations;
    memory_allocations = allocation;
    pthread_mutex_unlock(&memory_lock);
    return allocation->memory;
}

void hccl_free(void *state, void *memory)
{
    const struct hccl_state *s = state;
    struct memory_allocation **link = &memory_allocations, *allocation;
    void *previous;

    pthread_mutex_lock(&memory_lock);
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    allocation = *link;
    if (allocation)
        *link = allocation->next;
    pthread_mutex_unlock(&memory_lock);
    if (allocation && hccl_enter(s->group, &previous)) {
        s->group->api->acl.free(allocation->base);
        hccl_leave(s->group, previous);
    }
    free(allocation);
}

/* ---- regions ---- */

struct hccl_region *hccl_region_acquire(struct hccl_group *g, size_t bytes)
{
    struct hccl_region **link = &g->regions, *region;
    size_t capacity = 512;

    while (*link && (*link)->bytes < bytes)
        link = &(*link)->next;
    region = *link;
    if (region) {
        *link = region->next;
        return region;
    }
    while (capacity < bytes && capacity < SIZE_MAX / 2)
        capacity *= 2;
    region = calloc(1, sizeof(*region));
    if (!region || g->api->acl.malloc(&region->memory, capacity, HCCL_ACL_HUGE_FIRST)) {
        free(region);
        return NULL;
    }
    region->bytes = capacity;
    return region;
}

void hccl_region_release(struct hccl_group *g, struct hccl_region *region)
{
    struct hccl_region **link = &g->regions;

    if (!region)
        return;
    while (*link && (*link)->bytes < region->bytes) /* in ascending order of size */
        link = &(*link)->next;
    region->next = *link;
    *link = region;
}
