/* SPDX-License-Identifier: BSD-3-Clause */
/* What segments are made of; private to the segments. */
#ifndef DISTI_NODE_SEGMENT_FILE_H
#define DISTI_NODE_SEGMENT_FILE_H

#include "node/segment.h"

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
 * A new file with room for `bytes` bytes, whole pages, and its name; the caller closes name_p->fd
 * by disti_segment_file_drop. ERR_NO_MEMORY.
 */
dist_status disti_segment_file_make(size_t bytes, struct disti_segment_name *name_p);

/* Frees the pages, whoever has them mapped, and closes the owner's descriptor. */
void disti_segment_file_drop(const struct disti_segment_name *name);

/* Opens another process's file by its name, and sees that it is that. The caller closes *fd_p. */
dist_status disti_segment_file_open(const struct disti_segment_name *name, int *fd_p);

/* Maps the memory, not the seal page. Aligned as disti_segment_alloc says. ERR_NO_MEMORY. */
dist_status disti_segment_file_map(int fd, size_t bytes, void **memory_p);

#endif
