/* SPDX-License-Identifier: BSD-3-Clause */
/* A buddy system in a tree of bytes. */
#include "node/segment/buddy.h"

#include <stdlib.h>

bool disti_buddy_open(struct buddy *buddy, unsigned levels)
{
    buddy->levels = levels;
    buddy->lacks = levels <= BUDDY_LEVELS_MAX ? calloc((size_t)2 << levels, 1) : NULL;
    return buddy->lacks != NULL;
}

void disti_buddy_close(struct buddy *buddy)
{
    free(buddy->lacks);
    buddy->lacks = NULL;
}

unsigned disti_buddy_order(size_t units)
{
    unsigned order = 0;

    while (order <= BUDDY_LEVELS_MAX && (size_t)1 << order < units)
        order++;
    return order;
}

/* How many orders of blocks are free in a node of that order: 0, none; n, those below n. */
static unsigned buddy_holds(const struct buddy *buddy, size_t node, unsigned order)
{
    return order + 1 - buddy->lacks[node];
}

/* What the ancestors of a node of that order lack, after a change in it. */
static void buddy_mend(struct buddy *buddy, size_t node, unsigned order)
{
    for (node /= 2, order++; node > 0; node /= 2, order++) {
        unsigned left = buddy_holds(buddy, 2 * node, order - 1);
        unsigned right = buddy_holds(buddy, 2 * node + 1, order - 1);
        unsigned most = left > right ? left : right;

        if (left == order && right == order)
            most = order + 1;
        buddy->lacks[node] = (uint8_t)(order + 1 - most);
    }
}

/* The half in which a block of that order leaves the larger ones whole. */
static size_t buddy_half(const struct buddy *buddy, size_t node, unsigned half_order,
                         unsigned order)
{
    unsigned left = buddy_holds(buddy, 2 * node, half_order);
    unsigned right = buddy_holds(buddy, 2 * node + 1, half_order);

    return 2 * node + (left <= order || (right > order && right < left));
}

bool disti_buddy_take(struct buddy *buddy, unsigned order, size_t *unit_p)
{
    size_t node = 1;
    unsigned at = buddy->levels;

    if (order > at || buddy_holds(buddy, 1, at) <= order)
        return false;
    for (; at > order; at--)
        node = buddy_half(buddy, node, at - 1, order);
    buddy->lacks[node] = (uint8_t)(order + 1);
    buddy_mend(buddy, node, order);
    *unit_p = (node << order) - ((size_t)1 << buddy->levels);
    return true;
}

/* Up from the unit all is 0, to a node that is taken, or one of which another part is. */
bool disti_buddy_find(const struct buddy *buddy, size_t unit, size_t *first_p, unsigned *order_p)
{
    size_t node = ((size_t)1 << buddy->levels) + unit;
    unsigned order = 0;
    bool taken;

    while (node > 0 && buddy->lacks[node] == 0) {
        node /= 2;
        order++;
    }
    taken = node > 0 && buddy->lacks[node] == order + 1;
    order -= !taken;
    *first_p = unit >> order << order;
    *order_p = order;
    return taken;
}

void disti_buddy_give(struct buddy *buddy, size_t first, unsigned order)
{
    size_t node = (((size_t)1 << buddy->levels) + first) >> order;

    buddy->lacks[node] = 0;
    buddy_mend(buddy, node, order);
}

void disti_buddy_each(const struct buddy *buddy,
                      void (*visit)(void *arg, size_t unit, size_t units), void *arg)
{
    size_t units = (size_t)1 << buddy->levels, begin = 0, first;
    unsigned order;

    for (size_t unit = 0; unit < units; unit += (size_t)1 << order) {
        if (disti_buddy_find(buddy, unit, &first, &order))
            continue;
        if (unit > begin)
            visit(arg, begin, unit - begin);
        begin = unit + ((size_t)1 << order);
    }
    if (units > begin)
        visit(arg, begin, units - begin);
}
