/* SPDX-License-Identifier: BSD-3-Clause */
/* Files of samples: bytes that may be compressed with gzip, and the IDX format. */
#ifndef TRAIN_IDX_H
#define TRAIN_IDX_H

#include <stddef.h>
#include <stdint.h>

struct source;

/*
 * Opens a file; path must outlive the source. Compression is recognised by content, not by name.
 * Without zlib a compressed file is refused. On success *source_p is the caller's, for
 * source_close.
 */
int source_open(const char *path, struct source **source_p);
void source_close(struct source *source); /* NULL is accepted */

/*
 * Reads until size bytes or the end; *read_p is how many came. -1: the file cannot be
 * read or its compression is damaged (the text names the byte offset).
 */
int source_read(struct source *source, void *to, size_t size, size_t *read_p);

/* ---- IDX: big-endian sizes, then unsigned bytes; plain or compressed with gzip ---- */

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
