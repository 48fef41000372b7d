/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_alloc, dist_register and dist_shared_alloc: memory from the backend, or from segments
 * that other processes of the machine can map. */
#include "base/settings/config.h"

#include "base/checked.h"
#include "base/lock.h"
#include "core/group.h"
#include "node/node.h"

#include <stdlib.h>
#include <unistd.h>

/* Memory that a backend allocated for the program. Freed with the group at the latest. */
struct memory_entry {
    struct memory_entry *next;
    struct dist_group *group;
    void *memory;
};

DISTI_PROCESS_LOCK(memory_lock);
static struct memory_entry *memory_allocated;
static struct memory_entry *memory_empty; /* addresses registered with 0 bytes */

static void memory_add(struct memory_entry **list, struct memory_entry *entry)
{
    pthread_mutex_lock(&memory_lock);
    entry->next = *list;
    *list = entry;
    pthread_mutex_unlock(&memory_lock);
}

/* Removes and returns the entry of `memory`, or any entry of the group if `memory` is NULL.
 * Returns NULL if there is none. */
static struct memory_entry *memory_remove(struct memory_entry **list,
                                          const struct dist_group *group, const void *memory)
{
    struct memory_entry **at = list, *entry;

    pthread_mutex_lock(&memory_lock);
    while (*at && (memory ? (*at)->memory != memory : (*at)->group != group))
        at = &(*at)->next;
    entry = *at;
    if (entry)
        *at = entry->next;
    pthread_mutex_unlock(&memory_lock);
    return entry;
}

/* ---- memory of the backend ---- */

static dist_status memory_alloc(struct dist_group *group, size_t bytes, void **memory_p)
{
    struct memory_entry *entry = calloc(1, sizeof(*entry));
    dist_status status;

    if (!entry)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to record an allocation");
    entry->group = group;
    disti_group_enter(group);
    if (group->failed) {
        status = disti_group_refuse(group, "dist_alloc");
    } else {
        disti_drive_wake(group);
        entry->memory = group->backend->alloc(group->state, bytes);
        status = entry->memory ? DIST_OK
                               : disti_fail(DIST_ERR_NO_MEMORY,
                                            "rank %d: backend %s cannot allocate %zu bytes",
                                            group->rank, group->backend->name, bytes);
    }
    disti_group_exit(group);
    if (status != DIST_OK) {
        free(entry);
        return status;
    }
    *memory_p = entry->memory;
    memory_add(&memory_allocated, entry);
    return DIST_OK;
}

void disti_memory_forked(void)
{
    memory_allocated = memory_empty = NULL;
}

void disti_memory_reclaim(struct dist_group *group)
{
    struct memory_entry *entry;

    while ((entry = memory_remove(&memory_allocated, group, NULL))) {
        group->backend->free(group->state, entry->memory);
        free(entry);
    }
}

/* ---- the public calls ---- */

/* Selects the group's log, unless the group is NULL or destroyed. */
static void memory_log(const struct dist_group *group)
{
    disti_log_use(group && !atomic_load(&group->destroyed) ? group->log : NULL);
}

dist_status dist_alloc(dist_group *group, size_t bytes, void **memory_p)
{
    dist_status status = group ? disti_group_check(group, "dist_alloc") : DIST_OK;

    if (status != DIST_OK)
        return status;
    if (!memory_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_alloc: memory_p is NULL: pass the address of a pointer");
    if (bytes > DISTI_BYTES_MAX)
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "dist_alloc: bytes is %zu, more than the address space: request at most %zu", bytes,
            DISTI_BYTES_MAX);
    if (bytes == 0) {
        *memory_p = NULL;
        return DIST_OK;
    }
    if (group && group->backend->alloc && group->backend->free)
        return memory_alloc(group, bytes, memory_p);
    memory_log(group);
    status = disti_segment_alloc(bytes, memory_p);
    disti_log_use(NULL);
    return status;
}

/* Accepts a NULL or destroyed group, but no group of the parent process. */
static dist_status memory_check(const struct dist_group *group, const char *what)
{
    return group && group->inherited ? disti_group_check(group, what) : DIST_OK;
}

dist_status dist_free(dist_group *group, void *memory)
{
    dist_status status = memory_check(group, "dist_free");
    struct memory_entry *entry;

    if (status != DIST_OK)
        return status;
    entry = memory ? memory_remove(&memory_allocated, NULL, memory) : NULL;
    if (entry) {
        struct dist_group *owner = entry->group;

        disti_group_enter(owner);
        disti_drive_wake(owner);
        owner->backend->free(owner->state, entry->memory);
        disti_group_exit(owner);
        free(entry);
        return DIST_OK;
    }
    memory_log(group);
    status = disti_segment_free(memory);
    disti_log_use(NULL);
    return status;
}

