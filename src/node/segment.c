/* SPDX-License-Identifier: BSD-3-Clause */
/* Segments of this process: allocated, found by address, freed, and hidden from a forked child. */
#include "node/segment.h"

#include "base/checked.h"
#include "base/log.h"
#include "node/segment_file.h"
#include "node/segment_table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static struct segment *table; /* by address */
static size_t table_room;
static atomic_size_t table_count;
static int32_t segment_pid; /* set once, and in a forked child */

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
                      "%p is not the beginning of %s memory of this process: it was %s already, "
                      "or never, or by the process that forked this one",
                      memory, registered ? "registered" : "allocated",
                      registered ? "unregistered" : "freed");
}

static dist_status table_other_way(const void *memory, bool registered)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%p was %s: give it to %s", memory,
                      registered ? "allocated by dist_alloc" : "registered by dist_register",
                      registered ? "dist_free" : "dist_unregister");
}

dist_status disti_segment_table_get(const void *memory, bool registered, struct segment *segment_p)
{
    size_t after = table_upto(memory);
    const struct segment *segment = after ? &table[after - 1] : NULL;

    if (!segment || segment->memory != memory)
        return table_not_there(memory, registered);
    if (segment->registered != registered)
        return table_other_way(memory, registered);
    *segment_p = *segment;
    return DIST_OK;
}

dist_status disti_segment_table_take(const void *memory, bool registered, struct segment *segment_p)
{
    size_t after = table_upto(memory), length = table_length();
    dist_status status = disti_segment_table_get(memory, registered, segment_p);

    if (status != DIST_OK)
        return status;
    memmove(&table[after - 1], &table[after], (length - after) * sizeof(*table));
    table_set_length(length - 1);
    return DIST_OK;
}

void *disti_segment_table_find_key(uint64_t key)
{
    void *memory = NULL;

    disti_segment_lock();
    for (size_t i = 0; !memory && i < table_length(); i++) {
        if (table[i].name.key == key)
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
static void segment_forked(void)
{
    for (size_t i = 0; i < table_length(); i++) {
        const struct segment *segment = &table[i];

        mmap(segment->memory, segment->name.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED,
             segment->name.fd, 0);
        close(segment->name.fd);
    }
    table_set_length(0);
    segment_pid = (int32_t)getpid();
    disti_segment_peers_forked();
    disti_segment_unlock();
}

static void segment_before_fork(void)
{
    disti_segment_lock();
    disti_segment_peers_lock();
}

static void segment_after_fork(void)
{
    disti_segment_peers_unlock();
    disti_segment_unlock();
}

static void segment_begin_once(void)
{
    segment_pid = (int32_t)getpid();
    pthread_atfork(segment_before_fork, segment_after_fork, segment_forked);
}

int32_t disti_segment_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, segment_begin_once);
    return segment_pid;
}

/* ---- what others call ---- */

/* Whole pages, at least one. */
static dist_status segment_round(size_t bytes, size_t *bytes_p)
{
    size_t page = disti_segment_page();

    if (!disti_add(bytes ? bytes : 1, page - 1, bytes_p))
        return disti_fail(DIST_ERR_NO_MEMORY, "%zu bytes of shared memory are more than there is",
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

dist_status disti_segment_alloc(size_t bytes, void **memory_p)
{
    struct segment segment = {0};
    void *memory = NULL;
    dist_status status;

    disti_segment_begin();
    status = segment_round(bytes, &bytes);
    if (status == DIST_OK)
        status = disti_segment_file_make(bytes, &segment.name);
    if (status != DIST_OK)
        return status;
    status = disti_segment_file_map(segment.name.fd, bytes, &memory);
    segment.memory = memory;
    if (status == DIST_OK)
        status = segment_add(&segment);
    if (status == DIST_OK) {
        *memory_p = memory;
        return DIST_OK;
    }
    if (memory)
        munmap(memory, bytes);
    disti_segment_file_drop(&segment.name);
    return status;
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
    if (status != DIST_OK)
        return status;
    munmap(segment.memory, segment.name.bytes);
    disti_segment_file_drop(&segment.name);
    return DIST_OK;
}

/* With the lock held. */
static bool segment_holds(const void *memory, size_t bytes, struct disti_segment_at *at_p)
{
    size_t after = table_upto(memory);
    const struct segment *segment = after ? &table[after - 1] : NULL;
    size_t offset = segment ? (size_t)((uintptr_t)memory - (uintptr_t)segment->memory) : 0;

    if (!segment || offset >= segment->name.bytes ||
        !disti_inside(offset, bytes, segment->name.bytes))
        return false;
    *at_p = (struct disti_segment_at){.name = segment->name, .offset = offset};
    return true;
}

bool disti_segment_find(const void *memory, size_t bytes, struct disti_segment_at *at_p)
{
    bool found;

    if (table_length() == 0)
        return false;
    disti_segment_lock();
    found = segment_holds(memory, bytes, at_p);
    disti_segment_unlock();
    return found;
}
