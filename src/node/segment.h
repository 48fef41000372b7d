/* SPDX-License-Identifier: BSD-3-Clause */
/* The files of shared memory segments, and which of their pages are taken; private to the node
 * layer. */
#ifndef DISTI_NODE_SEGMENT_H
#define DISTI_NODE_SEGMENT_H

#include "node/node.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What segments are made of; private to the segments. */

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

/* Frees all pages, and closes the owner's descriptor. */
void disti_segment_file_drop(const struct disti_segment_name *name);

/* Opens another process's file by its name, and sees that it is that. The caller closes *fd_p. */
dist_status disti_segment_file_open(const struct disti_segment_name *name, int *fd_p);

/* Maps a part of the memory, from 2 MiB on aligned to 2 MiB, with huge pages if there are any.
 * ERR_NO_MEMORY. */
dist_status disti_segment_file_map(int fd, size_t offset, size_t bytes, void **memory_p);

/* Which units of a range are taken: a buddy system, beside the memory that it divides. */

/*
 * 2^levels units. A block is 2^order units and begins at a multiple of its length, so two halves
 * that are free are one block again without a search. The tree has a byte for each possible block;
 * nothing is written into the units.
 *
 *     node 1   |--------------- order 3 ---------------|
 *     2, 3     |----- order 2 -----|----- order 2 -----|
 *     4 .. 7   |- order 1 -|   ...
 *     8 .. 15  | unit | unit | ...
 *
 * `lacks` of a node of order o: 0, all of it is free; o + 1, none is; else the largest free block
 * in it has order o - lacks. Below a block that is taken, and one that is free, all is 0. So a tree
 * that nobody has used yet needs no memory.
 */
struct buddy {
    unsigned levels;
    uint8_t *lacks;
};

/* The most units: 2^40 */
#define BUDDY_LEVELS_MAX 40

/* False: no memory. The caller frees it by disti_buddy_close. */
bool disti_buddy_open(struct buddy *buddy, unsigned levels);
void disti_buddy_close(struct buddy *buddy);

/* The order of the smallest block of so many units; BUDDY_LEVELS_MAX + 1: there is none. */
unsigned disti_buddy_order(size_t units);

/* Takes a block of that order where the least is broken up for it. False: there is none. */
bool disti_buddy_take(struct buddy *buddy, unsigned order, size_t *unit_p);

/* The block that a unit is in: its first unit and its order. False: it is one that is free. */
bool disti_buddy_find(const struct buddy *buddy, size_t unit, size_t *first_p, unsigned *order_p);

/* Gives a block back that was taken; `first` is its first unit. */
void disti_buddy_give(struct buddy *buddy, size_t first, unsigned order);

/* Calls visit for each stretch of units that are taken, from low to high, as long as can be. */
void disti_buddy_each(const struct buddy *buddy,
                      void (*visit)(void *arg, size_t unit, size_t units), void *arg);

#endif
