/* SPDX-License-Identifier: BSD-3-Clause */
/* What op.c asks of a call in which a rank knows the counts of its own blocks only. */
#ifndef DISTI_NODE_PAIRS_COURSE_H
#define DISTI_NODE_PAIRS_COURSE_H

#include "node/state.h"

/* Chooses where this rank's blocks stand, and whom it awaits. */
void disti_node_pairs_choose(struct disti_node *node, struct disti_node_op *op);
/* Writes its list into its slot or area, and its blocks or where they are. */
dist_status disti_node_pairs_show(struct disti_node *node, struct disti_node_op *op);
/* Learns what the others have shown. ERR_MISMATCH: another count. */
dist_status disti_node_pairs_resolve(struct disti_node *node, struct disti_node_op *op);
/* Some of this rank's part, from op->done on. True: that was the rest. */
bool disti_node_pairs_work(struct disti_node *node, struct disti_node_op *op);
/* Do all that it waits for, and this rank, give on boards? Then take does all, at once. */
bool disti_node_pairs_are_short(const struct disti_node *node, const struct disti_node_op *op);
dist_status disti_node_pairs_take(struct disti_node *node, struct disti_node_op *op);
/* Is there something left that goes through windows? All is done that went without. */
bool disti_node_pairs_remain(struct disti_node *node, struct disti_node_op *op);
/* Readies the windows for it. */
dist_status disti_node_pairs_to_windows(struct disti_node *node, struct disti_node_op *op);
/* again.c: may the op, which has begun, come again: does this rank give little, whatever others do?
 * What was known of the last such is forgotten. */
bool disti_node_pairs_recur(const struct disti_node *node, const struct disti_node_op *op);
/* As disti_node_start_again. */
dist_status disti_node_pairs_again(struct disti_node *node, const struct dist_call *call,
                                   uint64_t history, struct disti_node_op *op);
/* Puts the round's pieces into this rank's window. */
void disti_node_pairs_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round);

#endif
