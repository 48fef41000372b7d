/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared memory of this process: allocation, registration, lookup by address; and mappings of
 * peers' segments.
 */
#include "node/segment.h"
#include "base/checked.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "node/node.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

/*
 * ARENA: a file that is divided into blocks. REGISTERED: memory of the program whose whole pages
 * are mapped from a block of an arena. PRIVATE: ordinary memory from disti_segment_alloc, used if
 * no arena can be created. Memory that is registered in that situation is REGISTERED, but has no
 * arena and no name.
 */
enum segment_kind { SEGMENT_ARENA, SEGMENT_REGISTERED, SEGMENT_PRIVATE };

struct segment {
    char *memory;
    size_t bytes;
    enum segment_kind kind;
    struct disti_segment_name name; /* name of the file; key 0: none */
    size_t offset;                  /* offset of `memory` in the file */
    struct arena *arena; /* ARENA: itself; REGISTERED: the arena of its block; NULL: none */
};

/* The whole pages of a segment; `bytes` may be 0. */
struct segment_pages {
    char *memory;
    size_t bytes;
    size_t offset; /* offset of `memory` in the file */
};

/*
 * An arena is a segment that is divided into blocks. Its file is sparse: pages that no block has
 * touched take no memory. So arenas are large, and each further arena of a pool is as large as all
 * previous ones together. A process therefore has few arenas, and a peer has few of them to map.
 *
 *     pool   |- 256 MiB -|   |- 256 MiB -|   |------- 512 MiB -------|   ...
 *              |  |  blocks: 2^n pages, each at a multiple of its length
 *
 * A freed block is punched out of the file: its pages return to the system, peers' mappings of the
 * block read as zeros, and the next block at that location is zeroed.
 */
enum arena_pool { ARENA_PROGRAM, ARENA_LIBRARY, ARENA_POOLS };

struct arena_block {
    struct arena *arena;
    size_t offset; /* offset in the arena */
};

/* Size of the first arena of each pool: address space, which needs no memory until it is used. */
static const size_t arena_first[ARENA_POOLS] = {
    [ARENA_PROGRAM] = (size_t)256 << 20,
    [ARENA_LIBRARY] = (size_t)32 << 20,
};

struct arena {
    struct arena *next;
    enum arena_pool pool;
    char *memory;
    struct disti_segment_name name;
    struct buddy buddy; /* allocates pages */
    size_t blocks;      /* number of allocated blocks */
    size_t dumped;      /* bytes, from the start of the arena, that a core dump includes */
    bool retired;       /* no further block is allocated from it */
};

static pthread_mutex_t arena_growth = PTHREAD_MUTEX_INITIALIZER; /* taken before table_lock */
static struct arena *arenas[ARENA_POOLS];                        /* under table_lock */

/* The table of the segments of this process. */

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *table; /* sorted by address; under table_lock */
static size_t table_capacity;
static atomic_size_t table_count;
static int32_t table_pid; /* ID of this process; set once, and again in a forked child */

/* Returns the number of segments that begin at or below an address. */
static size_t table_count_upto(const void *memory)
{
    size_t low = 0, high = atomic_load_explicit(&table_count, memory_order_relaxed);

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uintptr_t)table[middle].memory <= (uintptr_t)memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static dist_status table_reserve(void)
{
    size_t capacity = table_capacity ? 2 * table_capacity : 16;
    struct segment *larger;

    if (atomic_load_explicit(&table_count, memory_order_relaxed) < table_capacity)
        return DIST_OK;
    larger = realloc(table, capacity * sizeof(*table));
    if (!larger)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a table of %zu segments", capacity);
    table = larger;
    table_capacity = capacity;
    return DIST_OK;
}

static void table_add(const struct segment *segment)
{
    size_t at = table_count_upto(segment->memory),
           length = atomic_load_explicit(&table_count, memory_order_relaxed);

    memmove(&table[at + 1], &table[at], (length - at) * sizeof(*table));
    table[at] = *segment;
    atomic_store_explicit(&table_count, length + 1, memory_order_relaxed);
}

static const struct segment *table_find(const void *memory)
{
    size_t after = table_count_upto(memory);
    const struct segment *segment = after ? &table[after - 1] : NULL;

    return segment && (uintptr_t)memory - (uintptr_t)segment->memory < segment->bytes ? segment
                                                                                      : NULL;
}

/* Returns true if the range overlaps a segment. `bytes` is not 0, and the range does not wrap. */
static bool table_overlaps(const void *memory, size_t bytes)
{
    const char *last = (const char *)memory + bytes - 1;
    size_t upto;
    bool overlaps;

    pthread_mutex_lock(&table_lock);
    upto = table_count_upto(last);
    overlaps = upto > 0 &&
               (uintptr_t)table[upto - 1].memory + table[upto - 1].bytes - 1 >= (uintptr_t)memory;
    pthread_mutex_unlock(&table_lock);
    return overlaps;
}

