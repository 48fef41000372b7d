/* SPDX-License-Identifier: BSD-3-Clause */
/* What segments are made of; private to the segments. */
#ifndef DISTI_NODE_SEGMENT_FILE_H
#define DISTI_NODE_SEGMENT_FILE_H

#include "node/segment/segment.h"

/*
 * The file of a segment, a memfd that can neither shrink nor grow:
 *
 *     |------ bytes: the memory, whole pages ------|-- the seal page: the key --|
 *
 * The seal page is in nobody's mapping of the memory, so a program that writes beyond the end does
 * not spoil it.
 */

/* From this size on memory is aligned for huge pages. */
#define SEGMENT_HUGE ((size_t)2 << 20)

/* Bytes of a page of this machine. */
size_t disti_segment_page(void);

/*
 * A new file of `bytes` bytes, whole pages, none of which is there before it is touched or
 * reserved, and its name; the caller closes name_p->fd by disti_segment_file_drop. ERR_NO_MEMORY.
 */
dist_status disti_segment_file_make(size_t bytes, struct disti_segment_name *name_p);

/* ERR_NO_MEMORY: so many bytes are more than the machine has. */
dist_status disti_segment_file_check(size_t bytes);

/*
 * Where the kernel grants no more memory than there is: makes those pages, so that no touch of them
 * fails. ERR_NO_MEMORY.
 */
dist_status disti_segment_file_reserve(const struct disti_segment_name *name, size_t offset,
                                       size_t bytes);

/* Frees those pages, whoever has them mapped; whoever reads there next reads zeros. */
void disti_segment_file_punch(const struct disti_segment_name *name, size_t offset, size_t bytes);

/* Frees all pages, and closes the owner's descriptor. */
void disti_segment_file_drop(const struct disti_segment_name *name);

/* Opens another process's file by its name, and sees that it is that. The caller closes *fd_p. */
dist_status disti_segment_file_open(const struct disti_segment_name *name, int *fd_p);

/* Maps a part of the memory, from 2 MiB on aligned to 2 MiB, with huge pages if there are any.
 * ERR_NO_MEMORY. */
dist_status disti_segment_file_map(int fd, size_t offset, size_t bytes, void **memory_p);

#endif
