/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's packages, NUMA nodes and cores, from the kernel's own files. */
#ifndef DISTI_TOPOLOGY_SYSFS_H
#define DISTI_TOPOLOGY_SYSFS_H

#include <dist/backend.h>

/*
 * Of the cores that meet the affinity `cpus` (DISTI_CPU_WORDS words; all zero: any), in order, the
 * one that falls to local_rank: sets core, package and numa of *locality_p, numbered as hwloc does
 * it: packages, the NUMA nodes in them, the cores in those. `root` is /sys/devices/system. False:
 * these files do not tell, or there are more CPUs than bits. Reads a file for each core, package
 * and node.
 */
bool disti_sysfs_locality(const char *root, const uint64_t *cpus, int local_rank, int local_ranks,
                          struct dist_place *locality_p);

/* Of `count` things the one that falls to local_rank, when all are shared out in order. */
int disti_share(int local_rank, int local_ranks, int count);

#endif
