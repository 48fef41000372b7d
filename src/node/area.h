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
 * some times what a CPU has of the second level.
 */
#define NODE_AREAS_ALL ((size_t)4 << 20)
/* Of the longest areas even the shortest ring holds so many, and one more. */
#define NODE_AREAS_LEAST 8

/* How long the rings are. The last area may end before the ring does, which costs less than one. */
static inline void node_size_areas(struct disti_node *node)
{
    const size_t each = NODE_AREA_BYTES + NODE_AREA_GAP;
    size_t areas = NODE_AREAS_ALL / (size_t)node->ranks / each;

    if (areas <= NODE_AREAS_LEAST)
        areas = NODE_AREAS_LEAST + 1;
    node->area_bytes = areas * each;
    node->area_depth = areas - 1 < NODE_SLOTS ? areas - 1 : NODE_SLOTS;
}

/* Where this rank's next area is, of so many bytes. */
static inline size_t node_next_area(const struct disti_node *node, size_t bytes)
{
    return node->area_next + bytes > node->area_bytes ? 0 : node->area_next;
}

/* It is for the call in that slot. */
static inline void node_take_area(struct disti_node *node, struct node_slot *slot, size_t bytes)
{
    size_t at = node_next_area(node, bytes);

    slot->area = (uint16_t)(at / NODE_APART);
    node->area_next = at + (bytes + NODE_AREA_GAP) / NODE_APART * NODE_APART;
}

#endif
