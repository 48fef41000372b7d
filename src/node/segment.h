/* SPDX-License-Identifier: BSD-3-Clause */
/* Files, arenas and tables of shared memory segments; private to the node layer. */
#ifndef DISTI_NODE_SEGMENT_H
#define DISTI_NODE_SEGMENT_H

#include "node/node.h"

#include <pthread.h>
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

/* The segments that this process owns, by address; private to the segments. */

/*
 * ARENA: a file, which is divided into blocks. REGISTERED: a block of an arena, whose whole pages
 * are mapped where the program had its memory. PRIVATE, by alloc: ordinary memory, as no arena
 * could be made; so is what was registered then. It has no name.
 */
enum segment_kind { SEGMENT_ARENA, SEGMENT_REGISTERED, SEGMENT_PRIVATE };

struct segment {
    char *memory;
    size_t bytes;
    enum segment_kind kind;
    struct disti_segment_name name; /* of the file; key 0: there is none */
    size_t offset;                  /* of memory in it */
    struct arena *arena;            /* that it is, or REGISTERED: that its block is of */
};

/* The whole pages of what is REGISTERED, which may be none. */
struct segment_pages {
    char *memory;
    size_t bytes;
    size_t offset; /* of memory in the file */
};
struct segment_pages disti_segment_pages(const struct segment *segment);

/*
 * First of every function that makes something: sees to what a fork needs, and returns this
 * process's id, without a call of the system.
 */
int32_t disti_segment_begin(void);

/* Guards the table, and every change of memory that the table knows. */
void disti_segment_lock(void);
void disti_segment_unlock(void);

/* So many entries; without the lock a guess. */
size_t disti_segment_table_length(void);

/* With the lock held. Room for one more: ERR_NO_MEMORY; and that one. */
dist_status disti_segment_table_room(void);
void disti_segment_table_add(const struct segment *segment);

/* Is a part of that in the table? Takes the lock itself. */
bool disti_segment_table_overlaps(const void *memory, size_t bytes);

/* With the lock held. The entry that an address lies in; NULL: none. */
const struct segment *disti_segment_table_find(const void *memory);

/*
 * With the lock held. Takes the entry out that begins at memory, of register if `registered`, else
 * of another; but no arena. ERR_INVALID_ARGUMENT: there is none. get only looks.
 */
dist_status disti_segment_table_get(const void *memory, bool registered, struct segment *segment_p);
dist_status disti_segment_table_take(const void *memory, bool registered,
                                     struct segment *segment_p);
/* With the lock held. The entry that begins there, whatever it is: it must be there. */
void disti_segment_table_remove(const void *memory);

/* Own memory by its key; NULL: it was freed. Takes the lock itself. */
void *disti_segment_table_find_key(uint64_t key);

/* Says in the log that so many bytes are not shared, and why: the last error. */
void disti_segment_log_private(size_t bytes);

/* peer.c: around a fork; the child has none of the parent's mappings of its peers. */
void disti_segment_peers_lock(void);
void disti_segment_peers_unlock(void);
void disti_segment_peers_forked(void);

/* Blocks of shared memory out of few large segments; private to the segments. */

/*
 * An arena is a segment that is divided into blocks. Its file is sparse: what no block has touched
 * takes no memory, so it is made large, and the next one of its pool as large as all before it. So
 * a process has few of them, whatever it allocates, and a peer maps few.
 *
 *     pool   |- 256 MiB -|   |- 256 MiB -|   |------- 512 MiB -------|   ...
 *              |  |  blocks: 2^n pages, each at a multiple of its length
 *
 * A block that is given back is punched out of the file: its pages are the system's again,
 * peers' mappings of it read zeros, and so does who gets it next.
 */
enum arena_pool { ARENA_PROGRAM, ARENA_LIBRARY, ARENA_POOLS };

struct arena;
struct arena_block {
    struct arena *arena;
    size_t offset; /* in its segment */
};

/*
 * A block of at least `bytes` bytes, zeroed. *shared_p is false if there is memory, but no arena
 * can be made: no descriptor, no room in the address space, a limit on files. ERR_NO_MEMORY
 * otherwise.
 */
dist_status disti_arena_take(enum arena_pool pool, size_t bytes, struct arena_block *block_p,
                             bool *shared_p);
void disti_arena_give(const struct arena_block *block);

char *disti_arena_memory(const struct arena_block *block);
const struct disti_segment_name *disti_arena_name(const struct arena_block *block);

/* With the lock held. The block that an address is in, and its bytes. False: it is in none. */
bool disti_arena_find(struct arena *arena, const void *memory, struct arena_block *block_p,
                      size_t *bytes_p);

#endif
