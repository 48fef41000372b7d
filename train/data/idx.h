/* SPDX-License-Identifier: BSD-3-Clause */
/* The IDX format: big-endian sizes, then unsigned bytes; plain or compressed with gzip. */
#ifndef TRAIN_IDX_H
#define TRAIN_IDX_H

#include <stddef.h>
#include <stdint.h>

/*
 *   byte 0, 1   0
 *   byte 2      8: the elements are unsigned bytes
 *   byte 3      number of dimensions
 *   byte 4...   each dimension's size, 32 bits, big-endian
 *   then        the elements, last dimension innermost, and nothing after them
 */
enum { IDX_MAX_DIMENSIONS = 3 };

struct idx {
    uint32_t sizes[IDX_MAX_DIMENSIONS]; /* each at least 1 */
    size_t count;                       /* their product */
    uint8_t *bytes;                     /* count; the caller frees it */
};

/*
 * Reads the whole file, which must have exactly `dimensions` dimensions and exactly the
 * bytes that they call for. Memory is asked for only once the file is known to be able
 * to hold that many. -1: the text names file, byte offset and what was expected.
 */
int idx_read(const char *path, int dimensions, struct idx *idx);

#endif
