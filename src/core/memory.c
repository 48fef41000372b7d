/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that the backend moves fastest: its own, or segments, which peers of the machine map. */
#include "base/settings/config.h"

#include "base/checked.h"
#include "base/lock.h"
#include "core/group.h"
#include "node/node.h"

#include <stdlib.h>
#include <unistd.h>

/* Memory that a backend allocated; it goes with the group. */
struct memory_loan {
    struct memory_loan *next;
    struct dist_group *group;
    void *memory;
};

DISTI_PROCESS_LOCK(memory_lock);
static struct memory_loan *memory_loans;
static struct memory_loan *memory_empties; /* registered with 0 bytes */

static void memory_note(struct memory_loan **list, struct memory_loan *loan)
{
    pthread_mutex_lock(&memory_lock);
    loan->next = *list;
    *list = loan;
    pthread_mutex_unlock(&memory_lock);
}

/* Takes out the loan of that memory, or if that is NULL one of the group's; NULL: there is none. */
static struct memory_loan *memory_take(struct memory_loan **list, const struct dist_group *group,
                                       const void *memory)
{
    struct memory_loan **entry = list, *loan;

    pthread_mutex_lock(&memory_lock);
    while (*entry && (memory ? (*entry)->memory != memory : (*entry)->group != group))
        entry = &(*entry)->next;
    loan = *entry;
    if (loan)
        *entry = loan->next;
    pthread_mutex_unlock(&memory_lock);
    return loan;
}

/* ---- of the backend ---- */

static dist_status memory_borrow(struct dist_group *group, size_t bytes, void **memory_p)
{
    struct memory_loan *loan = calloc(1, sizeof(*loan));
    dist_status status;

    if (!loan)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to note an allocation");
    loan->group = group;
    disti_group_enter(group);
    if (group->failed) {
        status = disti_group_refuse(group, "dist_alloc");
    } else {
        disti_drive_wake(group);
        loan->memory = group->backend->alloc(group->state, bytes);
        status = loan->memory ? DIST_OK
                              : disti_fail(DIST_ERR_NO_MEMORY,
                                           "rank %d: backend %s has no memory for %zu bytes",
                                           group->rank, group->backend->name, bytes);
    }
    disti_group_exit(group);
    if (status != DIST_OK) {
        free(loan);
        return status;
    }
    *memory_p = loan->memory;
    memory_note(&memory_loans, loan);
    return DIST_OK;
}

void disti_memory_forked(void)
{
    memory_loans = memory_empties = NULL;
}

void disti_memory_reclaim(struct dist_group *group)
{
    struct memory_loan *loan;

    while ((loan = memory_take(&memory_loans, group, NULL))) {
        group->backend->free(group->state, loan->memory);
        free(loan);
    }
}

/* ---- the public calls ---- */

/* The log of a group that may be gone. */
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
                          "dist_alloc: the pointer that takes the address is NULL");
    if (bytes > DISTI_BYTES_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_alloc: bytes is %zu, which no address space holds: ask for at most "
                          "%zu",
                          bytes, DISTI_BYTES_MAX);
    if (bytes == 0) {
        *memory_p = NULL;
        return DIST_OK;
    }
    if (group && group->backend->alloc && group->backend->free)
        return memory_borrow(group, bytes, memory_p);
    memory_log(group);
    status = disti_segment_alloc(bytes, memory_p);
    disti_log_use(NULL);
    return status;
}

/* The group may be NULL or destroyed, but not a parent's. */
static dist_status memory_check(const struct dist_group *group, const char *what)
{
    return group && group->inherited ? disti_group_check(group, what) : DIST_OK;
}

dist_status dist_free(dist_group *group, void *memory)
{
    dist_status status = memory_check(group, "dist_free");
    struct memory_loan *loan;

    if (status != DIST_OK)
        return status;
    loan = memory ? memory_take(&memory_loans, NULL, memory) : NULL;
    if (loan) {
        struct dist_group *owner = loan->group;

        disti_group_enter(owner);
        disti_drive_wake(owner);
        owner->backend->free(owner->state, loan->memory);
        disti_group_exit(owner);
        free(loan);
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
        /* No bytes need no registration, but dist_unregister has to know the address. */
        struct memory_loan *empty = memory ? calloc(1, sizeof(*empty)) : NULL;

        if (!memory)
            return DIST_OK;
        if (!empty)
            return disti_fail(DIST_ERR_NO_MEMORY, "no memory to note a registration");
        empty->memory = memory;
        memory_note(&memory_empties, empty);
        return DIST_OK;
    }
    if (!memory)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_register: the memory is NULL");
    if (!disti_addressable(memory, bytes))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_register: %zu bytes at %p pass the end of the address space: give "
                          "the size of the memory",
                          bytes, memory);
    memory_log(group);
    status = disti_segment_register(memory, bytes);
    disti_log_use(NULL);
    return status;
}

