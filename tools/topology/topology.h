/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info topology: the machines of a job, and the places of its ranks. */
#ifndef TOOLS_TOPOLOGY_TOPOLOGY_H
#define TOOLS_TOPOLOGY_TOPOLOGY_H

#include <dist/backend.h>
#include <limits.h>
#include <stdio.h>

#define TOPOLOGY_CORES 1024
#define TOPOLOGY_GPUS 32

/* Numbers count from 0 within the machine; -1: unknown. */
struct topology_core {
    int16_t package, numa;
    int16_t threads; /* hardware threads of the core */
};
struct topology_gpu {
    int16_t package, numa;
    char name[28]; /* "": unknown */
};

/* Cores are ordered by package, then by NUMA node. Fixed size, since ranks exchange it as bytes. */
struct topology_machine {
    char host[HOST_NAME_MAX + 1];
    int32_t cores, gpus;
    struct topology_core core[TOPOLOGY_CORES];
    struct topology_gpu gpu[TOPOLOGY_GPUS];
};

struct topology_rank {
    int machine;
    int core; /* -1: unknown */
    int gpu;  /* -1: none */
};

struct topology {
    int machines, ranks; /* ranks is 0 for a single machine without a job */
    struct topology_machine *machine;
    struct topology_rank *rank;
};

/* The cores [first, first + cores), which are in the same package and NUMA node. */
struct topology_part {
    int package, numa;
    int first, cores;
};

/* Runs the command; argv[0] is "topology". Returns the exit code. */
int topology_main(int argc, char **argv);

/* Gathers the machines and places of a group's ranks on rank 0, where the caller frees the arrays
 * of *topology_p, also after an error. On the other ranks the topology is empty. A collective call.
 */
dist_status topology_gather_group(dist_group *group, struct topology *topology_p);

/* Draws the topology as SVG. */
void topology_draw(const struct topology *topology, FILE *to);

#endif
