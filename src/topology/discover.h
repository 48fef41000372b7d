/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds out where this process runs: the only I/O of this module. */
#ifndef DISTI_TOPOLOGY_DISCOVER_H
#define DISTI_TOPOLOGY_DISCOVER_H

#include "base/net.h"

#include <dist/backend.h>
#include <stdint.h>

#define DISTI_CPU_WORDS 16

/* What a rank tells the others about its machine. Fixed size: it is exchanged as bytes. */
struct disti_locality {
    uint64_t
        machine; /* equal if and only if two ranks share a machine, its memory and its network */
    uint64_t kernel;         /* equal if they share its CPUs: containers have one kernel */
    uint64_t processes;      /* equal if each sees the other's process by its pid; 0: unknown */
    struct dist_place place; /* node is not set here (-1) */
    int32_t usable_cpus;     /* affinity and cgroup quota together, at least 1 */
    int32_t quota_cpus;      /* the cgroup's quota alone; 0: no limit */
    uint64_t cpus[DISTI_CPU_WORDS]; /* the affinity; CPU c is bit c % 64 of word c / 64 %
                                       DISTI_CPU_WORDS */
    int32_t pid;
    char host[DISTI_HOST_SIZE]; /* the host's name, terminated */
};

/*
 * From the kernel's files, or by hwloc where they do not tell, or its variables, such as
 * HWLOC_SYNTHETIC and HWLOC_XMLFILE, replace the real machine. The locality is
 * that of the CPUs this process is bound to; of local_rank's share of them where it is bound to
 * none in particular.
 */
dist_status disti_discover(int local_rank, int local_ranks, struct disti_locality *locality_p);

/* CPUs this process may really use: sched_getaffinity and the cgroup's quota. At least 1. */
int disti_usable_cpus(void);

/*
 * Are there more ranks than CPUs where `rank` runs? Counts the ranks under its kernel whose CPUs
 * meet its own, directly or through others, against all the CPUs they may use: ranks that are bound
 * to a core each are not crowded. The quota is shared by the ranks of its machine.
 */
bool disti_crowded(const struct disti_locality *localities, int ranks, int rank);

/*
 * The CPUs that all ranks have together, if they are on several machines that are containers of one
 * kernel; 0: they are not, or it is not known.
 */
int disti_shared_cpus(const struct disti_locality *localities, int ranks);

/* Numbers the machines from 0 in rank order, into numbered[ranks].node; returns how many there
 * are.
 */
int disti_number_nodes(const struct disti_locality *localities, int ranks,
                       struct dist_place *numbered);

/* ---- CPUs that a process may use ---- */

/*
 * CPUs' worth of time that the cgroups let this process have, rounded up; 0: no limit. membership
 * is a file like /proc/PID/cgroup, mounts the folder where cgroups are mounted, as
 * /sys/fs/cgroup: both versions of cgroups, each group of the path up to the top counts.
 */
int disti_quota_cpus(const char *membership, const char *mounts);

/* ---- packages, NUMA nodes and cores, from the kernel's files ---- */

/*
 * Of the cores that meet the affinity `cpus` (DISTI_CPU_WORDS words; all zero: any), in order, the
 * one that falls to local_rank: sets core, package and numa of *locality_p, numbered as hwloc does
 * it: packages, the NUMA nodes in them, the cores in those. `root` is /sys/devices/system. False:
 * these files do not tell, or there are more CPUs than bits. Reads a file for each core, package
 * and node.
 */
bool disti_sysfs_locality(const char *root, const uint64_t *cpus, int local_rank, int local_ranks,
                          struct dist_place *locality_p);

#endif
