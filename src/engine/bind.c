/* SPDX-License-Identifier: BSD-3-Clause */
/* From a call to memory: where its blocks lie, and which memory it touches. */
#include "engine/state.h"

void disti_bind_layouts(const struct dist_call *call, int rank, struct disti_layout layouts[2])
{
    layouts[DISTI_IN] = (struct disti_layout){call->count, call->in_counts, call->in_offsets};
    layouts[DISTI_OUT] = (struct disti_layout){call->count, call->out_counts, call->out_offsets};
    if (call->collective == DIST_COLL_ALL_GATHER_V)
        layouts[DISTI_IN].count = call->out_counts[rank];
    if (call->collective == DIST_COLL_REDUCE_SCATTER_V)
        layouts[DISTI_OUT].count = call->in_counts[rank];
}

/* The elements from *first_p to the returned end; equal: there are none. */
static size_t bind_extent(const struct disti_layout *layout, uint32_t blocks, size_t *first_p)
{
    size_t first = SIZE_MAX, end = 0;

    if (!layout->counts || !blocks) {
        *first_p = 0;
        return layout->count * blocks;
    }
    for (uint32_t b = 0; b < blocks; b++) {
        size_t block_end = layout->offsets[b] + layout->counts[b];

        if (!layout->counts[b])
            continue;
        first = layout->offsets[b] < first ? layout->offsets[b] : first;
        end = block_end > end ? block_end : end;
    }
    *first_p = end ? first : 0;
    return end;
}

void disti_bind_spans(const struct disti_plan *plan, const struct dist_call *call,
                      const struct disti_layout layouts[2], struct engine_span spans[2])
{
    size_t element_bytes = dist_dtype_size(call->dtype);

    for (uint8_t space = DISTI_IN; space <= DISTI_OUT; space++) {
        const char *base = space == DISTI_IN ? call->in : call->out;
        size_t first;
        size_t end = bind_extent(&layouts[space], disti_plan_blocks(plan, space), &first);

        spans[space] = (struct engine_span){.bytes = (end - first) * element_bytes};
        if (spans[space].bytes)
            spans[space].start = base + first * element_bytes;
    }
}

static bool bind_meet(const struct engine_span *a, const struct engine_span *b)
{
    return a->bytes && b->bytes && (uintptr_t)a->start < (uintptr_t)b->start + b->bytes &&
           (uintptr_t)b->start < (uintptr_t)a->start + a->bytes;
}

bool disti_spans_clash(const struct engine_span a[2], const struct engine_span b[2])
{
    return bind_meet(&a[DISTI_OUT], &b[DISTI_OUT]) || bind_meet(&a[DISTI_OUT], &b[DISTI_IN]) ||
           bind_meet(&a[DISTI_IN], &b[DISTI_OUT]);
}

size_t disti_bind_bytes(const struct dist_call *call, int ranks)
{
    const size_t *counts = call->collective == DIST_COLL_ALL_GATHER_V       ? call->out_counts
                           : call->collective == DIST_COLL_REDUCE_SCATTER_V ? call->in_counts
                                                                            : NULL;
    size_t count = 0;

    for (int r = 0; counts && r < ranks; r++)
        count += counts[r];
    if (counts)
        count /= (size_t)ranks;
    else if (!disti_collective_uneven(call->collective)) /* of those no rank knows the others' */
        count = call->count;
    return count * dist_dtype_size(call->dtype);
}
