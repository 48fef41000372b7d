/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of what this process shares, by address; and its end in a forked child. */
#include "node/segment/table.h"

#include "base/log.h"
#include "base/process/pages.h"
#include "node/segment/arena.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *table; /* by address */
static size_t table_room;
static atomic_size_t table_count;
static int32_t table_pid; /* set once, and in a forked child */

static size_t table_length(void)
{
    return atomic_load_explicit(&table_count, memory_order_relaxed);
}

static void table_set_length(size_t length)
{
    atomic_store_explicit(&table_count, length, memory_order_relaxed);
}

/* How many segments begin at or before an address. */
static size_t table_upto(const void *memory)
{
    size_t low = 0, high = table_length();

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if ((uintptr_t)table[middle].memory <= (uintptr_t)memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t disti_segment_table_length(void)
{
    return table_length();
}

void disti_segment_lock(void)
{
    pthread_mutex_lock(&table_lock);
}

void disti_segment_unlock(void)
{
    pthread_mutex_unlock(&table_lock);
}

dist_status disti_segment_table_room(void)
{
    size_t room = table_room ? 2 * table_room : 16;
    struct segment *larger;

    if (table_length() < table_room)
        return DIST_OK;
    larger = realloc(table, room * sizeof(*table));
    if (!larger)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a table of %zu segments", room);
    table = larger;
    table_room = room;
    return DIST_OK;
}

void disti_segment_table_add(const struct segment *segment)
{
    size_t at = table_upto(segment->memory), length = table_length();

    memmove(&table[at + 1], &table[at], (length - at) * sizeof(*table));
    table[at] = *segment;
    table_set_length(length + 1);
}

static dist_status table_not_there(const void *memory, bool registered)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "%p does not begin %s memory of this process: it was %s before, never "
                      "obtained, or obtained by the parent before fork",
                      memory, registered ? "registered" : "allocated",
                      registered ? "unregistered" : "freed");
}

static dist_status table_other_way(const void *memory, bool registered)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%p was %s: give it to %s", memory,
                      registered ? "allocated by dist_alloc" : "registered by dist_register",
                      registered ? "dist_free" : "dist_unregister");
}

const struct segment *disti_segment_table_find(const void *memory)
{
    size_t after = table_upto(memory);
    const struct segment *segment = after ? &table[after - 1] : NULL;

    return segment && (uintptr_t)memory - (uintptr_t)segment->memory < segment->bytes ? segment
                                                                                      : NULL;
}

/* bytes is not 0, and does not wrap. */
bool disti_segment_table_overlaps(const void *memory, size_t bytes)
{
    const char *last = (const char *)memory + bytes - 1;
    size_t upto;
    bool overlaps;

    disti_segment_lock();
    upto = table_upto(last);
    overlaps = upto > 0 &&
               (uintptr_t)table[upto - 1].memory + table[upto - 1].bytes - 1 >= (uintptr_t)memory;
    disti_segment_unlock();
    return overlaps;
}

/* What begins there, of an arena the block. False: nothing. */
static bool table_begins(const void *memory, struct segment *segment_p)
{
    const struct segment *segment = disti_segment_table_find(memory);
    struct arena_block block;

    if (!segment)
        return false;
    *segment_p = *segment;
    if (segment->kind == SEGMENT_ARENA) {
        if (!disti_arena_find(segment->arena, memory, &block, &segment_p->bytes))
            return false;
        segment_p->offset = block.offset;
        segment_p->memory = disti_arena_memory(&block);
    }
    return segment_p->memory == memory;
}

dist_status disti_segment_table_get(const void *memory, bool registered, struct segment *segment_p)
{
    struct segment segment;

    if (!table_begins(memory, &segment))
        return table_not_there(memory, registered);
    if ((segment.kind == SEGMENT_REGISTERED) != registered)
        return table_other_way(memory, registered);
    *segment_p = segment;
    return DIST_OK;
}

void disti_segment_table_remove(const void *memory)
{
    size_t after = table_upto(memory), length = table_length();

    memmove(&table[after - 1], &table[after], (length - after) * sizeof(*table));
    table_set_length(length - 1);
}

dist_status disti_segment_table_take(const void *memory, bool registered, struct segment *segment_p)
{
    dist_status status = disti_segment_table_get(memory, registered, segment_p);

    if (status == DIST_OK && segment_p->kind != SEGMENT_ARENA)
        disti_segment_table_remove(memory);
    return status;
}

void disti_segment_log_private(size_t bytes)
{
    disti_info("%zu KiB of memory are used like ordinary memory: %s", bytes >> 10,
               dist_last_error());
}

void *disti_segment_table_find_key(uint64_t key)
{
    void *memory = NULL;

    disti_segment_lock();
    for (size_t i = 0; !memory && i < table_length(); i++) {
        if (table[i].name.key == key && table[i].kind != SEGMENT_REGISTERED)
            memory = table[i].memory;
    }
    disti_segment_unlock();
    return memory;
}

/* ---- a forked child ---- */

/*
 * The child gets a view of its own: its writes are its own, as with memory that is not shared; what
 * the parent writes it sees until it writes to that page itself. It owns no segment.
 */
static void table_forked(void)
{
    for (size_t i = 0; i < table_length(); i++) {
        const struct segment *segment = &table[i];
        struct segment_pages pages = disti_segment_pages(segment);

        if (segment->kind == SEGMENT_REGISTERED && segment->arena)
            disti_pages_map(pages.memory, pages.bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_FIXED, segment->name.fd, (off_t)pages.offset);
    }
    table_set_length(0);
    table_pid = (int32_t)getpid();
    disti_segment_peers_forked();
    disti_segment_unlock();
    disti_arenas_forked();
}

static void table_before_fork(void)
{
    disti_arenas_lock();
    disti_segment_lock();
    disti_segment_peers_lock();
}

static void table_after_fork(void)
{
    disti_segment_peers_unlock();
    disti_segment_unlock();
    disti_arenas_unlock();
}

static void table_begin_once(void)
{
    table_pid = (int32_t)getpid();
    pthread_atfork(table_before_fork, table_after_fork, table_forked);
}

int32_t disti_segment_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, table_begin_once);
    return table_pid;
}
