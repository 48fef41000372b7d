/* SPDX-License-Identifier: BSD-3-Clause */
/* DIST_CHECK_NUMERICS: who gives a NaN or an infinity to a call first, and who gets one. */
#include "base/collective.h"
#include "base/dtype.h"
#include "core/call/calls.h"

#include <string.h>

#define NUMERICS_FOUND_NOTHING SIZE_MAX

/* An IEEE number is a NaN or an infinity if its exponent's bits are all set. 0: no such type. */
static uint64_t numerics_exponent(dist_dtype dtype)
{
    switch (dtype) {
    case DIST_FLOAT32:
        return UINT64_C(0x7f800000);
    case DIST_FLOAT64:
        return UINT64_C(0x7ff0000000000000);
    case DIST_FLOAT16:
        return UINT64_C(0x7c00);
    case DIST_BFLOAT16:
        return UINT64_C(0x7f80);
    default:
        return 0;
    }
}

/* An element of 2, 4 or 8 bytes, wherever it lies; the machine is little-endian. */
static inline uint64_t numerics_bits(const char *at, size_t bytes)
{
    uint64_t bits = 0;

    memcpy(&bits, at, bytes);
    return bits;
}

/* The index of the first in one block. */
static size_t numerics_find(const char *block, size_t count, dist_dtype dtype)
{
    const uint64_t exponent = numerics_exponent(dtype);
    const size_t bytes = dist_dtype_size(dtype);

    for (size_t i = 0; i < count; i++) {
        if ((numerics_bits(block + i * bytes, bytes) & exponent) == exponent)
            return i;
    }
    return NUMERICS_FOUND_NOTHING;
}

/* In all blocks, in the order of the ranks: an index in the buffer. */
static size_t numerics_find_in(const struct disti_work *work, bool out)
{
    const struct dist_call *call = &work->call;
    const int kind = disti_call_blocks(work->group, call, out);
    const int blocks = kind == 2 ? work->group->world_size : kind;
    const size_t *counts = out ? call->out_counts : call->in_counts;
    const size_t *offsets = out ? call->out_offsets : call->in_offsets;
    const size_t own = disti_call_own_count(work->group, call);
    const char *buffer = out ? call->out : call->in;

    for (int b = 0; b < blocks; b++) {
        const size_t from = counts ? offsets[b] : (size_t)b * own;
        const size_t count = counts ? counts[b] : own;
        const size_t at =
            numerics_find(buffer + from * dist_dtype_size(call->dtype), count, call->dtype);

        if (at != NUMERICS_FOUND_NOTHING)
            return from + at;
    }
    return NUMERICS_FOUND_NOTHING;
}

static void numerics_tell(const struct disti_work *work, bool out, size_t at)
{
    const char *element = (const char *)(out ? work->call.out : work->call.in) +
                          at * dist_dtype_size(work->call.dtype);
    const uint64_t exponent = numerics_exponent(work->call.dtype);
    const uint64_t bits = numerics_bits(element, dist_dtype_size(work->call.dtype));
    char call[GROUP_CALL], name[GROUP_NAME];

    disti_notice("%s: %s %s %s at element %zu (DIST_CHECK_NUMERICS)",
                 disti_failure_call(work, call), disti_group_name(work->group, name),
                 out ? "gets" : "gives", bits & ((exponent & -exponent) - 1) ? "NaN" : "infinity",
                 at);
}

/* Tells of the first of several calls in a row. Only the host's memory can be read. */
static void numerics_look(const struct disti_work *work, bool out)
{
    size_t at = NUMERICS_FOUND_NOTHING;

    if (work->call.memory != DIST_MEMORY_HOST || !numerics_exponent(work->call.dtype))
        return;
    at = numerics_find_in(work, out);
    if (at != NUMERICS_FOUND_NOTHING && !work->group->strange[out])
        numerics_tell(work, out, at);
    work->group->strange[out] = at != NUMERICS_FOUND_NOTHING;
}

/* What lies in memory that a broadcast is about to write is nobody's gift. */
void disti_numerics_given(const struct disti_work *work)
{
    if (work->call.collective != DIST_COLL_BROADCAST || work->call.root == work->group->rank)
        numerics_look(work, false);
}

/* A receive may get less than its buffer holds. */
void disti_numerics_got(const struct disti_work *work)
{
    if (work->call.collective != DIST_COLL_RECV)
        numerics_look(work, true);
}
