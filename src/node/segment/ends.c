/* SPDX-License-Identifier: BSD-3-Clause */
/* Registered memory that does not begin and end with pages: what becomes of its ends. */
#include "node/segment/arena.h"
#include "node/segment/file.h"
#include "node/segment/table.h"

#include <string.h>

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
