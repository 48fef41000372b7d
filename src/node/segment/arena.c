/* SPDX-License-Identifier: BSD-3-Clause */
/* Arenas: segments that are divided into blocks. */
#include "node/segment/arena.h"

#include "base/log.h"
#include "base/process/pages.h"
#include "node/segment/buddy.h"
#include "node/segment/file.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* The first of each pool: address space, and no memory until it is used. */
static const size_t arena_first[ARENA_POOLS] = {
    [ARENA_PROGRAM] = (size_t)256 << 20,
    [ARENA_LIBRARY] = (size_t)32 << 20,
};

struct arena {
    struct arena *next;
    enum arena_pool pool;
    char *memory;
    struct disti_segment_name name;
    struct buddy buddy; /* of pages */
    size_t blocks;      /* that are taken */
    size_t dumped;      /* bytes from the beginning that a core dump has */
    bool retired;       /* no block is taken from it any more */
};

static pthread_mutex_t arena_growth = PTHREAD_MUTEX_INITIALIZER; /* before the table's lock */
static struct arena *arenas[ARENA_POOLS];                        /* by the table's lock */

char *disti_arena_memory(const struct arena_block *block)
{
    return block->arena->memory + block->offset;
}

const struct disti_segment_name *disti_arena_name(const struct arena_block *block)
{
    return &block->arena->name;
}

/* ---- arenas that come and go ---- */

static void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    if (arena->memory)
        munmap(arena->memory, arena->name.bytes);
    if (arena->name.key)
        disti_segment_file_drop(&arena->name);
    disti_buddy_close(&arena->buddy);
    free(arena);
}

/* A core dump would make pages of all that nobody has touched. */
static dist_status arena_open(struct arena *arena, unsigned levels)
{
    size_t bytes = disti_segment_page() << levels;
    void *memory = NULL;
    dist_status status;

    if (!disti_buddy_open(&arena->buddy, levels))
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for an arena of %zu KiB", bytes >> 10);
    status = disti_segment_file_make(bytes, &arena->name);
    if (status == DIST_OK)
        status = disti_segment_file_map(arena->name.fd, 0, bytes, &memory);
    arena->memory = memory;
    if (status == DIST_OK)
        madvise(memory, bytes, MADV_DONTDUMP);
    return status;
}

/* With the lock held. */
static dist_status arena_add(struct arena *arena)
{
    struct segment segment = {.memory = arena->memory,
                              .bytes = arena->name.bytes,
                              .name = arena->name,
                              .arena = arena,
                              .kind = SEGMENT_ARENA};
    struct arena **entry = &arenas[arena->pool];
    dist_status status = disti_segment_table_room();

    if (status != DIST_OK)
        return status;
    disti_segment_table_add(&segment);
    while (*entry)
        entry = &(*entry)->next;
    *entry = arena;
    return DIST_OK;
}

/* With the lock held: out of pool and table. */
static void arena_remove(struct arena *arena)
{
    struct arena **entry = &arenas[arena->pool];

    while (*entry != arena)
        entry = &(*entry)->next;
    *entry = arena->next;
    disti_segment_table_remove(arena->memory);
}

static dist_status arena_make(enum arena_pool pool, unsigned levels)
{
    struct arena *arena = calloc(1, sizeof(*arena));
    dist_status status;

    if (!arena)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for an arena");
    arena->pool = pool;
    status = arena_open(arena, levels);
    if (status == DIST_OK) {
        disti_segment_lock();
        status = arena_add(arena);
        disti_segment_unlock();
    }
    if (status != DIST_OK)
        arena_free(arena);
    return status;
}

/* With the lock held: all of a pool's bytes that blocks may be taken from. */
static size_t arena_bytes(enum arena_pool pool)
{
    size_t bytes = 0;

    for (const struct arena *arena = arenas[pool]; arena; arena = arena->next)
        bytes += arena->retired ? 0 : arena->name.bytes;
    return bytes;
}

/* As large as all before it; if that cannot be had, as large as must be. */
static dist_status arena_grow(enum arena_pool pool, unsigned order)
{
    const struct disti_log *log = disti_log_current();
    size_t bytes;
    unsigned levels;
    dist_status status;

    disti_segment_lock();
    bytes = arena_bytes(pool);
    disti_segment_unlock();
    bytes = bytes > arena_first[pool] ? bytes : arena_first[pool];
    levels = disti_buddy_order(bytes / disti_segment_page());
    disti_log_use(NULL); /* it is no error: there is other memory */
    status = arena_make(pool, levels > order ? levels : order);
    if (status != DIST_OK && levels > order)
        status = arena_make(pool, order);
    disti_log_use(log);
    return status;
}

/* ---- blocks ---- */

static void arena_show_to_dump(struct arena *arena, size_t end)
{
    if (end <= arena->dumped)
        return;
    arena->dumped = end;
    madvise(arena->memory, end, MADV_DODUMP);
}

/* With the lock held. */
static bool arena_take_some(enum arena_pool pool, unsigned order, struct arena_block *block_p)
{
    size_t unit = 0, page = disti_segment_page();
    struct arena *arena = arenas[pool];

    while (arena && (arena->retired || !disti_buddy_take(&arena->buddy, order, &unit)))
        arena = arena->next;
    if (!arena)
        return false;
    arena->blocks++;
    arena_show_to_dump(arena, (unit + ((size_t)1 << order)) * page);
    *block_p = (struct arena_block){.arena = arena, .offset = unit * page};
    return true;
}

