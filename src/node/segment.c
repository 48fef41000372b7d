/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared memory of this process: allocated, found by address, freed. */
#include "node/segment.h"
#include "base/checked.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "node/node.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <unistd.h>

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

/* This process's mappings of other processes' segments, held or kept for the next time. */

/* Keys are random, so their lowest bits choose a chain. */
#define PEER_CHAINS 256

struct peer {
    struct peer *next;       /* of its chain */
    TAILQ_ENTRY(peer) entry; /* in peer_idle, while nobody holds it */
    unsigned holders;
    uint64_t key;
    size_t bytes;
    void *memory;
};

static pthread_mutex_t peer_lock = PTHREAD_MUTEX_INITIALIZER;
static struct peer *peer_chains[PEER_CHAINS];
/* That nobody holds, the one released last first. */
static TAILQ_HEAD(peer_queue, peer) peer_idle = TAILQ_HEAD_INITIALIZER(peer_idle);
static size_t peer_idle_count;

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

static void peer_drop(struct peer *peer)
{
    *peer_entry(peer->key) = peer->next;
    peer_reuse(peer);
    munmap(peer->memory, peer->bytes);
    free(peer);
}

/* A forked child has no part in them: there they do not exist. Nor has a core dump, which would
 * make pages of all that the owner has not touched. */
static dist_status peer_map(const struct disti_segment_name *name, struct peer *peer)
{
    dist_status status;
    int fd;

    status = disti_segment_file_open(name, &fd);
    if (status != DIST_OK)
        return status;
    peer->key = name->key;
    peer->bytes = name->bytes;
    status = disti_segment_file_map(fd, 0, peer->bytes, &peer->memory);
    if (status == DIST_OK) {
        madvise(peer->memory, peer->bytes, MADV_DONTFORK);
        madvise(peer->memory, peer->bytes, MADV_DONTDUMP);
    }
    close(fd);
    return status;
}

/* With the lock held. */
static dist_status peer_new(const struct disti_segment_name *name, struct peer **peer_p)
{
    struct peer *peer = calloc(1, sizeof(*peer));
    dist_status status =
        peer ? peer_map(name, peer) : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a mapping");

    if (status != DIST_OK) {
        free(peer);
        return status;
    }
    *peer_entry(peer->key) = peer;
    *peer_p = peer;
    return DIST_OK;
}

static dist_status peer_find(const struct disti_segment_name *name, void **memory_p)
{
    struct peer *peer;
    dist_status status = DIST_OK;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(name->key);
    if (!peer) {
        status = peer_new(name, &peer);
    } else if (peer->bytes != name->bytes) {
        status = disti_fail(DIST_ERR_SYSTEM,
                            "process %d offered the same memory once with %zu bytes and once with "
                            "%zu",
                            name->pid, peer->bytes, (size_t)name->bytes);
    } else if (peer->holders == 0) {
        peer_reuse(peer);
    }
    if (status == DIST_OK) {
        peer->holders++;
        *memory_p = peer->memory;
    }
    pthread_mutex_unlock(&peer_lock);
    return status;
}

/*
 * The owner's own is found at the owner's address: so ranks that are threads of one process share
 * one mapping, which is what ThreadSanitizer needs to see what they do to each other.
 */
dist_status disti_segment_map(const struct disti_segment_name *name, void **memory_p)
{
    int32_t pid = disti_segment_begin();
    void *memory;

    if (name->key == 0 || name->bytes == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "no segment is named");
    if (name->pid != pid)
        return peer_find(name, memory_p);
    memory = disti_segment_table_find_key(name->key);
    if (!memory)
        return disti_fail(DIST_ERR_SYSTEM,
                          "this process, which is number %d too, does not have the offered memory: "
                          "it has been freed, or its owner is in another PID namespace",
                          pid);
    *memory_p = memory;
    return DIST_OK;
}