dist_status dist_register(dist_group *group, void *memory, size_t bytes)
{
    dist_status status = disti_group_check(group, "dist_register");

    if (status != DIST_OK)
        return status;
    if (bytes == 0) {
        /* Nothing to register, but dist_unregister must find the address. */
        struct memory_entry *empty = memory ? calloc(1, sizeof(*empty)) : NULL;

        if (!memory)
            return DIST_OK;
        if (!empty)
            return disti_fail(DIST_ERR_NO_MEMORY, "no memory to record a registration");
        empty->memory = memory;
        memory_add(&memory_empty, empty);
        return DIST_OK;
    }
    if (!memory)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_register: memory is NULL: pass the address of %zu bytes", bytes);
    if (!disti_addressable(memory, bytes))
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "dist_register: %zu bytes at %p extend past the end of the address space: "
            "pass the size of the memory",
            bytes, memory);
    memory_log(group);
    status = disti_segment_register(memory, bytes);
    disti_log_use(NULL);
    return status;
}

dist_status dist_unregister(dist_group *group, void *memory)
{
    dist_status status = memory_check(group, "dist_unregister");
    struct memory_entry *empty;

    if (status != DIST_OK)
        return status;
    empty = memory ? memory_remove(&memory_empty, NULL, memory) : NULL;
    free(empty);
    if (empty)
        return DIST_OK;
    memory_log(group);
    status = disti_segment_unregister(memory);
    disti_log_use(NULL);
    return status;
}

/* dist_shared_alloc: memory of each rank that all ranks of the machine map. */

/* The location of this rank's part, sent to the other ranks. */
struct shared_offer {
    struct disti_segment_location at;
    uint64_t bytes;
};

/* All parts of one dist_shared_alloc call, kept for dist_shared_free. */
struct shared_parts {
    struct shared_parts *next;
    struct dist_group *group;
    void *own;
    int mapped; /* the parts of ranks 0 to mapped - 1 are mapped */
    struct shared_offer offers[];
};

DISTI_PROCESS_LOCK(shared_lock);
static struct shared_parts *shared_all;

void disti_shared_forked(void)
{
    shared_all = NULL;
}

/* Removes and returns the parts of the call that returned `own`, or NULL. */
static struct shared_parts *shared_remove(const void *own)
{
    struct shared_parts **entry = &shared_all, *parts;

    pthread_mutex_lock(&shared_lock);
    while (*entry && (*entry)->own != own)
        entry = &(*entry)->next;
    parts = *entry;
    if (parts)
        *entry = parts->next;
    pthread_mutex_unlock(&shared_lock);
    return parts;
}

/* ---- one rank's part ---- */

static dist_status shared_offer(const struct dist_group *group, size_t bytes,
                                struct shared_parts *parts, struct shared_offer *offer)
{
    int wanted;
    dist_status status = disti_variable_int("DIST_NODE_MEMORY", 1, &wanted);

    offer->bytes = bytes > 0 ? bytes : 1;
    if (status == DIST_OK && !wanted)
        status = disti_fail(DIST_ERR_UNSUPPORTED,
                            "rank %d: dist_shared_alloc: shared memory is disabled: do not set "
                            "DIST_NODE_MEMORY=0",
                            group->rank);
    if (status == DIST_OK)
        status = disti_segment_alloc(offer->bytes, &parts->own);
    if (status == DIST_OK && !disti_segment_find(parts->own, offer->bytes, &offer->at))
        status =
            disti_fail(DIST_ERR_UNSUPPORTED,
                       "rank %d: dist_shared_alloc: cannot create shared memory: raise `ulimit "
                       "-n`, or allow memfd_create in the sandbox",
                       group->rank);
    return status;
}

static dist_status shared_map(const struct shared_offer *offer, void **part_p)
{
    const size_t bytes = (size_t)offer->bytes;
    void *memory;
    dist_status status;

    if (!disti_inside(offer->at.offset, bytes, offer->at.name.bytes))
        return disti_fail(DIST_ERR_INTERNAL,
                          "dist_shared_alloc: a rank's part, %zu bytes at offset %llu, is outside "
                          "its segment of %llu bytes",
                          bytes, (unsigned long long)offer->at.offset,
                          (unsigned long long)offer->at.name.bytes);
    status = disti_segment_map(&offer->at.name, &memory);
    if (status != DIST_OK)
        return status;
    disti_segment_inherit(&offer->at, bytes, true);
    *part_p = (char *)memory + offer->at.offset;
    return DIST_OK;
}

/* ---- all ranks ---- */

/*
 * Called on every rank, with its own status. Returns the status of the lowest rank that failed, or
 * DIST_OK. Only that rank's own error has the cause. Allocates nothing, since memory may be
 * exhausted.
 */
