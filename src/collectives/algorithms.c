/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of algorithms. */
#include "collectives/algorithms.h"

#include <string.h>

const struct disti_algorithm disti_algorithms[] = {
#define ALGORITHM(which, directory, row, ...)                                                      \
    {.collective = DIST_COLL_##which,                                                              \
     .name = #row,                                                                                 \
     .write = disti_##directory##_##row,                                                           \
     __VA_ARGS__},
#include "collectives/algorithms.def"
#undef ALGORITHM
    {.name = NULL},
};

const struct disti_algorithm *disti_algorithm_find(dist_collective collective, const char *name)
{
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        if (a->collective == collective && strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

uint32_t disti_subtree(const struct disti_topology *topology, int root, int rank, uint32_t *list)
{
    struct disti_tree_neighbours tree;
    uint32_t count = 1;
    disti_tree_binomial(topology, root, rank, &tree);
    list[0] = (uint32_t)rank;
    /* The recursion is at most log2 n deep, like the tree. */
    for (int i = tree.children - 1; i >= 0; i--)
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