static void table_remove(const void *memory)
{
    size_t after = table_count_upto(memory),
           length = atomic_load_explicit(&table_count, memory_order_relaxed);

    memmove(&table[after - 1], &table[after], (length - after) * sizeof(*table));
    atomic_store_explicit(&table_count, length - 1, memory_order_relaxed);
}

/* Arenas: segments that are divided into blocks. */

/* ---- creating and freeing arenas ---- */

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

/* Removes the arena from its pool and from the table. Requires table_lock. */
static void arena_remove(struct arena *arena)
{
    struct arena **entry = &arenas[arena->pool];

    while (*entry != arena)
        entry = &(*entry)->next;
    *entry = arena->next;
    table_remove(arena->memory);
}

static dist_status arena_make(enum arena_pool pool, unsigned levels)
{
    size_t bytes = disti_segment_page() << levels;
    struct arena **entry, *arena = calloc(1, sizeof(*arena));
    void *memory = NULL;
    dist_status status;

    if (!arena)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for an arena");
    arena->pool = pool;
    if (disti_buddy_open(&arena->buddy, levels))
        status = disti_segment_file_make(bytes, &arena->name);
    else
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for an arena of %zu KiB", bytes >> 10);
    if (status == DIST_OK)
        status = disti_segment_file_map(arena->name.fd, 0, bytes, &memory);
    arena->memory = memory;
    if (status == DIST_OK) {
        madvise(memory, bytes, MADV_DONTDUMP); /* a core dump would create all unused pages */
        pthread_mutex_lock(&table_lock);
        status = table_reserve();
        if (status == DIST_OK) {
            table_add(&(struct segment){.memory = memory,
                                        .bytes = bytes,
                                        .name = arena->name,
                                        .arena = arena,
                                        .kind = SEGMENT_ARENA});
            for (entry = &arenas[pool]; *entry;)
                entry = &(*entry)->next;
            *entry = arena;
        }
        pthread_mutex_unlock(&table_lock);
    }
    if (status != DIST_OK)
        arena_free(arena);
    return status;
}

/*
 * Creates an arena that is as large as all previous ones of the pool; if that fails, one that just
 * fits the block.
 */
static dist_status arena_grow(enum arena_pool pool, unsigned order)
{
    const struct disti_log *log = disti_log_current();
    size_t bytes;
    unsigned levels;
    dist_status status;

    pthread_mutex_lock(&table_lock);
    /* Adds up the arenas of the pool that are not retired. */
    bytes = 0;
    for (const struct arena *arena = arenas[pool]; arena; arena = arena->next)
        bytes += arena->retired ? 0 : arena->name.bytes;
    pthread_mutex_unlock(&table_lock);
    bytes = bytes > arena_first[pool] ? bytes : arena_first[pool];
    levels = disti_buddy_order(bytes / disti_segment_page());
    disti_log_use(NULL); /* not an error: the caller can use ordinary memory */
    status = arena_make(pool, levels > order ? levels : order);
    if (status != DIST_OK && levels > order)
        status = arena_make(pool, order);
    disti_log_use(log);
    return status;
}

/* ---- blocks ---- */

static bool arena_try(enum arena_pool pool, unsigned order, struct arena_block *block_p)
{
    size_t unit = 0, end, page = disti_segment_page();
    struct arena *arena;

    pthread_mutex_lock(&table_lock);
    arena = arenas[pool];
    while (arena && (arena->retired || !disti_buddy_alloc(&arena->buddy, order, &unit)))
        arena = arena->next;
    if (arena) {
        arena->blocks++;
        end = (unit + ((size_t)1 << order)) * page;
        if (end > arena->dumped) {
            arena->dumped = end;
            madvise(arena->memory, end, MADV_DODUMP);
        }
        *block_p = (struct arena_block){.arena = arena, .offset = unit * page};
    }
    pthread_mutex_unlock(&table_lock);
    return arena;
}

/*
 * Stores the offset and size of the block that contains an address. Returns false if the address is
 * in no block. Requires table_lock.
 */
static bool arena_find(const struct arena *arena, const void *memory, size_t *offset_p,
                       size_t *bytes_p)
{
    size_t page = disti_segment_page(), first;
    size_t unit = (size_t)((uintptr_t)memory - (uintptr_t)arena->memory) / page;
    unsigned order;

    if (!disti_buddy_find(&arena->buddy, unit, &first, &order))
        return false;
    *offset_p = first * page;
    *bytes_p = page << order;
    return true;
}

