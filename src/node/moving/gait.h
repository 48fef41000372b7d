/* SPDX-License-Identifier: BSD-3-Clause */
/* How this rank's CPU copies long data best, which its own calls find out; private to this folder.
 */
#ifndef DISTI_NODE_GAIT_H
#define DISTI_NODE_GAIT_H

#include "node/node.h"

/*
 * Bits. 0: as the C library copies.
 * ASKS: lines are asked for before they are needed, of several pages in turn.
 * PAST: written past the caches, where nobody reads them soon.
 * STREAMS: what goes into windows is. To write a line that another CPU has read takes some CPUs ten
 * times as long as to read one that another has written; others read it later from further away.
 */
#define NODE_ASKS 1
#define NODE_PAST 2
#define NODE_STREAMS 4
#define NODE_GAITS 8

/* Of one collective in a size class, where data are in segments, or where they are not. */
struct node_gait {
    uint32_t ns[NODE_GAITS]; /* of this rank's work on 1 MiB, in its fastest call; 0: none yet */
    uint16_t calls;          /* since the trials began */
    uint8_t best;
    bool tried; /* the first trials are over */
};

struct node_gaits {
    struct node_gait elsewhere, direct;
    struct node_gait area; /* of what stands in areas */
    bool was_direct;       /* the last call */
};

/* The gait of what goes into a window. */
static inline uint8_t node_window_gait(const struct disti_node_op *op)
{
    return (op->gait & NODE_ASKS) | (op->gait & NODE_STREAMS ? NODE_PAST : 0);
}

/* Before anything is copied. past: may it be written past the caches? */
void disti_node_gait_choose(struct disti_node *node, struct disti_node_op *op, bool past);
/* The call has ended. */
void disti_node_gait_learn(struct disti_node *node, const struct disti_node_op *op);

/*
 * Of a call whose data stand in areas, and are longer than short: before this rank puts its own
 * there, and behind; before it takes others', and behind.
 */
void disti_node_area_begin(struct disti_node *node, struct disti_node_op *op);
void disti_node_area_shown(struct disti_node_op *op);
void disti_node_area_take(struct disti_node_op *op);
void disti_node_area_end(struct disti_node *node, struct disti_node_op *op);

/* Some of a stage's work, whose time counts in a trial. True: that was the rest. */
bool disti_node_work(struct disti_node *node, struct disti_node_op *op);
/* The same of what this rank puts into its window for a round, and of what it fetches. */
void disti_node_work_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round);
void disti_node_work_drain(struct disti_node *node, struct disti_node_op *op, uint64_t round);

#endif
