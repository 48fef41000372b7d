/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info topology: the machines of a job, and where its ranks are on them. */
#ifndef TOOLS_TOPOLOGY_TOPOLOGY_H
#define TOOLS_TOPOLOGY_TOPOLOGY_H

#include <dist/backend.h>
#include <limits.h>
#include <stdio.h>

#define TOPOLOGY_CORES 1024
#define TOPOLOGY_GPUS 32

/* Numbers count from 0 over the machine; -1: not known. */
struct topology_core {
    int16_t package, numa;
    int16_t threads; /* of hardware */
};
struct topology_gpu {
    int16_t package, numa;
    char name[28]; /* "": not known */
};

/* Cores stand in the order of packages, and in these of NUMA nodes. Fixed size: ranks exchange it.
 */
struct topology_machine {
    char host[HOST_NAME_MAX + 1];
    int32_t cores, gpus;
    struct topology_core core[TOPOLOGY_CORES];
    struct topology_gpu gpu[TOPOLOGY_GPUS];
};

struct topology_rank {
    int machine;
    int core; /* -1: not known */
    int gpu;  /* -1: none */
};

struct topology {
    int machines, ranks; /* no ranks: one machine, and no job */
    struct topology_machine *machine;
    struct topology_rank *rank;
};

/* Cores of one NUMA node in one package: [first, first + cores). */
struct topology_part {
    int package, numa;
    int first, cores;
};

/* argv[0] is "topology". Returns the exit code. */
int topology_main(int argc, char **argv);

/* The same of a group's ranks; places are those of the group. */
dist_status topology_gather_group(dist_group *group, struct topology *topology_p);

void topology_draw(const struct topology *topology, FILE *to);

#endif
