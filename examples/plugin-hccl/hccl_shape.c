/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backend hccl: the memory that a call reads and writes, as dist.h specifies for each collective.
 */
#include "hccl.h"

/*
 * The contents of a buffer: nothing, one block of `count` elements, such a block for each rank, a
 * block for each rank with its own count, or this rank's block of the other buffer. KINDS is the
 * mask of these values; AT_ROOT is set if only the root has the buffer.
 */
enum { NONE, ONE, ALL, COUNTS, OWN, KINDS = 7, AT_ROOT = 8 };

/* In a broadcast, in and out are the same buffer. */
static const struct {
    uint8_t in, out;
} shape_traits[DIST_COLL_COUNT] = {
    [DIST_COLL_ALL_REDUCE] = {ONE, ONE},
    [DIST_COLL_REDUCE] = {ONE, ONE | AT_ROOT},
    [DIST_COLL_BROADCAST] = {ONE, ONE},
    [DIST_COLL_ALL_GATHER] = {ONE, ALL},
    [DIST_COLL_ALL_GATHER_V] = {OWN, COUNTS},
    [DIST_COLL_REDUCE_SCATTER] = {ALL, ONE},
    [DIST_COLL_REDUCE_SCATTER_V] = {COUNTS, OWN},
    [DIST_COLL_GATHER] = {ONE, ALL | AT_ROOT},
    [DIST_COLL_GATHER_V] = {ONE, COUNTS | AT_ROOT},
    [DIST_COLL_SCATTER] = {ALL | AT_ROOT, ONE},
    [DIST_COLL_SCATTER_V] = {COUNTS | AT_ROOT, ONE},
    [DIST_COLL_ALL_TO_ALL] = {ALL, ALL},
    [DIST_COLL_ALL_TO_ALL_V] = {COUNTS, COUNTS},
    [DIST_COLL_SEND] = {ONE, NONE},
    [DIST_COLL_RECV] = {NONE, ONE},
};

static struct hccl_blocks shape_side(const struct dist_call *call, int trait, int rank, int ranks,
                                     const size_t *counts, const size_t *offsets,
                                     const size_t *other_counts)
{
    if ((trait & AT_ROOT) && call->root != rank)
        return (struct hccl_blocks){0};
    switch (trait & KINDS) {
    case ONE:
        return (struct hccl_blocks){.blocks = 1, .count = call->count};
    case ALL:
        return (struct hccl_blocks){.blocks = 1, .count = call->count * (size_t)ranks};
    case COUNTS:
        return (struct hccl_blocks){(size_t)ranks, 0, counts, offsets};
    case OWN:
        return (struct hccl_blocks){.blocks = 1, .count = other_counts[rank]};
    default:
        return (struct hccl_blocks){0};
    }
}

void hccl_shape(const struct dist_call *call, int rank, int ranks, struct hccl_blocks *in_p,
                struct hccl_blocks *out_p)
{
    *in_p = shape_side(call, shape_traits[call->collective].in, rank, ranks, call->in_counts,
                       call->in_offsets, call->out_counts);
    *out_p = shape_side(call, shape_traits[call->collective].out, rank, ranks, call->out_counts,
                        call->out_offsets, call->in_counts);
}

void hccl_block(const struct hccl_blocks *blocks, size_t i, size_t *offset_p, size_t *count_p)
{
    *offset_p = blocks->counts ? blocks->offsets[i] : 0;
    *count_p = blocks->counts ? blocks->counts[i] : blocks->count;
}

size_t hccl_extent(const struct hccl_blocks *blocks)
{
    size_t end = 0, offset, count;

    for (size_t i = 0; i < blocks->blocks; i++) {
        hccl_block(blocks, i, &offset, &count);
        if (count && offset + count > end)
            end = offset + count;
    }
    return end;
}

bool hccl_is_empty(const struct dist_call *call)
{
    switch (call->collective) {
    case DIST_COLL_BARRIER:
    case DIST_COLL_ALL_GATHER_V:
    case DIST_COLL_REDUCE_SCATTER_V:
    case DIST_COLL_GATHER_V:
    case DIST_COLL_SCATTER_V:
    case DIST_COLL_ALL_TO_ALL_V:
        return false;
    default:
        return call->count == 0;
    }
}
