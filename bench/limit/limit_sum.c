/* SPDX-License-Identifier: BSD-3-Clause */
/* Sums of vectors that lie side by side in memory: piece by piece, through the first cache. */
#include "limit_sum.h"

#include <config.h>
#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* A piece stays in the first cache. Data are asked for so far ahead that they come in time. */
#define SUM_PIECE ((size_t)1024)
#define SUM_AHEAD ((size_t)4096)
#define SUM_LINE 64

#if HAVE_TARGET_CLONES
#define SUM_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SUM_CLONES
#endif

/* to = a + b, and to += a + b; integers wrap, so they are added unsigned. */
#define SUM_FUNCTIONS(name, type)                                                                  \
    SUM_CLONES static void sum_first_##name(void *to, const void *a, const void *b, size_t bytes)  \
    {                                                                                              \
        type *restrict t = to;                                                                     \
        const type *x = a, *y = b;                                                                 \
                                                                                                   \
        for (size_t i = 0; i < bytes / sizeof(type); i++)                                          \
            t[i] = (type)(x[i] + y[i]);                                                            \
    }                                                                                              \
    SUM_CLONES static void sum_pair_##name(void *to, const void *a, const void *b, size_t bytes)   \
    {                                                                                              \
        type *restrict t = to;                                                                     \
        const type *x = a, *y = b;                                                                 \
                                                                                                   \
        for (size_t i = 0; i < bytes / sizeof(type); i++)                                          \
            t[i] = (type)(t[i] + x[i] + y[i]);                                                     \
    }                                                                                              \
    SUM_CLONES static void sum_one_##name(void *to, const void *a, const void *b, size_t bytes)    \
    {                                                                                              \
        type *restrict t = to;                                                                     \
        const type *x = a;                                                                         \
                                                                                                   \
        (void)b;                                                                                   \
        for (size_t i = 0; i < bytes / sizeof(type); i++)                                          \
            t[i] = (type)(t[i] + x[i]);                                                            \
    }

SUM_FUNCTIONS(f32, float)
SUM_FUNCTIONS(f64, double)
SUM_FUNCTIONS(u8, uint8_t)
SUM_FUNCTIONS(u32, uint32_t)
SUM_FUNCTIONS(u64, uint64_t)

typedef void (*sum_fn)(void *to, const void *a, const void *b, size_t bytes);

struct sum_functions {
    sum_fn first, pair, one;
};

#define SUM_ROW(name)                                                                              \
    {                                                                                              \
        sum_first_##name, sum_pair_##name, sum_one_##name                                          \
    }

static const struct sum_functions sum_table[DIST_DTYPE_COUNT] = {
    [DIST_FLOAT32] = SUM_ROW(f32), [DIST_FLOAT64] = SUM_ROW(f64), [DIST_INT8] = SUM_ROW(u8),
    [DIST_UINT8] = SUM_ROW(u8),    [DIST_INT32] = SUM_ROW(u32),   [DIST_UINT32] = SUM_ROW(u32),
    [DIST_INT64] = SUM_ROW(u64),   [DIST_UINT64] = SUM_ROW(u64),
};

bool limit_can_sum(dist_dtype dtype)
{
    return sum_table[dtype].first != NULL;
}

/* Past the caches, where the processor can and the place allows it. */
static void sum_put(char *to, const char *from, size_t bytes, bool stream)
{
    size_t done = 0;

#ifdef __SSE2__
    if (stream && (uintptr_t)to % 16 == 0) {
        for (; done + 16 <= bytes; done += 16)
            _mm_stream_si128((__m128i *)(void *)(to + done),
                             _mm_load_si128((const __m128i *)(const void *)(from + done)));
    }
#else
    (void)stream;
#endif
    memcpy(to + done, from + done, bytes - done);
}

static void sum_piece(const struct sum_functions *sum, const char *const *in, int ins,
                      size_t offset, char *piece, size_t bytes)
{
    int i = 2;

    if (ins == 1)
        memcpy(piece, in[0] + offset, bytes);
    else
        sum->first(piece, in[0] + offset, in[1] + offset, bytes);
    for (; i + 1 < ins; i += 2)
        sum->pair(piece, in[i] + offset, in[i + 1] + offset, bytes);
    if (i < ins)
        sum->one(piece, in[i] + offset, NULL, bytes);
}

static void sum_ask(const char *memory, size_t offset, size_t end)
{
    for (size_t next = offset + SUM_AHEAD; next < offset + SUM_AHEAD + SUM_PIECE && next < end;
         next += SUM_LINE)
        __builtin_prefetch(memory + next, 1);
}

void limit_copy(char *to, const char *from, size_t bytes, bool stream)
{
    for (size_t done = 0; done < bytes; done += SUM_PIECE) {
        sum_ask(from, done, bytes);
        if (!stream)
            sum_ask(to, done, bytes);
        sum_put(to + done, from + done, bytes - done < SUM_PIECE ? bytes - done : SUM_PIECE,
                stream);
    }
#ifdef __SSE2__
    if (stream)
        _mm_sfence();
#endif
}

void limit_sum(dist_dtype dtype, const char *const *in, int ins, char *const *out, int outs,
               size_t offset, size_t bytes, bool stream)
{
    _Alignas(64) char piece[SUM_PIECE];

    for (size_t done = 0; done < bytes; done += SUM_PIECE) {
        size_t more = bytes - done < SUM_PIECE ? bytes - done : SUM_PIECE;

        for (int i = 0; i < ins; i++)
            sum_ask(in[i], offset + done, offset + bytes);
        sum_piece(&sum_table[dtype], in, ins, offset + done, piece, more);
        for (int o = 0; o < outs; o++)
            sum_put(out[o] + offset + done, piece, more, stream);
    }
#ifdef __SSE2__
    if (stream)
        _mm_sfence();
#endif
}
