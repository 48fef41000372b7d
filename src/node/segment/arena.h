/* SPDX-License-Identifier: BSD-3-Clause */
/* Blocks of shared memory out of few large segments; private to the segments. */
#ifndef DISTI_NODE_SEGMENT_ARENA_H
#define DISTI_NODE_SEGMENT_ARENA_H

#include "node/segment/table.h"

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

/* Around a fork: none is being made. In the child its view of all blocks, and no arena. */
void disti_arenas_lock(void);
void disti_arenas_unlock(void);
void disti_arenas_forked(void);

#endif
