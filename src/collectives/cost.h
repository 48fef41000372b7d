/* SPDX-License-Identifier: BSD-3-Clause */
/* What things cost on a machine and its network: what predictions are made from. */
#ifndef DISTI_COLLECTIVES_COST_H
#define DISTI_COLLECTIVES_COST_H

#include "collectives/plan.h"

/* How far two ranks are from each other. */
enum disti_distance { DISTI_SAME_NUMA, DISTI_SAME_NODE, DISTI_OTHER_NODE, DISTI_DISTANCES };

/*
 * A message of b bytes arrives latency_s + b / bytes_per_second after its send began (if nothing is
 * in its way) and keeps the sender, and then the receiver, busy for overhead_s each. Over
 * DISTI_OTHER_NODE all ranks of a node share one line in each direction of bytes_per_second.
 */
struct disti_link_cost {
    double latency_s, overhead_s;
    double bytes_per_second;
};

struct disti_cost {
    struct disti_link_cost links[DISTI_DISTANCES];
    double copy_bytes_per_second;   /* one rank copies, by bytes copied */
    double reduce_bytes_per_second; /* one rank reduces two vectors into one, by bytes of one */
    double node_bytes_per_second;   /* all ranks of a node together: the memory's limit */
    double step_s;                  /* what the engine needs for a step */
    double switch_s;                /* a CPU goes from one waiting rank to the next */
    int node_cpus;                  /* shared by the ranks of a node; 0: a CPU for each */
};

/* Where nothing has been measured: a usual server, and Ethernet of 10 Gbit/s. */
extern const struct disti_cost disti_cost_usual;

/*
 * The seconds from the start to the last rank's end when all ranks of shape->topology run this
 * algorithm's plans at the same moment (shape->rank is not looked at) on blocks of `bytes` bytes
 * (what a block is: plan.h). Pure: the same arguments, the same result on every machine.
 * ERR_UNSUPPORTED, ERR_NO_MEMORY.
 */
dist_status disti_simulate(const struct disti_algorithm *algorithm, const struct disti_shape *shape,
                           size_t bytes, const struct disti_cost *cost, double *seconds_p);

#endif