static void arena_release(const struct arena_block *block)
{
    struct arena *arena = block->arena;
    size_t page = disti_segment_page(), bytes = page, offset;
    char *memory = arena->memory + block->offset;
    bool spare;

    pthread_mutex_lock(&table_lock);
    arena_find(arena, memory, &offset, &bytes);
    pthread_mutex_unlock(&table_lock);
    /*
     * Libraries that cache registrations with a network card intercept madvise and munmap, but do
     * not notice a hole that fallocate makes in the file. So madvise is tried first; it fails for
     * locked pages.
     */
    if (madvise(memory, bytes, MADV_REMOVE) < 0)
        (void)!fallocate(arena->name.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)block->offset, (off_t)bytes);
    pthread_mutex_lock(&table_lock);
    disti_buddy_free(&arena->buddy, block->offset / page, disti_buddy_order(bytes / page));
    arena->blocks--;
    const struct arena *other = arenas[arena->pool];
    while (other && (other == arena || other->blocks > 0 || other->retired))
        other = other->next;
    spare = arena->blocks == 0 && (arena->retired || other);
    if (spare)
        arena_remove(arena);
    pthread_mutex_unlock(&table_lock);
    if (spare)
        arena_free(arena);
}

/*
 * Allocates a zeroed block of at least `bytes` bytes. Sets *shared_p to false, and returns OK, if
 * no arena can be created: no descriptor, no address space, a limit on the size of files.
 * ERR_NO_MEMORY if memory is exhausted.
 */
static dist_status arena_alloc(enum arena_pool pool, size_t bytes, struct arena_block *block_p,
                               bool *shared_p)
{
    size_t page = disti_segment_page();
    unsigned order = disti_buddy_order(bytes / page + (bytes % page > 0));
    struct arena_block block;
    dist_status status = disti_segment_file_check(bytes);

    if (status != DIST_OK)
        return status;
    *shared_p = arena_try(pool, order, &block);
    if (!*shared_p) { /* if several threads need an arena, one creates it */
        pthread_mutex_lock(&arena_growth);
        *shared_p = arena_try(pool, order, &block) ||
                    (arena_grow(pool, order) == DIST_OK && arena_try(pool, order, &block));
        pthread_mutex_unlock(&arena_growth);
    }
    if (!*shared_p)
        return DIST_OK;
    status = disti_segment_file_reserve(&block.arena->name, block.offset, bytes);
    if (status == DIST_OK)
        *block_p = block;
    else
        arena_release(&block);
    return status;
}

void disti_segment_retire(void)
{
    struct arena *empty;

    do {
        pthread_mutex_lock(&table_lock);
        /* Retires all arenas; `empty` is one to free, or NULL. */
        empty = NULL;
        for (struct arena *arena = arenas[ARENA_PROGRAM]; arena; arena = arena->next) {
            arena->retired = true;
            if (arena->blocks == 0)
                empty = arena;
        }
        if (empty)
            arena_remove(empty);
        pthread_mutex_unlock(&table_lock);
        arena_free(empty);
    } while (empty);
}

/* ---- lookup by start address ---- */

/*
 * table_get finds the segment that begins at `memory`; if that is an arena, it finds the block. If
 * `registered`, it must be registered memory, else allocated memory. table_take also removes the
 * segment from the table, unless it is an arena. ERR_INVALID_ARGUMENT: there is none. Both require
 * table_lock.
 */
static dist_status table_get(const void *memory, bool registered, struct segment *segment_p)
{
    const struct segment *found = table_find(memory);
    struct segment segment = found ? *found : (struct segment){.memory = NULL};

    if (found && found->kind == SEGMENT_ARENA) /* finds the block instead of the arena */
        segment.memory = arena_find(found->arena, memory, &segment.offset, &segment.bytes)
                             ? found->arena->memory + segment.offset
                             : NULL;
    if (!found || segment.memory != memory)
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "%p is not the start of %s memory of this process: it has been %s already, "
            "was never obtained, or was obtained by the parent before fork",
            memory, registered ? "registered" : "allocated", registered ? "unregistered" : "freed");
    if ((segment.kind == SEGMENT_REGISTERED) != registered)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%p was %s: use %s", memory,
                          registered ? "allocated by dist_alloc" : "registered by dist_register",
                          registered ? "dist_free" : "dist_unregister");
    *segment_p = segment;
    return DIST_OK;
}

static dist_status table_take(const void *memory, bool registered, struct segment *segment_p)
{
    dist_status status = table_get(memory, registered, segment_p);

    if (status == DIST_OK && segment_p->kind != SEGMENT_ARENA)
        table_remove(memory);
    return status;
}

/* ---- fork ---- */

static struct segment_pages segment_pages_of(const struct segment *segment)
{
    size_t page = disti_segment_page(), before = -(uintptr_t)segment->memory % page;
    size_t after = ((uintptr_t)segment->memory + segment->bytes) % page;

    if (segment->bytes < before + after)
        return (struct segment_pages){.memory = segment->memory, .offset = segment->offset};
    return (struct segment_pages){.memory = segment->memory + before,
                                  .bytes = segment->bytes - before - after,
                                  .offset = segment->offset + before};
}

