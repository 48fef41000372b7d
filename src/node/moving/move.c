/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moving long data: asked for before they are needed, and written past the caches where those are
 * too small anyway.
 *
 * A CPU asks for few lines ahead of a loop, and for none beyond the page: data that lie in another
 * CPU's cache, or in none, come sooner if the loop asks itself, and goes through several pages in
 * turn:
 *
 *   page 0    1 5 9 ..      page 1    2 6 10 ..      page 2    3 7 11 ..      page 3    4 8 12 ..
 *
 * A line that is written as a whole need not be read before; but one that is in this CPU's cache
 * would be thrown out of it, which takes longer than all the rest, so only long data are written
 * like that.
 */
#include "node/state.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define MOVE_PAGE ((size_t)4 << 10)
#define MOVE_PAGES 4
/* How far ahead is asked: in each of several pages, and in the only one. */
#define MOVE_AHEAD_EACH 512
#define MOVE_AHEAD ((size_t)4 << 10)
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

void disti_node_prefetch(const char *memory, size_t bytes, size_t at)
{
    size_t from = at + MOVE_AHEAD, end = move_least(bytes, from + NODE_TILE);

    for (; from < end; from += NODE_LINE)
        __builtin_prefetch(memory + from);
}

void disti_node_prefetch_write(char *memory, size_t bytes, size_t at)
{
    size_t from = at + MOVE_AHEAD;

    if (from < bytes)
        node_prefetch_write(memory + from, move_least(bytes - from, NODE_TILE));
}

/* ---- whole lines, of `pages` stretches of so many bytes in turn ---- */

typedef void (*move_lines)(char *to, const char *from, size_t bytes, size_t pages);

#define MOVE_LINES(name, target, move_line)                                                        \
    target static void name(char *to, const char *from, size_t bytes, size_t pages)                \
    {                                                                                              \
        for (size_t at = 0; at < bytes; at += NODE_LINE) {                                         \
            for (size_t page = 0; page < pages * bytes; page += bytes)                             \
                move_line(to + page + at, from + page + at);                                       \
        }                                                                                          \
    }

static inline void move_prefetch(char *to, const char *from)
{
    __builtin_prefetch(from + MOVE_AHEAD_EACH);
    node_prefetch_write(to + MOVE_AHEAD_EACH, NODE_LINE);
}

static inline void move_line_near(char *to, const char *from)
{
    move_prefetch(to, from);
    memcpy(to, from, NODE_LINE);
}

MOVE_LINES(move_near, , move_line_near)

#ifdef __x86_64__
/* One instruction for a line is what the memory likes best. */
#define MOVE_WIDE __attribute__((target("avx512f")))

static inline void move_line_past(char *to, const char *from)
{
    for (size_t at = 0; at < NODE_LINE; at += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(void *)(to + at),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
}

MOVE_WIDE static inline void move_line_past_wide(char *to, const char *from)
{
    _mm512_stream_si512((void *)to, _mm512_loadu_si512(from));
}

MOVE_WIDE static inline void move_line_near_wide(char *to, const char *from)
{
    move_prefetch(to, from);
    _mm512_storeu_si512(to, _mm512_loadu_si512(from));
}

MOVE_LINES(move_past, , move_line_past)
MOVE_LINES(move_past_wide, MOVE_WIDE, move_line_past_wide)
MOVE_LINES(move_near_wide, MOVE_WIDE, move_line_near_wide)

static move_lines move_choose(uint8_t gait)
{
    bool past = gait & NODE_PAST;

    if (__builtin_cpu_supports("avx512f"))
        return past ? move_past_wide : move_near_wide;
    return past ? move_past : move_near;
}

void disti_node_store_fence(void)
{
    _mm_sfence();
}
#else
static move_lines move_choose(uint8_t gait)
{
    (void)gait;
    return move_near;
}

void disti_node_store_fence(void)
{
}
#endif

void disti_node_move(char *to, const char *from, size_t bytes, uint8_t gait)
{
    const size_t turn = MOVE_PAGES * MOVE_PAGE;
    move_lines move = move_choose(gait);
    size_t at = move_least(bytes, -(uintptr_t)to % NODE_LINE), lines;

    if (bytes == 0)
        return;
    gait &= NODE_ASKS | NODE_PAST;
    if (gait == 0 || (bytes <= MOVE_PAGE && !(gait & NODE_PAST))) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(to, from, at);
    for (; gait & NODE_ASKS && at + turn <= bytes; at += turn)
        move(to + at, from + at, MOVE_PAGE, MOVE_PAGES);
    lines = (bytes - at) / NODE_LINE * NODE_LINE;
    move(to + at, from + at, lines, 1);
    memcpy(to + at + lines, from + at + lines, bytes - at - lines);
}
