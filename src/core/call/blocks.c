/* SPDX-License-Identifier: BSD-3-Clause */
/* Do the blocks of two buffers overlap? */
#include "core/call/blocks.h"

#include "base/log.h"

#include <stdint.h>
#include <stdlib.h>

struct blocks_range {
    uintptr_t start, end;
    int buffer; /* 0 or 1 */
};

static struct blocks_range blocks_range(const struct disti_blocks *blocks, int b, int buffer)
{
    uintptr_t start = (uintptr_t)blocks->memory;
    size_t bytes = blocks->bytes;

    if (blocks->counts) {
        start += blocks->offsets[b] * blocks->element;
        bytes = blocks->counts[b] * blocks->element;
    }
    return (struct blocks_range){start, start + bytes, buffer};
}

static int blocks_number(const struct disti_blocks *blocks)
{
    return blocks->counts ? blocks->blocks : 1;
}

/* `one` is not empty. */
static bool blocks_meet_one(const struct disti_blocks *many, const struct disti_blocks *one)
{
    const struct blocks_range range = blocks_range(one, 0, 0);

    for (int b = 0; b < blocks_number(many); b++) {
        const struct blocks_range other = blocks_range(many, b, 1);

        if (other.start < other.end && range.start < other.end && other.start < range.end)
            return true;
    }
    return false;
}

static int blocks_compare(const void *a, const void *b)
{
    uintptr_t one = ((const struct blocks_range *)a)->start;
    uintptr_t other = ((const struct blocks_range *)b)->start;

    return (one > other) - (one < other);
}

static size_t blocks_collect(const struct disti_blocks *blocks, int buffer,
                             struct blocks_range *ranges)
{
    size_t n = 0;

    for (int b = 0; b < blocks_number(blocks); b++) {
        ranges[n] = blocks_range(blocks, b, buffer);
        n += ranges[n].start < ranges[n].end;
    }
    return n;
}

/*
 * From the lowest start up: a block meets the other buffer if one of that has begun and not ended.
 *
 *   a   |-----|     |---|   |--|
 *   b         |--|         |--|
 *                           ^ here: start < ends[b]
 */
static bool blocks_sweep(struct blocks_range *ranges, size_t n)
{
    uintptr_t ends[2] = {0};

    qsort(ranges, n, sizeof(*ranges), blocks_compare);
    for (size_t i = 0; i < n; i++) {
        uintptr_t *end = &ends[ranges[i].buffer];

        if (ranges[i].start < ends[!ranges[i].buffer])
            return true;
        *end = ranges[i].end > *end ? ranges[i].end : *end;
    }
    return false;
}

static bool blocks_extents_meet(const struct disti_blocks *a, const struct disti_blocks *b)
{
    uintptr_t a_start = (uintptr_t)a->memory, b_start = (uintptr_t)b->memory;

    return a->bytes && b->bytes && a_start < b_start + b->bytes && b_start < a_start + a->bytes;
}

dist_status disti_blocks_overlap(const struct disti_blocks *a, const struct disti_blocks *b,
                                 bool *overlap_p)
{
    size_t all = (size_t)blocks_number(a) + (size_t)blocks_number(b), n;
    struct blocks_range *ranges;

    if (!blocks_extents_meet(a, b)) {
        *overlap_p = false;
        return DIST_OK;
    }
    if (!a->counts || !b->counts) {
        *overlap_p = a->counts ? blocks_meet_one(a, b) : blocks_meet_one(b, a);
        return DIST_OK;
    }
    ranges = malloc(all * sizeof(*ranges));
    if (!ranges)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to compare %zu blocks", all);
    n = blocks_collect(a, 0, ranges);
    n += blocks_collect(b, 1, ranges + n);
    *overlap_p = blocks_sweep(ranges, n);
    free(ranges);
    return DIST_OK;
}
