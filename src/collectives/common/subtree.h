/* SPDX-License-Identifier: BSD-3-Clause */
/* The ranks below a rank in the binomial tree, whose blocks travel with its own. */
#ifndef DISTI_COLLECTIVES_COMMON_SUBTREE_H
#define DISTI_COLLECTIVES_COMMON_SUBTREE_H

#include "plan/plan.h"
#include "topology/topology.h"

/*
 * Writes the ranks of the subtree of `rank` (disti_tree_binomial, from root) to list[]: the rank
 * itself, then the subtrees of its children, the smallest first. Returns how many. So with root 0
 * and ranks in order these are rank, rank + 1, ...
 */
uint32_t disti_subtree(const struct disti_topology *topology, int root, int rank, uint32_t *list);

/* Do the blocks of list[0 .. count) follow each other? */
bool disti_subtree_run(const uint32_t *list, uint32_t count);

#endif
