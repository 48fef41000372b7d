/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moving long data: asked for before they are needed, and written past the caches where those are
 * too small anyway.
 *
 * A CPU asks for few lines ahead of a loop, and for none beyond the page: data that lie in another
 * CPU's cache, or in none, come two to three times as fast if the loop asks itself. A line that is
 * written as a whole need not be read before; but one that is in this CPU's cache would be thrown
 * out of it, which takes longer than all the rest, so only long data are written like that.
 */
#include "node/state.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#define MOVE_STREAMS
#include <immintrin.h>
#endif

#define MOVE_BLOCK ((size_t)1 << 10)
/* Far enough for a line to come, near enough to be still there when it is needed. */
#define MOVE_AHEAD (4 * MOVE_BLOCK)
/* Where nobody says how large the second-level cache is. */
#define MOVE_CACHE ((size_t)2 << 20)

size_t disti_node_cache(void)
{
#ifdef _SC_LEVEL2_CACHE_SIZE
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);

    if (bytes > 0)
        return (size_t)bytes;
#endif
    return MOVE_CACHE;
}

static size_t move_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

void disti_node_ask(const char *memory, size_t bytes, size_t at)
{
    size_t from = at + MOVE_AHEAD, end = move_least(bytes, from + MOVE_BLOCK);

    for (; from < end; from += NODE_LINE)
        __builtin_prefetch(memory + from);
}

void disti_node_ask_to_write(char *memory, size_t bytes, size_t at)
{
    size_t from = at + MOVE_AHEAD;

    if (from < bytes)
        node_fetch(memory + from, move_least(bytes - from, MOVE_BLOCK));
}

static void move_cached(char *to, const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += MOVE_BLOCK) {
        disti_node_ask(from, bytes, at);
        disti_node_ask_to_write(to, bytes, at);
        memcpy(to + at, from + at, move_least(bytes - at, MOVE_BLOCK));
    }
}

#ifdef MOVE_STREAMS
/*
 * Whole lines past the caches. One instruction for a line is what the memory likes best; and
 * several pages in turn, as the CPU looks ahead in each of them by itself:
 *
 *   page 0    1 5 9 ..      page 1    2 6 10 ..      page 2    3 7 11 ..      page 3    4 8 12 ..
 */
#define MOVE_PAGE ((size_t)4 << 10)
#define MOVE_PAGES 4

static void move_line(char *to, const char *from)
{
    for (size_t at = 0; at < NODE_LINE; at += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(void *)(to + at),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
}

static void move_pages(char *to, const char *from, size_t bytes, size_t pages)
{
    for (size_t at = 0; at < bytes; at += NODE_LINE) {
        for (size_t page = 0; page < pages * bytes; page += bytes)
            move_line(to + page + at, from + page + at);
    }
}

__attribute__((target("avx512f"))) static void move_pages_wide(char *to, const char *from,
                                                               size_t bytes, size_t pages)
{
    for (size_t at = 0; at < bytes; at += NODE_LINE) {
        for (size_t page = 0; page < pages * bytes; page += bytes)
            _mm512_stream_si512((void *)(to + page + at), _mm512_loadu_si512(from + page + at));
    }
}

static void move_past(char *to, const char *from, size_t bytes)
{
    void (*move)(char *, const char *, size_t, size_t) =
        __builtin_cpu_supports("avx512f") ? move_pages_wide : move_pages;
    size_t at = move_least(bytes, -(uintptr_t)to % NODE_LINE), lines;

    memcpy(to, from, at);
    for (; at + MOVE_PAGES * MOVE_PAGE <= bytes; at += MOVE_PAGES * MOVE_PAGE)
        move(to + at, from + at, MOVE_PAGE, MOVE_PAGES);
    lines = (bytes - at) / NODE_LINE * NODE_LINE;
    move(to + at, from + at, lines, 1);
    _mm_sfence(); /* such stores are in no order: the others must see them before the next stage */
    memcpy(to + at + lines, from + at + lines, bytes - at - lines);
}
#else
static void move_past(char *to, const char *from, size_t bytes)
{
    move_cached(to, from, bytes);
}
#endif

void disti_node_move(char *to, const char *from, size_t bytes, bool past)
{
    if (bytes <= MOVE_BLOCK)
        memcpy(to, from, bytes);
    else if (past)
        move_past(to, from, bytes);
    else
        move_cached(to, from, bytes);
}