/* Number of hash chains. Keys are random, so their lowest bits choose a chain. */
#define PEER_CHAINS 256

/* A mapping of another process's segment. */
struct peer {
    struct peer *next;       /* next in the hash chain */
    TAILQ_ENTRY(peer) entry; /* in peer_idle, while `references` is 0 */
    unsigned references;
    uint64_t key;
    size_t bytes;
    void *memory;
};

static pthread_mutex_t peer_lock = PTHREAD_MUTEX_INITIALIZER;
static struct peer *peer_chains[PEER_CHAINS];
/* Mappings without references, the most recently released one first. */
static TAILQ_HEAD(peer_queue, peer) peer_idle = TAILQ_HEAD_INITIALIZER(peer_idle);
static size_t peer_idle_count;

static void arena_map_private(void *arg, size_t unit, size_t units)
{
    const struct arena *arena = arg;
    size_t page = disti_segment_page();

    disti_pages_map(arena->memory + unit * page, units * page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_FIXED, arena->name.fd, (off_t)(unit * page));
}

/*
 * In a forked child: replaces the shared mappings of the segments by private ones, so that the
 * child's writes are not shared. The child sees the parent's writes to a page until the child
 * writes to that page. The child owns no segment, so the table becomes empty.
 */
static void table_forked(void)
{
    for (size_t i = 0; i < atomic_load_explicit(&table_count, memory_order_relaxed); i++) {
        const struct segment *segment = &table[i];
        struct segment_pages pages = segment_pages_of(segment);

        if (segment->kind == SEGMENT_REGISTERED && segment->arena)
            disti_pages_map(pages.memory, pages.bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_FIXED, segment->name.fd, (off_t)pages.offset);
    }
    atomic_store_explicit(&table_count, 0, memory_order_relaxed);
    table_pid = (int32_t)getpid();
    for (int i = 0; i < PEER_CHAINS; i++) {
        while (peer_chains[i]) {
            struct peer *peer = peer_chains[i];
            peer_chains[i] = peer->next;
            free(peer);
        }
    }
    TAILQ_INIT(&peer_idle);
    peer_idle_count = 0;
    pthread_mutex_unlock(&peer_lock);
    pthread_mutex_unlock(&table_lock);
    /*
     * Maps only the allocated blocks: the rest of an arena may be large, and the kernel would count
     * it as used memory.
     */
    for (int pool = 0; pool < ARENA_POOLS; pool++) {
        while (arenas[pool]) {
            struct arena *arena = arenas[pool];
            arenas[pool] = arena->next;
            disti_pages_map(arena->memory, arena->name.bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
            disti_buddy_each(&arena->buddy, arena_map_private, arena);
            close(arena->name.fd);
            disti_buddy_close(&arena->buddy);
            free(arena);
        }
    }
    pthread_mutex_unlock(&arena_growth);
}

static void table_before_fork(void)
{
    pthread_mutex_lock(&arena_growth);
    pthread_mutex_lock(&table_lock);
    pthread_mutex_lock(&peer_lock);
}

static void table_after_fork(void)
{
    pthread_mutex_unlock(&peer_lock);
    pthread_mutex_unlock(&table_lock);
    pthread_mutex_unlock(&arena_growth);
}

static void table_begin_once(void)
{
    table_pid = (int32_t)getpid();
    pthread_atfork(table_before_fork, table_after_fork, table_forked);
}

/*
 * Prepares for forks once, and returns this process's ID without a system call. Every function that
 * creates or maps a segment calls segment_begin first.
 */
static int32_t segment_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, table_begin_once);
    return table_pid;
}

/* ---- allocation ---- */

/*
 * Rounds *bytes up to whole pages, at least one, and allocates a block. *shared_p: see arena_alloc.
 */
static dist_status segment_alloc_block(enum arena_pool pool, size_t *bytes,
                                       struct arena_block *block_p, bool *shared_p)
{
    size_t page = disti_segment_page(), rounded;

    segment_begin();
    if (!disti_add(*bytes ? *bytes : 1, page - 1, &rounded))
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "cannot allocate %zu bytes of shared memory: too large, allocate less",
                          *bytes);
    *bytes = rounded - rounded % page;
    return arena_alloc(pool, *bytes, block_p, shared_p);
}

dist_status disti_segment_alloc(size_t bytes, void **memory_p)
{
    struct arena_block block;
    bool shared;
    dist_status status = segment_alloc_block(ARENA_PROGRAM, &bytes, &block, &shared);

    if (status == DIST_OK && !shared) {
        struct segment segment = {.kind = SEGMENT_PRIVATE, .bytes = bytes};
        void *memory =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED)
            return disti_fail(DIST_ERR_NO_MEMORY,
                              "cannot allocate %zu KiB of memory: free some memory", bytes >> 10);
        disti_info("%zu KiB of memory are not shared, which makes calls slower: %s", bytes >> 10,
                   dist_last_error());
        segment.memory = memory;
        pthread_mutex_lock(&table_lock);
        status = table_reserve();
        if (status == DIST_OK)
            table_add(&segment);
        pthread_mutex_unlock(&table_lock);
        if (status == DIST_OK)
            *memory_p = memory;
        else
            munmap(memory, bytes);
        return status;
    }
    if (status == DIST_OK)
        *memory_p = block.arena->memory + block.offset;
    return status;
}

