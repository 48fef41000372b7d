/* SPDX-License-Identifier: BSD-3-Clause */
/* The segments that this process owns, by address; private to the segments. */
#ifndef DISTI_NODE_SEGMENT_TABLE_H
#define DISTI_NODE_SEGMENT_TABLE_H

#include "node/segment/segment.h"

#include <pthread.h>

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

#endif