dist_status disti_segment_can_map(const struct disti_segment_name *name)
{
    bool mapped;
    dist_status status;
    int fd;

    if (name->pid == disti_segment_begin())
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

void disti_segment_peers_lock(void)
{
    pthread_mutex_lock(&peer_lock);
}

void disti_segment_peers_unlock(void)
{
    pthread_mutex_unlock(&peer_lock);
}

void disti_segment_peers_forked(void)
{
    for (int i = 0; i < PEER_CHAINS; i++) {
        while (peer_chains[i]) {
            struct peer *peer = peer_chains[i];

            peer_chains[i] = peer->next;
            free(peer);
        }
    }
    TAILQ_INIT(&peer_idle);
    peer_idle_count = 0;
    disti_segment_peers_unlock();
}

static void peer_trim(size_t keep)
{
    while (peer_idle_count > keep)
        peer_drop(TAILQ_LAST(&peer_idle, peer_queue));
}

void disti_segment_unmap(uint64_t key)
{
    struct peer *peer;

    pthread_mutex_lock(&peer_lock);
    peer = *peer_entry(key);
    if (peer && peer->holders > 0 && --peer->holders == 0) {
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

/* Registered memory that does not begin and end with pages: what becomes of its ends. */

struct segment_pages disti_segment_pages(const struct segment *segment)
{
    size_t page = disti_segment_page(), before = -(uintptr_t)segment->memory % page;
    size_t after = ((uintptr_t)segment->memory + segment->bytes) % page;

    if (segment->bytes < before + after)
        return (struct segment_pages){.memory = segment->memory, .offset = segment->offset};
    return (struct segment_pages){.memory = segment->memory + before,
                                  .bytes = segment->bytes - before - after,
                                  .offset = segment->offset + before};
}

/* A range's bytes before and behind the shared pages. */
struct ends {
    char *memory, *twin;
    size_t bytes, head, tail;
};

/* Of `bytes` bytes at `from` those that lie before `to`. */
static size_t ends_before(const char *from, const char *to, size_t bytes)
{
    size_t there = to > from ? (size_t)(to - from) : 0;

    return there < bytes ? there : bytes;
}

static struct ends ends_of(const struct segment *segment, char *memory, size_t bytes)
{
    struct segment_pages pages = disti_segment_pages(segment);
    struct ends ends = {.memory = memory, .bytes = bytes};
    struct arena_block block = {segment->arena,
                                segment->offset + (size_t)(memory - segment->memory)};

    ends.head = ends_before(memory, pages.memory, bytes);
    ends.tail = bytes - ends_before(memory, pages.memory + pages.bytes, bytes);
    ends.twin = ends.head || ends.tail ? disti_arena_memory(&block) : memory;
    return ends;
}

static struct ends ends_find(void *memory, size_t bytes)
{
    struct ends ends = {.memory = memory, .twin = memory, .bytes = bytes};
    const struct segment *segment;

    disti_segment_lock();
    segment = disti_segment_table_find(memory);
    if (segment && segment->kind == SEGMENT_REGISTERED && segment->arena)
        ends = ends_of(segment, memory, bytes);
    disti_segment_unlock();
    return ends;
}

static void ends_copy(const struct ends *ends, char *to, const char *from)
{
    size_t behind = ends->bytes - ends->tail;

    if (ends->head)
        memcpy(to, from, ends->head);
    if (ends->tail)
        memcpy(to + behind, from + behind, ends->tail);
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

/* Memory of the program that becomes a segment in place, and private again. */

static dist_status register_bad(const void *memory, size_t bytes, const char *what)
{
    return disti_fail(
        DIST_ERR_INVALID_ARGUMENT,
        "cannot register %zu bytes at %p: %s; memory of dist_alloc needs no registration", bytes,
        memory, what);
}

/* ---- is it the sort of memory that can be swapped? ---- */

/* A line of /proc/PID/maps. */
struct register_range {
    uintptr_t begin, end;
    char rights[8];
    uint64_t inode;
    char name[32];
};

static bool register_parse(const char *line, struct register_range *range_p)
{
    struct register_range range = {.name = ""};

    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %7s %*s %*s %" SCNu64 " %31s", &range.begin,
               &range.end, range.rights, &range.inode, range.name) < 4)
        return false;
    *range_p = range;
    return true;
}

/* What is wrong with that range; NULL: nothing. */
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
        return "it is the kernel's";
    return NULL;
}

/*
 * Goes through what is mapped, from low to high addresses; NULL: nothing is wrong with it. *swaps_p
 * becomes false where code may run, as in all of a heap under valgrind: shared memory is for data.
 */
static const char *register_walk(FILE *maps, uintptr_t begin, uintptr_t end, bool *swaps_p)
{
    struct register_range range;
    const char *wrong = NULL;
    char *line = NULL;
    size_t room = 0;

    while (!wrong && begin < end && getline(&line, &room, maps) > 0) {
        if (!register_parse(line, &range) || range.end <= begin)
            continue;
        wrong = range.begin > begin ? "it is not mapped" : register_validate(&range);
        *swaps_p = *swaps_p && range.rights[2] != 'x';
        begin = range.end;
    }
    free(line);
    return !wrong && begin < end ? "it is not mapped" : wrong;
}

/* *swaps_p: false if it must stay as it is, also where no descriptor was left to look at it by. */
static dist_status register_check(const void *memory, size_t bytes, bool *swaps_p)
{
    uintptr_t here = (uintptr_t)__builtin_frame_address(0), begin, end;
    size_t page = disti_segment_page();
    const char *wrong;
    FILE *maps;

    if (bytes == 0)
        return register_bad(memory, bytes, "it is empty");
    if (__builtin_add_overflow((uintptr_t)memory, bytes + page - 1, &end) ||
        bytes > SIZE_MAX - page)
        return register_bad(memory, bytes, "it wraps round");
    begin = (uintptr_t)memory & ~(page - 1);
    end &= ~(page - 1);
    if (here >= begin && here < end)
        return register_bad(memory, bytes, "it is the stack");
    if (disti_segment_table_overlaps(memory, bytes))
        return register_bad(memory, bytes, "it is already shared memory");
    maps = fopen(DISTI_PROCESS_OWN "/maps", "re");
    *swaps_p = maps || (errno != EMFILE && errno != ENFILE);
    if (!*swaps_p)
        return DIST_OK;
    if (!maps)
        return disti_fail_errno(DIST_ERR_SYSTEM, "cannot read " DISTI_PROCESS_OWN "/maps");
    wrong = register_walk(maps, begin, end, swaps_p);
    fclose(maps);
    return wrong ? register_bad(memory, bytes, wrong) : DIST_OK;
}

/* ---- the swap ---- */

/*
 * The kernel may fail after it has unmapped `memory`: maps it again, with the contents of `copy`.
 * Leaves alone mappings that another thread has made in the hole.
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
 * Moves the pages at `from` to `memory`, in place of the pages there; both have the same contents.
 * On failure the pages at `from` are gone, wherever the call has moved them.
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
 * Makes UCX, Open MPI and libfabric drop what they have cached for the pages of a segment. They see
 * calls of libc, not the system call that swaps pages. The contents stay: pages of a file are read
 * again. Call this while `memory` is shared.
 */
static void register_forget(void *memory, size_t bytes)
{
    (void)madvise(memory, bytes, MADV_DONTNEED); /* locked pages refuse, after the cache has seen */
}

/* Fills the page table that register_forget has emptied. Otherwise the next access to each page
 * would. */
static void register_populate(void *memory, size_t bytes)
{
#ifdef MADV_POPULATE_WRITE
    (void)madvise(memory, bytes, MADV_POPULATE_WRITE);
#else
    (void)memory;
    (void)bytes;
#endif
}

/*
 * Under the lock, so that a fork sees all of it or nothing. copy: what comes in the place of the
 * memory's whole pages; NULL: nothing, it stays ordinary memory.
 */
static dist_status register_add(const struct segment *segment, void *copy)
{
    struct segment_pages pages = disti_segment_pages(segment);
    dist_status status;

    disti_segment_lock();
    status = disti_segment_table_room();
    if (copy && status == DIST_OK)
        status = register_move(copy, pages.memory, pages.bytes);
    else if (copy)
        munmap(copy, pages.bytes);
    if (copy && status == DIST_OK)
        register_forget(pages.memory, pages.bytes);
    if (status == DIST_OK)
        disti_segment_table_add(segment);
    disti_segment_unlock();
    return status;
}

static dist_status register_private(struct segment *segment)
{
    segment->name.key = 0;
    segment->arena = NULL;
    return register_add(segment, NULL);
}

/* The block's whole pages are mapped a second time, where the program's are. */
static dist_status register_swap(struct segment *segment, const struct arena_block *block)
{
    const struct disti_log *log = disti_log_current();
    struct segment_pages pages;
    dist_status status;
    void *copy;

    segment->arena = block->arena;
    segment->offset = block->offset + (uintptr_t)segment->memory % disti_segment_page();
    segment->name = *disti_arena_name(block);
    pages = disti_segment_pages(segment);
    disti_log_use(NULL); /* it is no error: it is used as ordinary memory is */
    status = disti_segment_file_map(segment->name.fd, pages.offset, pages.bytes, &copy);
    if (status == DIST_OK) {
        memcpy(copy, pages.memory, pages.bytes);
        status = register_add(segment, copy);
    }
    if (status == DIST_OK)
        register_populate(pages.memory, pages.bytes);
    disti_log_use(log);
    return status;
}

/* The block has room for all pages that the memory lies in. */
static dist_status register_share(struct segment *segment)
{
    size_t before = (uintptr_t)segment->memory % disti_segment_page();
    struct arena_block block;
    bool shared;
    dist_status status = disti_arena_take(ARENA_PROGRAM, before + segment->bytes, &block, &shared);

    if (status != DIST_OK)
        return status;
    if (shared && register_swap(segment, &block) == DIST_OK)
        return DIST_OK;
    if (shared)
        disti_arena_give(&block);
    disti_segment_log_private(segment->bytes);
    return register_private(segment);
}

dist_status disti_segment_register(void *memory, size_t bytes)
{
    struct segment segment = {.memory = memory, .bytes = bytes, .kind = SEGMENT_REGISTERED};
    bool swaps = true;
    dist_status status;

    disti_segment_begin();
    status = register_check(memory, bytes, &swaps);
    if (status != DIST_OK)
        return status;
    return swaps && disti_segment_pages(&segment).bytes > 0 ? register_share(&segment)
                                                            : register_private(&segment);
}

/* With the lock held; the table has room to take it back. */
static dist_status register_remove(void *memory, void *copy, struct segment *segment_p)
{
    dist_status status = disti_segment_table_take(memory, true, segment_p);
    struct segment_pages pages;

    if (status != DIST_OK)
        return status;
    pages = disti_segment_pages(segment_p);
    register_forget(pages.memory, pages.bytes);
    status = register_move(copy, pages.memory, pages.bytes);
    if (status != DIST_OK)
        disti_segment_table_add(segment_p);
    return status;
}

static dist_status register_swap_back(struct segment *segment)
{
    struct segment_pages pages = disti_segment_pages(segment);
    size_t before = (uintptr_t)segment->memory % disti_segment_page();
    void *copy =
        mmap(NULL, pages.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    dist_status status;

    if (copy == MAP_FAILED)
        return disti_fail(DIST_ERR_NO_MEMORY, "no room for %zu KiB of private memory: free some",
                          pages.bytes >> 10);
    memcpy(copy, pages.memory, pages.bytes);
    disti_segment_lock();
    status = register_remove(segment->memory, copy, segment);
    disti_segment_unlock();
    if (status == DIST_OK)
        disti_arena_give(
            &(struct arena_block){.arena = segment->arena, .offset = segment->offset - before});
    return status;
}

dist_status disti_segment_unregister(void *memory)
{
    struct segment segment;
    dist_status status;

    if (!memory)
        return DIST_OK;
    disti_segment_lock();
    status = disti_segment_table_get(memory, true, &segment);
    if (status == DIST_OK && !segment.arena)
        disti_segment_table_remove(memory);
    disti_segment_unlock();
    return status == DIST_OK && segment.arena ? register_swap_back(&segment) : status;
}
