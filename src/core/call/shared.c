/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of all ranks of a machine that each of them sees. */
#include "base/checked.h"
#include "base/process_lock.h"
#include "base/settings/config.h"
#include "core/group/group.h"
#include "node/segment/segment.h"

#include <stdlib.h>
#include <unistd.h>

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

static void shared_note(struct shared_parts *parts)
{
    pthread_mutex_lock(&shared_lock);
    parts->next = shared_all;
    shared_all = parts;
    pthread_mutex_unlock(&shared_lock);
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

static dist_status shared_is_possible(const struct dist_group *group)
{
    int wanted;
    dist_status status = disti_env_int("DIST_NODE_MEMORY", 0, 1, 1, &wanted);

    if (status != DIST_OK || wanted)
        return status;
    return disti_fail(DIST_ERR_UNSUPPORTED, "rank %d: dist_shared_alloc: DIST_NODE_MEMORY is 0",
                      group->rank);
}

static dist_status shared_offer(const struct dist_group *group, size_t bytes,
                                struct shared_parts *parts, struct shared_offer *offer)
{
    dist_status status = shared_is_possible(group);

    offer->bytes = bytes > 0 ? bytes : 1;
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

/* Some other way may be open to the program: hence the status, as where there is no such memory. */
static dist_status shared_unseen(const struct dist_group *group, int rank)
{
    char why[512];

    disti_text(why, sizeof(why), "%s", dist_last_error());
    return disti_fail(DIST_ERR_UNSUPPORTED,
                      "rank %d: dist_shared_alloc: it cannot see the memory of rank %d: %s",
                      group->rank, rank, why);
}

static void shared_unmap(const struct shared_offer *offer)
{
    disti_segment_inherit(&offer->at, (size_t)offer->bytes, false);
    disti_segment_unmap(offer->at.name.key);
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
        if (status == DIST_ERR_SYSTEM || status == DIST_ERR_NO_MEMORY)
            status = shared_unseen(group, r);
        if (status != DIST_OK)
            return status;
    }
    return DIST_OK;
}

static void shared_end(struct shared_parts *parts)
{
    if (!parts)
        return;
    for (int r = 0; r < parts->mapped; r++)
        shared_unmap(&parts->offers[r]);
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
    if (status == DIST_OK)
        shared_note(made);
    else
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
