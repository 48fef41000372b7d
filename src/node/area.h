/* SPDX-License-Identifier: BSD-3-Clause */
/* Areas: what a rank gives in a call stands in one, if a slot is too small and memory too far. */
#ifndef DISTI_NODE_AREA_H
#define DISTI_NODE_AREA_H

#include "node/state.h"

/*
 * A rank's areas follow each other in a ring, each as long as what stands in it:
 *
 *     | call 7 | call 8, long  | call 10 |   ...   | call 3 |
 *                                        next      still read
 *
 * To write a line that another CPU has read, and still holds, takes several times as long as to
 * write one that has left that CPU's caches. So the rings of all ranks together are NODE_AREAS_ALL,
 * some times what a CPU has of the second level. But whoever writes first to a page waits for it: a
 * ring begins short, with room for NODE_AREAS_LEAST of the longest, and grows when a rank has given
 * long blocks several times. That is the giver's matter: its slot says where the area is.
 */
#define NODE_AREAS_ALL ((size_t)4 << 20)
#define NODE_AREAS_LEAST 8
/* Of the longest. */
#define NODE_AREA_EACH (NODE_AREA_BYTES + NODE_AREA_GAP)

#define NODE_AREAS_SHORT ((NODE_AREAS_LEAST + 1) * NODE_AREA_EACH)

/* Calls that find room in so many bytes. Where the ring ends less than one area is lost. */
static inline uint64_t node_areas_depth(size_t bytes)
{
    size_t depth = bytes / NODE_AREA_EACH;

    return depth <= NODE_SLOTS ? depth - 1 : NODE_SLOTS;
}

/* With so many ranks that a ring would hardly grow it does not. */
static inline void node_size_areas(struct disti_node *node)
{
    size_t share = NODE_AREAS_ALL / (size_t)node->ranks / NODE_AREA_EACH * NODE_AREA_EACH;

    node->area_bytes = share >= 2 * NODE_AREAS_SHORT ? share : NODE_AREAS_SHORT;
    node->area_room = NODE_AREAS_SHORT;
    node->area_depth = NODE_AREAS_LEAST;
}

/*
 * Goes on behind what was used, for all of that may still be read, and comes back there when as
 * many calls have passed as find room behind it. True: it was shorter before.
 */
static inline bool node_grow_areas(struct disti_node *node)
{
    if (node->area_room == node->area_bytes)
        return false;
    node->area_next = node->area_room;
    node->area_room = node->area_bytes;
    node->area_depth = node_areas_depth(node->area_bytes - NODE_AREAS_SHORT);
    return true;
}

/* Where this rank's next area is, of so many bytes. */
static inline size_t node_next_area(const struct disti_node *node, size_t bytes)
{
    return node->area_next + bytes > node->area_room ? 0 : node->area_next;
}

/* It is for the call in that slot. */
static inline void node_take_area(struct disti_node *node, struct node_slot *slot, size_t bytes)
{
    size_t at = node_next_area(node, bytes);

    slot->area = (uint16_t)(at / NODE_APART);
    node->area_next = at + (bytes + NODE_AREA_GAP) / NODE_APART * NODE_APART;
}

#endif
