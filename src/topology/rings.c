/* SPDX-License-Identifier: BSD-3-Clause */
/* The ring: the ranks in the order of their localities, closed. */
#include "topology/topology.h"

int disti_ring_next(const struct disti_topology *topology, int rank)
{
    return topology->order[(topology->position[rank] + 1) % topology->ranks];
}

int disti_ring_previous(const struct disti_topology *topology, int rank)
{
    return topology->order[(topology->position[rank] + topology->ranks - 1) % topology->ranks];
}
