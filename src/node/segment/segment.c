/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared memory of this process: allocated, found by address, freed. */
#include "node/segment/segment.h"

#include "base/checked.h"
#include "base/log.h"
#include "node/segment/arena.h"
#include "node/segment/file.h"
#include "node/segment/table.h"

#include <sys/mman.h>

/* Whole pages, at least one. */
static dist_status segment_round(size_t bytes, size_t *bytes_p)
{
    size_t page = disti_segment_page();

    if (!disti_add(bytes ? bytes : 1, page - 1, bytes_p))
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "%zu bytes of shared memory are more than can exist: ask for less",
                          bytes);
    *bytes_p -= *bytes_p % page;
    return DIST_OK;
}

static dist_status segment_add(const struct segment *segment)
{
    dist_status status;

    disti_segment_lock();
    status = disti_segment_table_room();
    if (status == DIST_OK)
        disti_segment_table_add(segment);
    disti_segment_unlock();
    return status;
}

/* ---- blocks of arenas ---- */

static dist_status segment_alloc_private(size_t bytes, void **memory_p)
{
    struct segment segment = {.kind = SEGMENT_PRIVATE, .bytes = bytes};
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    dist_status status;

    if (memory == MAP_FAILED)
        return disti_fail(DIST_ERR_NO_MEMORY, "no room for %zu KiB of memory: free some",
                          bytes >> 10);
    disti_segment_log_private(bytes);
    segment.memory = memory;
    status = segment_add(&segment);
    if (status == DIST_OK)
        *memory_p = memory;
    else
        munmap(memory, bytes);
    return status;
}

/* A block of whole pages out of the pool. *shared_p: see disti_arena_take. */
static dist_status segment_take(enum arena_pool pool, size_t *bytes, struct arena_block *block_p,
                                bool *shared_p)
{
    dist_status status;

    disti_segment_begin();
    status = segment_round(*bytes, bytes);
    return status == DIST_OK ? disti_arena_take(pool, *bytes, block_p, shared_p) : status;
}

dist_status disti_segment_alloc(size_t bytes, void **memory_p)
{
    struct arena_block block;
    bool shared;
    dist_status status = segment_take(ARENA_PROGRAM, &bytes, &block, &shared);

    if (status == DIST_OK && !shared)
        return segment_alloc_private(bytes, memory_p);
    if (status == DIST_OK)
        *memory_p = disti_arena_memory(&block);
    return status;
}

dist_status disti_segment_alloc_shared(size_t bytes, void **memory_p,
                                       struct disti_segment_location *location_p)
{
    struct arena_block block;
    bool shared;
    dist_status status = segment_take(ARENA_LIBRARY, &bytes, &block, &shared);

    if (status != DIST_OK)
        return status;
    if (!shared)
        return disti_fail(DIST_ERR_NO_MEMORY, "no shared memory can be made: raise `ulimit -n`, "
                                              "or allow memfd_create in the sandbox");
    *location_p =
        (struct disti_segment_location){.name = *disti_arena_name(&block), .offset = block.offset};
    *memory_p = disti_arena_memory(&block);
    return DIST_OK;
}

/* It is in the table no more, but for an arena, whose block it was. */
static void segment_end(const struct segment *segment)
{
    if (segment->kind == SEGMENT_ARENA)
        disti_arena_give(&(struct arena_block){.arena = segment->arena, .offset = segment->offset});
    else
        munmap(segment->memory, segment->bytes);
}

dist_status disti_segment_free(void *memory)
{
    struct segment segment;
    dist_status status;

    if (!memory)
        return DIST_OK;
    disti_segment_lock();
    status = disti_segment_table_take(memory, false, &segment);
    disti_segment_unlock();
    if (status == DIST_OK)
        segment_end(&segment);
    return status;
}

/* ---- what lies where ---- */

/* With the lock held. */
static bool segment_holds(const void *memory, size_t bytes,
                          struct disti_segment_location *location_p)
{
    const struct segment *segment = disti_segment_table_find(memory);
    struct arena_block block = {.offset = 0};
    size_t offset, end;

    if (!segment || segment->name.key == 0)
        return false;
    offset = (size_t)((uintptr_t)memory - (uintptr_t)segment->memory);
    end = segment->bytes;
    if (segment->kind == SEGMENT_ARENA) {
        if (!disti_arena_find(segment->arena, memory, &block, &end))
            return false;
        end += block.offset;
    }
    if (!disti_inside(offset, bytes, end))
        return false;
    *location_p =
        (struct disti_segment_location){.name = segment->name, .offset = segment->offset + offset};
    return true;
}

bool disti_segment_find(const void *memory, size_t bytes, struct disti_segment_location *location_p)
{
    bool found;

    if (disti_segment_table_length() == 0)
        return false;
    disti_segment_lock();
    found = segment_holds(memory, bytes, location_p);
    disti_segment_unlock();
    return found;
}
