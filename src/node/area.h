/* SPDX-License-Identifier: BSD-3-Clause */
/* Areas: what a rank gives in a call stands in one, if a slot is too small and memory too far. */
#ifndef DISTI_NODE_AREA_H
#define DISTI_NODE_AREA_H

#include "node/state.h"

/*
 * A rank's areas, NODE_AREAS_FIXED of them and a ring:
 *
 *     | of call 8 | of call 9 | ... | of call 15 | call 7 | call 20, long  | call 22 |  ...  |
 *                                                                                    next
 *
 * Whose place is fixed by a call's number a reader asks for before it has seen the slot: so short
 * blocks stand there. Longer ones follow each other in the ring. To write a line that another CPU
 * has read, and still holds, takes several times as long as to write one that has left that CPU's
 * caches; and all areas together are NODE_AREAS_ALL, some times what a CPU has of the second level.
 *
 * Whoever writes first to a page waits for it. So a rank uses its ring when it has given long
 * blocks several times. That is its own matter: its slot says where the area is.
 */
#define NODE_AREAS_ALL ((size_t)4 << 20)

/* How many bytes of areas a rank has. With many ranks there is no ring. */
static inline size_t node_areas_bytes(int ranks)
{
    size_t areas = NODE_AREAS_ALL / (size_t)ranks / NODE_AREA_EACH;

    return NODE_AREA_EACH * (areas > 2 * NODE_AREAS_FIXED ? areas : NODE_AREAS_FIXED);
}

static inline void node_size_areas(struct disti_node *node)
{
    node->area_bytes = node_areas_bytes(node->ranks);
    node->area_depth = NODE_AREAS_FIXED;
    node->area_next = 0;
}

/* True: from now on the ring is used, and has not been before. */
static inline bool node_use_ring(struct disti_node *node)
{
    size_t areas = node->area_bytes / NODE_AREA_EACH;

    if (node->area_next || areas <= NODE_AREAS_FIXED)
        return false;
    areas -= NODE_AREAS_FIXED + 1; /* one may be lost where the ring ends */
    node->area_next = NODE_AREAS_FIXED * NODE_AREA_EACH;
    node->area_depth = areas <= node->last_slot ? areas : node->last_slot + 1;
    return true;
}

/* The slot's call gives so many bytes, which are long, in the ring if that is used. */
static inline void node_take_area(struct disti_node *node, struct node_slot *slot, size_t bytes)
{
    slot->area = 0;
    if (!node->area_next)
        return;
    if (node->area_next + bytes > node->area_bytes)
        node->area_next = NODE_AREAS_FIXED * NODE_AREA_EACH;
    slot->area = (uint16_t)(node->area_next / NODE_APART);
    node->area_next += (bytes + NODE_AREA_GAP) / NODE_APART * NODE_APART;
}

#endif
