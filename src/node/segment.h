/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of shared memory segments, and the allocator of their pages; private to src/node. */
#ifndef DISTI_NODE_SEGMENT_H
#define DISTI_NODE_SEGMENT_H

#include "node/node.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * The file of a segment is a memfd that can neither shrink nor grow:
 *
 *     |------ bytes: the memory, whole pages ------|-- the seal page: the key --|
 *
 * No process keeps the seal page mapped, so a program that writes past the end of the memory does
 * not overwrite the key.
 */

/* Memory of at least this size is aligned for huge pages. */
#define SEGMENT_HUGE ((size_t)2 << 20)

/* Returns the page size of this machine in bytes. */
size_t disti_segment_page(void);

/*
 * Creates a file for `bytes` bytes of memory, a multiple of the page size, and stores its name. The
 * file's pages are created when they are touched or reserved. The caller closes name_p->fd with
 * disti_segment_file_drop. ERR_NO_MEMORY, ERR_SYSTEM.
 */
dist_status disti_segment_file_make(size_t bytes, struct disti_segment_name *name_p);

/* Returns ERR_NO_MEMORY if `bytes` is more than the memory and swap of the machine. */
dist_status disti_segment_file_check(size_t bytes);

/*
 * With vm.overcommit_memory=2, creates the pages of the range, so that touching them cannot fail;
 * else does nothing. ERR_NO_MEMORY.
 */
dist_status disti_segment_file_reserve(const struct disti_segment_name *name, size_t offset,
                                       size_t bytes);

/* Frees all pages of the file and closes the owner's descriptor. */
void disti_segment_file_drop(const struct disti_segment_name *name);

/*
 * Opens the file of another process's segment, and checks its size and key. The caller closes
 * *fd_p. ERR_SYSTEM, ERR_NO_MEMORY.
 */
dist_status disti_segment_file_open(const struct disti_segment_name *name, int *fd_p);

/*
 * Maps a part of the file. From 2 MiB on, the mapping is aligned to 2 MiB and has huge pages if
 * available. ERR_NO_MEMORY.
 */
dist_status disti_segment_file_map(int fd, size_t offset, size_t bytes, void **memory_p);

/* A buddy allocator of page ranges, stored outside the memory that it divides. */

/*
 * The allocator divides 2^levels units into blocks. A block has 2^order units and starts at a
 * multiple of its length, so two free halves merge without a search. The tree has one byte for each
 * possible block; nothing is written into the units.
 *
 *     node 1   |--------------- order 3 ---------------|
 *     2, 3     |----- order 2 -----|----- order 2 -----|
 *     4 .. 7   |- order 1 -|   ...
 *     8 .. 15  | unit | unit | ...
 *
 * `lacks` of a tree node of order o is 0 if the whole node is free, and o + 1 if nothing in it is
 * free; else the largest free block in the node has order o - lacks. All nodes below an allocated
 * or a free block are 0, so a tree that has not been used needs no memory.
 */
struct buddy {
    unsigned levels;
    uint8_t *lacks;
};

/* Largest number of levels: 2^40 units. */
#define BUDDY_LEVELS_MAX 40

/* Returns false if memory is exhausted. The caller frees the tree with disti_buddy_close. */
bool disti_buddy_open(struct buddy *buddy, unsigned levels);
void disti_buddy_close(struct buddy *buddy);

/*
 * Returns the order of the smallest block that has `units` units; BUDDY_LEVELS_MAX + 1 if `units`
 * is too large.
 */
unsigned disti_buddy_order(size_t units);

/*
 * Allocates a block of order `order` from the smallest free block that is large enough, and stores
 * the block's first unit. Returns false if no block is free.
 */
bool disti_buddy_alloc(struct buddy *buddy, unsigned order, size_t *unit_p);

/*
 * Finds the allocated block that contains `unit`, and stores its first unit and its order. Returns
 * false if the unit is free.
 */
bool disti_buddy_find(const struct buddy *buddy, size_t unit, size_t *first_p, unsigned *order_p);

/* Frees the allocated block of order `order` that starts at unit `first`. */
void disti_buddy_free(struct buddy *buddy, size_t first, unsigned order);

/* Calls visit for each maximal range of allocated units, in ascending order. */
void disti_buddy_each(const struct buddy *buddy,
                      void (*visit)(void *arg, size_t unit, size_t units), void *arg);

#endif