dist_status disti_segment_alloc_shared(size_t bytes, void **memory_p,
                                       struct disti_segment_location *location_p)
{
    struct arena_block block;
    bool shared;
    dist_status status = segment_alloc_block(ARENA_LIBRARY, &bytes, &block, &shared);

    if (status != DIST_OK)
        return status;
    if (!shared)
        return disti_fail(DIST_ERR_NO_MEMORY, "cannot create shared memory: raise `ulimit -n`, "
                                              "or allow memfd_create in the sandbox");
    *location_p =
        (struct disti_segment_location){.name = block.arena->name, .offset = block.offset};
    *memory_p = block.arena->memory + block.offset;
    return DIST_OK;
}

dist_status disti_segment_free(void *memory)
{
    struct segment segment;
    dist_status status;

    if (!memory)
        return DIST_OK;
    pthread_mutex_lock(&table_lock);
    status = table_take(memory, false, &segment);
    pthread_mutex_unlock(&table_lock);
    if (status == DIST_OK) {
        /*
         * The table no longer contains the segment, unless it is an arena, of which only the block
         * is freed.
         */
        if (segment.kind == SEGMENT_ARENA)
            arena_release(&(struct arena_block){.arena = segment.arena, .offset = segment.offset});
        else
            munmap(segment.memory, segment.bytes);
    }
    return status;
}

/* ---- lookup of a range ---- */

bool disti_segment_find(const void *memory, size_t bytes, struct disti_segment_location *location_p)
{
    const struct segment *segment;
    bool found;

    if (atomic_load_explicit(&table_count, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&table_lock);
    segment = table_find(memory);
    found = segment && segment->name.key != 0;
    if (found) {
        size_t offset = (size_t)((uintptr_t)memory - (uintptr_t)segment->memory), first = 0;
        size_t end = segment->bytes;

        if (segment->kind == SEGMENT_ARENA)
            found = arena_find(segment->arena, memory, &first, &end);
        found = found && disti_inside(offset, bytes, first + end);
        if (found)
            *location_p = (struct disti_segment_location){.name = segment->name,
                                                          .offset = segment->offset + offset};
    }
    pthread_mutex_unlock(&table_lock);
    return found;
}

/* This process's mappings of other processes' segments. Unused mappings are kept for later use. */

static struct peer **peer_entry(uint64_t key)
{
    struct peer **entry = &peer_chains[key % PEER_CHAINS];

    while (*entry && (*entry)->key != key)
        entry = &(*entry)->next;
    return entry;
}

static void peer_reuse(struct peer *peer)
{
    TAILQ_REMOVE(&peer_idle, peer, entry);
    peer_idle_count--;
}

/*
 * Maps a segment of another process. The mapping is excluded from forked children and from core
 * dumps; a dump would create all pages that the owner has not touched. Requires peer_lock.
 */
static dist_status peer_new(const struct disti_segment_name *name, struct peer **peer_p)
{
    struct peer *peer;
    dist_status status;
    int fd;

    peer = calloc(1, sizeof(*peer));
    if (!peer)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a mapping");
    status = disti_segment_file_open(name, &fd);
    if (status == DIST_OK) {
        status = disti_segment_file_map(fd, 0, name->bytes, &peer->memory);
        close(fd);
    }
    if (status != DIST_OK) {
        free(peer);
        return status;
    }
    peer->key = name->key;
    peer->bytes = name->bytes;
    madvise(peer->memory, peer->bytes, MADV_DONTFORK);
    madvise(peer->memory, peer->bytes, MADV_DONTDUMP);
    *peer_entry(peer->key) = peer;
    *peer_p = peer;
    return DIST_OK;
}

/*
 * For a segment of this process, returns the owner's address. So ranks that are threads of one
 * process share one mapping, which ThreadSanitizer needs in order to detect their data races.
 */
dist_status disti_segment_map(const struct disti_segment_name *name, void **memory_p)
{
    int32_t pid = segment_begin();
    void *memory;

    if (name->key == 0 || name->bytes == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "the name of the segment is empty");
    if (name->pid != pid) {
        struct peer *peer;
        dist_status status = DIST_OK;
        pthread_mutex_lock(&peer_lock);
        peer = *peer_entry(name->key);
        if (!peer) {
            status = peer_new(name, &peer);
        } else if (peer->bytes != name->bytes) {
            status =
                disti_fail(DIST_ERR_SYSTEM,
                           "process %d reported two sizes for the same memory, %zu and %zu bytes",
                           name->pid, peer->bytes, (size_t)name->bytes);
        } else if (peer->references == 0) {
            peer_reuse(peer);
        }
        if (status == DIST_OK) {
            peer->references++;
            *memory_p = peer->memory;
        }
        pthread_mutex_unlock(&peer_lock);
        return status;
    }
    memory = NULL;
    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; !memory && i < atomic_load_explicit(&table_count, memory_order_relaxed);
         i++) {
        if (table[i].name.key == name->key && table[i].kind != SEGMENT_REGISTERED)
            memory = table[i].memory;
    }
    pthread_mutex_unlock(&table_lock);
    if (!memory)
        return disti_fail(
            DIST_ERR_SYSTEM,
            "process %d, which is this process, does not have the offered memory: it has "
            "been freed, or its owner is in another PID namespace",
            pid);
    *memory_p = memory;
    return DIST_OK;
}

