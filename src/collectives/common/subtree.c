/* SPDX-License-Identifier: BSD-3-Clause */
/* Subtrees of the binomial tree, listed. */
#include "collectives/common/subtree.h"

uint32_t disti_subtree(const struct disti_topology *topology, int root, int rank, uint32_t *list)
{
    struct disti_tree_neighbours tree;
    uint32_t count = 1;
    disti_tree_binomial(topology, root, rank, &tree);
    list[0] = (uint32_t)rank;
    for (int i = tree.children - 1; i >= 0; i--) /* no deeper than the tree: log2 n */
        count += disti_subtree(topology, root, tree.child[i], list + count);
    return count;
}

bool disti_subtree_run(const uint32_t *list, uint32_t count)
{
    for (uint32_t i = 1; i < count; i++)
        if (list[i] != list[0] + i)
            return false;
    return true;
}
