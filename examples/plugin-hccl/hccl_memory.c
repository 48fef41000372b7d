/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend hccl: memory of the device, and whose memory an address is. */
#include "hccl.h"

#include <stdio.h>
#include <stdlib.h>

#define MEMORY_PAGE ((size_t)4096)

/* What dist_alloc gave, of all groups of the process. */
struct memory_loan {
    struct memory_loan *next;
    void *base; /* the runtime's address; memory is the next page's */
    char *memory;
    size_t bytes;
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory_loan *memory_loans;

static bool memory_is_lent(const void *memory)
{
    const struct memory_loan *loan;

    pthread_mutex_lock(&memory_lock);
    loan = memory_loans;
    while (loan && ((const char *)memory < loan->memory ||
                    (const char *)memory >= loan->memory + loan->bytes))
        loan = loan->next;
    pthread_mutex_unlock(&memory_lock);
    return loan != NULL;
}

bool hccl_is_device(const struct hccl_group *g, const void *memory)
{
    struct hccl_acl_pointer what = {.type = -1};
    void *previous;

    if (!memory)
        return false;
    if (memory_is_lent(memory))
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

/* A thread that had no context keeps the group's: there is no way to have none again. */
void hccl_leave(const struct hccl_group *g, void *previous)
{
    if (previous && previous != g->context)
        g->api->acl.context_set(previous);
}

/* ---- dist_alloc ---- */

static bool memory_fill(const struct hccl_group *g, struct memory_loan *loan, size_t bytes)
{
    size_t whole = (bytes + 2 * MEMORY_PAGE - 1) / MEMORY_PAGE * MEMORY_PAGE;
    void *previous;
    bool filled;

    if (whole < bytes || !hccl_enter(g, &previous))
        return false;
    filled = g->api->acl.malloc(&loan->base, whole, HCCL_ACL_HUGE_FIRST) == 0;
    if (filled && g->api->acl.memset(loan->base, whole, 0, whole)) {
        g->api->acl.free(loan->base);
        filled = false;
    }
    hccl_leave(g, previous);
    loan->memory = (char *)(((uintptr_t)loan->base + MEMORY_PAGE - 1) & ~(MEMORY_PAGE - 1));
    loan->bytes = bytes;
    return filled;
}

void *hccl_alloc(void *state, size_t bytes)
{
    const struct hccl_state *s = state;
    struct memory_loan *loan = calloc(1, sizeof(*loan));

    if (!loan || !memory_fill(s->group, loan, bytes)) {
        free(loan);
        return NULL;
    }
    pthread_mutex_lock(&memory_lock);
    loan->next = memory_loans;
    memory_loans = loan;
    pthread_mutex_unlock(&memory_lock);
    return loan->memory;
}

void hccl_free(void *state, void *memory)
{
    const struct hccl_state *s = state;
    struct memory_loan **link = &memory_loans, *loan;
    void *previous;

    pthread_mutex_lock(&memory_lock);
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    loan = *link;
    if (loan)
        *link = loan->next;
    pthread_mutex_unlock(&memory_lock);
    if (loan && hccl_enter(s->group, &previous)) {
        s->group->api->acl.free(loan->base);
        hccl_leave(s->group, previous);
    }
    free(loan);
}

/* ---- regions ---- */

struct hccl_region *hccl_region_take(struct hccl_group *g, size_t bytes)
{
    struct hccl_region **link = &g->regions, *region;
    size_t room = 512;

    while (*link && (*link)->bytes < bytes)
        link = &(*link)->next;
    region = *link;
    if (region) {
        *link = region->next;
        return region;
    }
    while (room < bytes && room < SIZE_MAX / 2)
        room *= 2;
    region = calloc(1, sizeof(*region));
    if (!region || g->api->acl.malloc(&region->memory, room, HCCL_ACL_HUGE_FIRST)) {
        free(region);
        return NULL;
    }
    region->bytes = room;
    return region;
}

void hccl_region_give(struct hccl_group *g, struct hccl_region *region)
{
    struct hccl_region **link = &g->regions;

    if (!region)
        return;
    while (*link && (*link)->bytes < region->bytes) /* the smallest first */
        link = &(*link)->next;
    region->next = *link;
    *link = region;
}
