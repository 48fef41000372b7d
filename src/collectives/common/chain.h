/* SPDX-License-Identifier: BSD-3-Clause */
/* The chain of a broadcast: the ring begun at the root, the root's whole node first. */
#ifndef DISTI_COLLECTIVES_COMMON_CHAIN_H
#define DISTI_COLLECTIVES_COMMON_CHAIN_H

#include "topology/topology.h"

/*
 *   order     0 1 2 3 | 4 5 6 7 | 8 9     root 5: the chain is
 *   chain               5 6 7 4 | 8 9 | 0 1 2 3
 */
static inline int disti_chain_rank(const struct disti_topology *topology, int root, int position)
{
    int node = disti_node_of(topology, root);
    int first = topology->node_first[node], size = disti_node_size(topology, node);
    if (position < size)
        return topology->order[first + (topology->position[root] - first + position) % size];
    return topology->order[(first + position) % topology->ranks];
}

/* The inverse: where on the chain the rank stands; the root at 0. */
static inline int disti_chain_position(const struct disti_topology *topology, int root, int rank)
{
    int node = disti_node_of(topology, root);
    int first = topology->node_first[node], size = disti_node_size(topology, node);
    if (disti_node_of(topology, rank) == node)
        return (topology->position[rank] - topology->position[root] + size) % size;
    return (topology->position[rank] - first + topology->ranks) % topology->ranks;
}

#endif
