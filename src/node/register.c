/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the program that becomes a segment in place, and private again. */
#include "base/log.h"
#include "base/process.h"
#include "node/segment.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