dist_status disti_segment_can_map(const struct disti_segment_name *name)
{
    bool mapped;
    dist_status status;
    int fd;

    if (name->pid == segment_begin())
        return DIST_OK;
    pthread_mutex_lock(&peer_lock);
    mapped = *peer_entry(name->key);
    pthread_mutex_unlock(&peer_lock);
    if (mapped)
        return DIST_OK;
    status = disti_segment_file_open(name, &fd);
    if (status == DIST_OK)
        close(fd);
    return status;
}

void disti_segment_inherit(const struct disti_segment_location *location, size_t bytes,
                           bool inherited)
{
    const struct peer *peer;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(location->name.key);
    if (peer)
        madvise((char *)peer->memory + location->offset, bytes,
                inherited ? MADV_DOFORK : MADV_DONTFORK);
    pthread_mutex_unlock(&peer_lock);
}

static void peer_trim(size_t keep)
{
    while (peer_idle_count > keep) {
        struct peer *peer = TAILQ_LAST(&peer_idle, peer_queue);
        *peer_entry(peer->key) = peer->next;
        peer_reuse(peer);
        munmap(peer->memory, peer->bytes);
        free(peer);
    }
}

void disti_segment_unmap(uint64_t key)
{
    struct peer *peer;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(key);
    if (peer && peer->references > 0 && --peer->references == 0) {
        TAILQ_INSERT_HEAD(&peer_idle, peer, entry);
        peer_idle_count++;
        peer_trim(DISTI_SEGMENT_KEEP);
    }
    pthread_mutex_unlock(&peer_lock);
}

void disti_segment_trim(size_t keep)
{
    pthread_mutex_lock(&peer_lock);
    peer_trim(keep);
    pthread_mutex_unlock(&peer_lock);
}

/* The ends of registered memory that does not begin or end at a page boundary (node.h). */

/*
 * A range of registered memory, and how many of its bytes are before (head) and after (tail) the
 * shared pages.
 */
struct ends {
    char *memory, *twin;
    size_t bytes, head, tail;
};

/* Returns the number of bytes of the range [from, from + bytes) that are before `to`. */
static size_t ends_count_before(const char *from, const char *to, size_t bytes)
{
    size_t before = to > from ? (size_t)(to - from) : 0;

    return before < bytes ? before : bytes;
}

static struct ends ends_find(void *memory, size_t bytes)
{
    struct ends ends = {.memory = memory, .twin = memory, .bytes = bytes};
    const struct segment *segment;

    pthread_mutex_lock(&table_lock);
    segment = table_find(memory);
    if (segment && segment->kind == SEGMENT_REGISTERED && segment->arena) {
        struct segment_pages pages = segment_pages_of(segment);

        ends.head = ends_count_before(memory, pages.memory, bytes);
        ends.tail = bytes - ends_count_before(memory, pages.memory + pages.bytes, bytes);
        if (ends.head || ends.tail)
            ends.twin =
                segment->arena->memory + segment->offset + ((char *)memory - segment->memory);
    }
    pthread_mutex_unlock(&table_lock);
    return ends;
}

static void ends_copy(const struct ends *ends, char *to, const char *from)
{
    size_t tail_at = ends->bytes - ends->tail;

    if (ends->head)
        memcpy(to, from, ends->head);
    if (ends->tail)
        memcpy(to + tail_at, from + tail_at, ends->tail);
}

void *disti_segment_twin(void *memory, size_t bytes)
{
    return ends_find(memory, bytes).twin;
}

void *disti_segment_load(void *memory, size_t bytes)
{
    struct ends ends = ends_find(memory, bytes);

    ends_copy(&ends, ends.twin, ends.memory);
    return ends.twin;
}

void disti_segment_store(void *memory, size_t bytes)
{
    struct ends ends = ends_find(memory, bytes);

    ends_copy(&ends, ends.memory, ends.twin);
}

/*
 * Registration: turns memory of the program into a segment in place, and back into private memory.
 */