static bool arena_try(enum arena_pool pool, unsigned order, struct arena_block *block_p)
{
    bool taken;

    disti_segment_lock();
    taken = arena_take_some(pool, order, block_p);
    disti_segment_unlock();
    return taken;
}

/* Several threads that need an arena get one. */
static bool arena_take_or_grow(enum arena_pool pool, unsigned order, struct arena_block *block_p)
{
    bool taken = arena_try(pool, order, block_p);

    if (taken)
        return true;
    disti_arenas_lock();
    taken = arena_try(pool, order, block_p) ||
            (arena_grow(pool, order) == DIST_OK && arena_try(pool, order, block_p));
    disti_arenas_unlock();
    return taken;
}

dist_status disti_arena_take(enum arena_pool pool, size_t bytes, struct arena_block *block_p,
                             bool *shared_p)
{
    size_t page = disti_segment_page();
    unsigned order = disti_buddy_order(bytes / page + (bytes % page > 0));
    struct arena_block block;
    dist_status status = disti_segment_file_check(bytes);

    if (status != DIST_OK)
        return status;
    *shared_p = arena_take_or_grow(pool, order, &block);
    if (!*shared_p)
        return DIST_OK;
    status = disti_segment_file_reserve(&block.arena->name, block.offset, bytes);
    if (status == DIST_OK)
        *block_p = block;
    else
        disti_arena_give(&block);
    return status;
}

bool disti_arena_find(struct arena *arena, const void *memory, struct arena_block *block_p,
                      size_t *bytes_p)
{
    size_t page = disti_segment_page(), first;
    size_t unit = (size_t)((uintptr_t)memory - (uintptr_t)arena->memory) / page;
    unsigned order;

    if (!disti_buddy_find(&arena->buddy, unit, &first, &order))
        return false;
    *block_p = (struct arena_block){.arena = arena, .offset = first * page};
    *bytes_p = page << order;
    return true;
}

/* One empty arena stays, for the next that allocates. */
static bool arena_is_spare(const struct arena *arena)
{
    const struct arena *other = arenas[arena->pool];

    while (other && (other == arena || other->blocks > 0 || other->retired))
        other = other->next;
    return arena->blocks == 0 && (arena->retired || other);
}

/*
 * Who keeps pages registered with a network card watches for madvise, as for munmap; of a hole in
 * the file it would not hear. Locked pages refuse it.
 */
static void arena_punch(const struct arena_block *block, size_t bytes)
{
    if (madvise(disti_arena_memory(block), bytes, MADV_REMOVE) < 0)
        disti_segment_file_punch(&block->arena->name, block->offset, bytes);
}

void disti_arena_give(const struct arena_block *block)
{
    struct arena *arena = block->arena;
    size_t page = disti_segment_page(), bytes = page;
    struct arena_block found;
    bool spare;

    disti_segment_lock();
    disti_arena_find(arena, disti_arena_memory(block), &found, &bytes);
    disti_segment_unlock();
    arena_punch(block, bytes);
    disti_segment_lock();
    disti_buddy_give(&arena->buddy, block->offset / page, disti_buddy_order(bytes / page));
    arena->blocks--;
    spare = arena_is_spare(arena);
    if (spare)
        arena_remove(arena);
    disti_segment_unlock();
    if (spare)
        arena_free(arena);
}

/* With the lock held. An arena to be freed, which is in the pool no more; NULL: there is none. */
static struct arena *arena_retire(void)
{
    struct arena *empty = NULL;

    for (struct arena *arena = arenas[ARENA_PROGRAM]; arena; arena = arena->next) {
        arena->retired = true;
        if (arena->blocks == 0)
            empty = arena;
    }
    if (empty)
        arena_remove(empty);
    return empty;
}

void disti_segment_retire(void)
{
    struct arena *empty;

    do {
        disti_segment_lock();
        empty = arena_retire();
        disti_segment_unlock();
        arena_free(empty);
    } while (empty);
}

/* ---- a fork ---- */

void disti_arenas_lock(void)
{
    pthread_mutex_lock(&arena_growth);
}

void disti_arenas_unlock(void)
{
    pthread_mutex_unlock(&arena_growth);
}

static void arena_view(void *arg, size_t unit, size_t units)
{
    const struct arena *arena = arg;
    size_t page = disti_segment_page();

    disti_pages_map(arena->memory + unit * page, units * page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_FIXED, arena->name.fd, (off_t)(unit * page));
}

/* Of what is in no block there is no view: it may be large, and is charged as if it were used. */
void disti_arenas_forked(void)
{
    for (int pool = 0; pool < ARENA_POOLS; pool++) {
        while (arenas[pool]) {
            struct arena *arena = arenas[pool];

            arenas[pool] = arena->next;
            disti_pages_map(arena->memory, arena->name.bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            disti_buddy_each(&arena->buddy, arena_view, arena);
            close(arena->name.fd);
            disti_buddy_close(&arena->buddy);
            free(arena);
        }
    }
    disti_arenas_unlock();
}
