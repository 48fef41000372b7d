/* SPDX-License-Identifier: BSD-3-Clause */
/* Do the blocks of two buffers overlap? Not their extents: blocks may lie in others' gaps. */
#ifndef DISTI_CORE_CALL_BLOCKS_H
#define DISTI_CORE_CALL_BLOCKS_H

#include <dist/dist.h>

#include <stdbool.h>
#include <stddef.h>

/* A buffer: its first `bytes`, or blocks in these with gaps between them. */
struct disti_blocks {
    const void *memory;
    const size_t *counts, *offsets; /* elements, by block; NULL: all is one block */
    size_t bytes;                   /* to the end of the last block; 0: there is no buffer */
    size_t element;                 /* bytes */
    int blocks;
};

/*
 * Is there a byte in a block of a and in one of b? Blocks of the same buffer may share bytes. If
 * the buffers do not lie in each other it costs nothing, else O(n) steps if one of them is one
 * block, and O(n log n) if not. ERR_NO_MEMORY.
 */
dist_status disti_blocks_overlap(const struct disti_blocks *a, const struct disti_blocks *b,
                                 bool *overlap_p);

#endif