dist_status dist_unregister(dist_group *group, void *memory)
{
    dist_status status = memory_check(group, "dist_unregister");
    struct memory_loan *empty;

    if (status != DIST_OK)
        return status;
    empty = memory ? memory_take(&memory_empties, NULL, memory) : NULL;
    free(empty);
    if (empty)
        return DIST_OK;
    memory_log(group);
    status = disti_segment_unregister(memory);
    disti_log_use(NULL);
    return status;
}

/* Memory of all ranks of a machine that each of them sees. */

/* What a rank offers: its part. */
struct shared_offer {
    struct disti_segment_location at;
    uint64_t bytes;
};

/* All parts of one call, for dist_shared_free. */
struct shared_parts {
    struct shared_parts *next;
    struct dist_group *group;
    void *own;
    int mapped; /* offers below this are */
    struct shared_offer offers[];
};

DISTI_PROCESS_LOCK(shared_lock);
static struct shared_parts *shared_all;

void disti_shared_forked(void)
{
    shared_all = NULL;
}

/* Takes them out; NULL: there are none of that memory. */
static struct shared_parts *shared_take(const void *own)
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
                            "rank %d: dist_shared_alloc: DIST_NODE_MEMORY is 0", group->rank);
    if (status == DIST_OK)
        status = disti_segment_alloc(offer->bytes, &parts->own);
    if (status == DIST_OK && !disti_segment_find(parts->own, offer->bytes, &offer->at))
        status = disti_fail(DIST_ERR_UNSUPPORTED,
                            "rank %d: dist_shared_alloc: no memory can be shared: raise `ulimit "
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
        return disti_fail(DIST_ERR_INTERNAL, "a part of shared memory is not inside its segment");
    status = disti_segment_map(&offer->at.name, &memory);
    if (status != DIST_OK)
        return status;
    disti_segment_inherit(&offer->at, bytes, true);
    *part_p = (char *)memory + offer->at.offset;
    return DIST_OK;
}

/* ---- of all ranks ---- */

/*
 * Every rank comes here, with or without success, and gets the same status: that of the first that
 * has failed, whose own message says why. Needs no memory: there may be none.
 */
static dist_status shared_agree(struct dist_group *group, dist_status mine)
{
    uint64_t first = 0; /* ranks from that one on, and its status; 0: nobody has failed */
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
                      "message says why",
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
            status =
                disti_fail(DIST_ERR_UNSUPPORTED,
                           "rank %d: dist_shared_alloc: it cannot see the memory of rank %d: %s",
                           group->rank, r, why);
        }
        if (status != DIST_OK)
            return status;
    }
    return DIST_OK;
}

static void shared_end(struct shared_parts *parts)
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
                          "dist_shared_alloc: parts is NULL: give room for an address of each of "
                          "%d ranks",
                          group->world_size);
    if (bytes > DISTI_BYTES_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_shared_alloc: bytes is %zu, which no address space holds: ask for "
                          "at most %zu",
                          bytes, DISTI_BYTES_MAX);
    for (int r = 0; r < group->world_size; r++)
        if (group->places[r].node != group->places[group->rank].node)
            return disti_fail(DIST_ERR_UNSUPPORTED,
                              "rank %d: dist_shared_alloc: rank %d is on another machine: make a "
                              "group of the ranks of each machine (dist_split_group)",
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
                  : disti_fail(DIST_ERR_NO_MEMORY, "no memory to note an allocation");
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
        shared_end(made);
    return status;
}

dist_status dist_shared_free(void *memory)
{
    struct shared_parts *parts;

    if (!memory)
        return DIST_OK;
    parts = shared_take(memory);
    if (!parts)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_shared_free: this process did not get the memory as its own part "
                          "from dist_shared_alloc, or it was freed");
    /* A peer of a group that failed may not have noticed, and still be writing there. */
    if (atomic_load(&parts->group->over))
        disti_segment_retire();
    shared_end(parts);
    return DIST_OK;
}