static dist_status shared_agree(struct dist_group *group, dist_status mine)
{
    /* 0: success. Otherwise world_size - rank in the upper half, so that the maximum is the lowest
     * failed rank's value, and -status in the lower half. */
    uint64_t first = 0;
    dist_status status;
    int rank;

    if (mine != DIST_OK)
        first = (uint64_t)(group->world_size - group->rank) << 32 | (uint32_t)-mine;
    status = dist_all_reduce(group, &first, &first, 1, DIST_UINT64, DIST_MAX);
    if (status != DIST_OK || first == 0)
        return status;
    rank = group->world_size - (int)(first >> 32);
    if (rank == group->rank)
        return mine;
    return disti_fail((dist_status) - (int)(uint32_t)first,
                      "rank %d: dist_shared_alloc: rank %d could not share its memory; its own "
                      "error has the cause",
                      group->rank, rank);
}

static dist_status shared_map_all(const struct dist_group *group, struct shared_parts *parts,
                                  void **addresses)
{
    for (; parts->mapped < group->world_size; parts->mapped++) {
        const int r = parts->mapped;
        dist_status status = DIST_OK;

        if (r == group->rank)
            addresses[r] = parts->own;
        else
            status = shared_map(&parts->offers[r], &addresses[r]);
        if (status == DIST_ERR_SYSTEM || status == DIST_ERR_NO_MEMORY) {
            char why[512];

            disti_text(why, sizeof(why), "%s", dist_last_error());
            status = disti_fail(DIST_ERR_UNSUPPORTED,
                                "rank %d: dist_shared_alloc: cannot map the memory of rank %d: %s",
                                group->rank, r, why);
        }
        if (status != DIST_OK)
            return status;
    }
    return DIST_OK;
}

static void shared_release(struct shared_parts *parts)
{
    if (!parts)
        return;
    for (int r = 0; r < parts->mapped; r++) {
        disti_segment_inherit(&parts->offers[r].at, (size_t)parts->offers[r].bytes, false);
        disti_segment_unmap(parts->offers[r].at.name.key);
    }
    disti_segment_free(parts->own);
    free(parts);
}

/* ---- the public calls ---- */

static dist_status shared_check(const struct dist_group *group, size_t bytes, void *const *parts)
{
    dist_status status = disti_group_check(group, "dist_shared_alloc");

    if (status != DIST_OK)
        return status;
    if (!parts)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_shared_alloc: parts is NULL: pass an array of %d pointers, one for "
                          "each rank",
                          group->world_size);
    if (bytes > DISTI_BYTES_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_shared_alloc: bytes is %zu, more than the address space: request "
                          "at most %zu",
                          bytes, DISTI_BYTES_MAX);
    for (int r = 0; r < group->world_size; r++)
        if (group->places[r].node != group->places[group->rank].node)
            return disti_fail(DIST_ERR_UNSUPPORTED,
                              "rank %d: dist_shared_alloc: rank %d is on another machine: create "
                              "a group for the ranks of each machine (dist_split_group)",
                              group->rank, r);
    return DIST_OK;
}

dist_status dist_shared_alloc(dist_group *group, size_t bytes, void **parts)
{
    dist_status status = shared_check(group, bytes, parts);
    struct shared_parts *made;
    struct shared_offer mine = {.bytes = 0};

    if (status != DIST_OK)
        return status;
    made = calloc(1, sizeof(*made) + (size_t)group->world_size * sizeof(made->offers[0]));
    status = made ? shared_offer(group, bytes, made, &mine)
                  : disti_fail(DIST_ERR_NO_MEMORY, "no memory to record an allocation");
    status = shared_agree(group, status);
    if (status == DIST_OK) {
        made->group = group;
        status = dist_all_gather(group, &mine, made->offers, sizeof(mine), DIST_UINT8);
    }
    if (status == DIST_OK)
        status = shared_agree(group, shared_map_all(group, made, parts));
    if (status == DIST_OK) {
        pthread_mutex_lock(&shared_lock);
        made->next = shared_all;
        shared_all = made;
        pthread_mutex_unlock(&shared_lock);
    } else
        shared_release(made);
    return status;
}

dist_status dist_shared_free(void *memory)
{
    struct shared_parts *parts;

    if (!memory)
        return DIST_OK;
    parts = shared_remove(memory);
    if (!parts)
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "dist_shared_free: %p is not this rank's own part from dist_shared_alloc, "
            "or was freed before: pass parts[rank]",
            memory);
    /* If the group failed, a peer may not have noticed and may still write to the memory. */
    if (atomic_load(&parts->group->over))
        disti_segment_retire();
    shared_release(parts);
    return DIST_OK;
}
