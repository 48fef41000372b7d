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

/* From this size on, memory is aligned for huge pages. */
#define SEGMENT_HUGE ((size_t)2 << 20)

/* Returns the page size of this machine in bytes. */
size_t disti_segment_page(void);

/*
 * Creates a file of `bytes` bytes, whole pages, and its name. Its pages are created when they are
 * touched or reserved. The caller closes name_p->fd with disti_segment_file_drop. ERR_NO_MEMORY.
 */
dist_status disti_segment_file_make(size_t bytes, struct disti_segment_name *name_p);

/* ERR_NO_MEMORY: `bytes` is more than the memory and swap of the machine. */
dist_status disti_segment_file_check(size_t bytes);

/*
 * With vm.overcommit_memory=2, creates those pages, so that touching them cannot fail; else does
 * nothing. ERR_NO_MEMORY.
 */
dist_status disti_segment_file_reserve(const struct disti_segment_name *name, size_t offset,
                                       size_t bytes);

/* Frees all pages and closes the owner's descriptor. */
void disti_segment_file_drop(const struct disti_segment_name *name);

/* Opens another process's file and checks that it has that name. The caller closes *fd_p. */
dist_status disti_segment_file_open(const struct disti_segment_name *name, int *fd_p);

/*
 * Maps a part of the memory; from 2 MiB on aligned to 2 MiB, with huge pages if available.
 * ERR_NO_MEMORY.
 */
dist_status disti_segment_file_map(int fd, size_t offset, size_t bytes, void **memory_p);

/* A buddy allocator of page ranges, stored outside the memory that it divides. */

/*
 * It has 2^levels units. A block is 2^order units and starts at a multiple of its length, so two
 * free halves merge without a search. The tree has a byte for each possible block; nothing is
 * written into the units.
 *
 *     node 1   |--------------- order 3 ---------------|
 *     2, 3     |----- order 2 -----|----- order 2 -----|
 *     4 .. 7   |- order 1 -|   ...
 *     8 .. 15  | unit | unit | ...
 *
 * `lacks` of a node of order o: 0 if all of it is free; o + 1 if nothing is free; else the largest
 * free block in it has order o - lacks. All nodes below an allocated block or a free block are 0,
 * so a tree that has not been used needs no memory.
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
 * Returns the order of the smallest block of `units` units; BUDDY_LEVELS_MAX + 1 if it is too
 * large.
 */
unsigned disti_buddy_order(size_t units);

/* Allocates a block of that order, and splits the smallest block possible. False: none is free. */
bool disti_buddy_alloc(struct buddy *buddy, unsigned order, size_t *unit_p);

/* Finds the allocated block of a unit: its first unit and its order. False: the unit is free. */
bool disti_buddy_find(const struct buddy *buddy, size_t unit, size_t *first_p, unsigned *order_p);

/* Frees an allocated block; `first` is its first unit. */
void disti_buddy_free(struct buddy *buddy, size_t first, unsigned order);

/* Calls visit for each maximal range of allocated units, in ascending order. */
void disti_buddy_each(const struct buddy *buddy,
                      void (*visit)(void *arg, size_t unit, size_t units), void *arg);

#endif