static dist_status register_fail(const void *memory, size_t bytes, const char *what)
{
    return disti_fail(
        DIST_ERR_INVALID_ARGUMENT,
        "cannot register %zu bytes at %p: %s; memory of dist_alloc needs no registration", bytes,
        memory, what);
}

/* ---- checks ---- */

/* A line of /proc/PID/maps. */
struct register_range {
    uintptr_t begin, end;
    char rights[8];
    uint64_t inode;
    char name[32];
};

/* Returns the reason why the range cannot be registered; NULL if it can. */
static const char *register_validate(const struct register_range *range)
{
    if (range->rights[3] != 'p')
        return "it is already shared memory";
    if (range->inode != 0)
        return "it belongs to a file";
    if (strncmp(range->rights, "rw", 2) != 0)
        return "it is not both readable and writable";
    if (strncmp(range->name, "[stack", 6) == 0)
        return "it is the stack";
    if (range->name[0] && strcmp(range->name, "[heap]") != 0 &&
        strncmp(range->name, "[anon", 5) != 0)
        return "it belongs to the kernel";
    return NULL;
}

/*
 * Checks that the memory can be registered. *swaps_p becomes false if its pages must stay ordinary
 * memory, or if no descriptor is left to check them.
 */
static dist_status register_check(const void *memory, size_t bytes, bool *swaps_p)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0), begin, end;
    size_t page = disti_segment_page();
    const char *wrong;
    FILE *maps;

    if (bytes == 0)
        return register_fail(memory, bytes, "it is empty");
    if (__builtin_add_overflow((uintptr_t)memory, bytes + page - 1, &end) ||
        bytes > SIZE_MAX - page)
        return register_fail(memory, bytes, "its end exceeds the address space");
    begin = (uintptr_t)memory & ~(page - 1);
    end &= ~(page - 1);
    if (here >= begin && here < end)
        return register_fail(memory, bytes, "it is the stack");
    if (table_overlaps(memory, bytes))
        return register_fail(memory, bytes, "it is already shared memory");
    maps = fopen(DISTI_PROCESS_OWN "/maps", "re");
    *swaps_p = maps || (errno != EMFILE && errno != ENFILE);
    if (!*swaps_p)
        return DIST_OK;
    if (!maps)
        return disti_fail_errno(DIST_ERR_SYSTEM, "cannot read " DISTI_PROCESS_OWN "/maps");
    /*
     * Checks the mappings of the memory from low to high addresses; wrong stays NULL if all are
     * suitable. *swaps_p becomes false for executable mappings, such as the heap under valgrind,
     * because segments are not executable.
     */
    wrong = NULL;
    char *line = NULL;
    size_t capacity = 0;
    while (!wrong && begin < end && getline(&line, &capacity, maps) > 0) {
        struct register_range range = {.name = ""};

        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %*s %*s %" SCNu64 " %31s", &range.begin,
                   &range.end, range.rights, &range.inode, range.name) < 4 ||
            range.end <= begin)
            continue;
        wrong = range.begin > begin ? "it is not mapped" : register_validate(&range);
        *swaps_p = *swaps_p && range.rights[2] != 'x';
        begin = range.end;
    }
    free(line);
    wrong = !wrong && begin < end ? "it is not mapped" : wrong;
    fclose(maps);
    return wrong ? register_fail(memory, bytes, wrong) : DIST_OK;
}

/* ---- the swap of pages ---- */

/*
 * If mremap fails, the kernel may have unmapped `memory` already. This function then maps it again,
 * with the contents of `copy`, unless another thread has mapped something there in the meantime.
 */
