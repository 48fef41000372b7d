/* SPDX-License-Identifier: BSD-3-Clause */
/* The segments that this process owns, by address; private to the segments. */
#ifndef DISTI_NODE_SEGMENT_TABLE_H
#define DISTI_NODE_SEGMENT_TABLE_H

#include "node/segment.h"

#include <pthread.h>

struct segment {
    char *memory;
    struct disti_segment_name name;
    bool registered; /* by disti_segment_register */
};

/*
 * First of every function that makes something: sees to what a fork needs, and returns this
 * process's id, without a call of the system.
 */
int32_t disti_segment_begin(void);

/* Guards the table, and every change of memory that the table knows. */
void disti_segment_lock(void);
void disti_segment_unlock(void);

/* With the lock held. Room for one more: ERR_NO_MEMORY; and that one. */
dist_status disti_segment_table_room(void);
void disti_segment_table_add(const struct segment *segment);

/*
 * With the lock held. The segment that begins at memory, made by register if `registered`, else by
 * alloc; take takes it out of the table. ERR_INVALID_ARGUMENT: there is none.
 */
dist_status disti_segment_table_get(const void *memory, bool registered, struct segment *segment_p);
dist_status disti_segment_table_take(const void *memory, bool registered,
                                     struct segment *segment_p);

/* Own memory by its key; NULL: it was freed. Takes the lock itself. */
void *disti_segment_table_find_key(uint64_t key);

/* segment_peer.c: around a fork; the child has none of the parent's mappings of its peers. */
void disti_segment_peers_lock(void);
void disti_segment_peers_unlock(void);
void disti_segment_peers_forked(void);

#endif
