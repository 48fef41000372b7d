/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes from a file that may be compressed with gzip. */
#ifndef TRAIN_SOURCE_H
#define TRAIN_SOURCE_H

#include <stddef.h>
#include <stdint.h>

struct source;

/*
 * Opens a file. Compression is recognised by content, not by name. Without zlib a
 * compressed file is refused. On success *source_p is the caller's, for source_close.
 */
int source_open(const char *path, struct source **source_p);
void source_close(struct source *source); /* NULL is accepted */

/*
 * Reads until size bytes or the end; *read_p is how many came. -1: the file cannot be
 * read or its compression is damaged (the text names the byte offset).
 */
int source_read(struct source *source, void *to, size_t size, size_t *read_p);

/* Uncompressed bytes that the file can hold at most: a bound from its size on disk. */
uint64_t source_most(const struct source *source);

#endif