static void register_restore(void *memory, const void *copy, size_t bytes)
{
    void *at;

    if (madvise(memory, bytes, MADV_NORMAL) == 0 || errno != ENOMEM)
        return;
    at = mmap(memory, bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (at == memory)
        memcpy(memory, copy, bytes);
    else if (at != MAP_FAILED)
        munmap(at, bytes);
}

/*
 * Moves the pages at `from` to `memory`, where they replace pages with the same contents. On
 * failure, unmaps the pages that were at `from`, at whatever address they are.
 */
static dist_status register_move(void *from, void *memory, size_t bytes)
{
    void *at = disti_pages_move(from, bytes, memory);
    dist_status status;

    if (at == memory)
        return DIST_OK;
    status = at == MAP_FAILED
                 ? disti_fail_errno(DIST_ERR_NO_MEMORY,
                                    "cannot swap %zu KiB of memory in place: free memory, or raise "
                                    "vm.max_map_count",
                                    bytes >> 10)
                 : disti_fail(DIST_ERR_SYSTEM,
                              "cannot swap memory in place: mremap to %p returned %p. Run without "
                              "the sandbox or tool that changes system calls, or use dist_alloc",
                              memory, at);
    if (at != MAP_FAILED)
        from = at;
    register_restore(memory, from, bytes);
    munmap(from, bytes);
    return status;
}

/*
 * Makes UCX, Open MPI and libfabric drop their cached registrations of the pages of a segment.
 * These libraries intercept libc functions, but not the system call that swaps pages. The contents
 * stay, because the pages are mapped from a file. To be called while `memory` is shared.
 */
static void register_drop_caches(void *memory, size_t bytes)
{
    /* The call fails for locked pages, but the libraries intercept it nevertheless. */
    (void)madvise(memory, bytes, MADV_DONTNEED);
}

/*
 * Adds a segment to the table and moves the pages at `copy` to its address. Both happen under the
 * lock, so that a forked child finds either both or neither. copy NULL: the segment stays ordinary
 * memory.
 */
static dist_status register_add(const struct segment *segment, void *copy)
{
    struct segment_pages pages = segment_pages_of(segment);
    dist_status status;

    pthread_mutex_lock(&table_lock);
    status = table_reserve();
    if (copy && status == DIST_OK)
        status = register_move(copy, pages.memory, pages.bytes);
    else if (copy)
        munmap(copy, pages.bytes);
    if (copy && status == DIST_OK)
        register_drop_caches(pages.memory, pages.bytes);
    if (status == DIST_OK)
        table_add(segment);
    pthread_mutex_unlock(&table_lock);
    return status;
}

/* Maps the block's whole pages in place of the program's pages. */
static dist_status register_swap(struct segment *segment, const struct arena_block *block)
{
    const struct disti_log *log = disti_log_current();
    struct segment_pages pages;
    dist_status status;
    void *copy;

    segment->arena = block->arena;
    segment->offset = block->offset + (uintptr_t)segment->memory % disti_segment_page();
    segment->name = block->arena->name;
    pages = segment_pages_of(segment);
    disti_log_use(NULL); /* not an error: the memory stays ordinary memory */
    status = disti_segment_file_map(segment->name.fd, pages.offset, pages.bytes, &copy);
    if (status == DIST_OK) {
        memcpy(copy, pages.memory, pages.bytes);
        status = register_add(segment, copy);
    }
    if (status == DIST_OK) {
#ifdef MADV_POPULATE_WRITE /* fills the page table that register_drop_caches has emptied */
        (void)madvise(pages.memory, pages.bytes, MADV_POPULATE_WRITE);
#else
        (void)pages.memory;
        (void)pages.bytes;
#endif
    }
    disti_log_use(log);
    return status;
}

dist_status disti_segment_register(void *memory, size_t bytes)
{
    struct segment segment = {.memory = memory, .bytes = bytes, .kind = SEGMENT_REGISTERED};
    bool swaps = true, shared;
    dist_status status;

    segment_begin();
    status = register_check(memory, bytes, &swaps);
    if (status == DIST_OK && swaps && segment_pages_of(&segment).bytes > 0) {
        struct arena_block block; /* as large as all pages that the memory overlaps */

        status = arena_alloc(ARENA_PROGRAM, (uintptr_t)memory % disti_segment_page() + bytes,
                             &block, &shared);
        if (status == DIST_OK && shared) {
            if (register_swap(&segment, &block) == DIST_OK)
                return DIST_OK;
            arena_release(&block);
        }
        if (status == DIST_OK)
            disti_info("%zu KiB of memory are not shared, which makes calls slower: %s",
                       bytes >> 10, dist_last_error());
    }
    if (status != DIST_OK)
        return status;
    segment.name.key = 0;
    segment.arena = NULL;
    return register_add(&segment, NULL);
}

dist_status disti_segment_unregister(void *memory)
{
    struct segment segment;
    dist_status status;

    if (!memory)
        return DIST_OK;
    pthread_mutex_lock(&table_lock);
    status = table_get(memory, true, &segment);
    if (status == DIST_OK && !segment.arena)
        table_remove(memory);
    pthread_mutex_unlock(&table_lock);
    if (!(status == DIST_OK && segment.arena))
        return status;
    struct segment_pages pages = segment_pages_of(&segment);
    size_t before = (uintptr_t)segment.memory % disti_segment_page();
    void *copy =
        mmap(NULL, pages.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "cannot allocate %zu KiB of private memory: free some memory",
                          pages.bytes >> 10);
    memcpy(copy, pages.memory, pages.bytes);
    pthread_mutex_lock(&table_lock);
    status = table_take(segment.memory, true, &segment);
    if (status == DIST_OK) {
        pages = segment_pages_of(&segment);
        register_drop_caches(pages.memory, pages.bytes);
        status = register_move(copy, pages.memory, pages.bytes);
        if (status != DIST_OK) /* cannot fail: the entry was just removed */
            table_add(&segment);
    }
    pthread_mutex_unlock(&table_lock);
    if (status == DIST_OK)
        arena_release(
            &(struct arena_block){.arena = segment.arena, .offset = segment.offset - before});
    return status;
}
