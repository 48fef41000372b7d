/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds where this process runs, and which ranks share CPUs. Only discover.c does I/O. */
#ifndef DISTI_TOPOLOGY_DISCOVER_H
#define DISTI_TOPOLOGY_DISCOVER_H

#include "base/net.h"

#include <dist/backend.h>
#include <stdint.h>

#define DISTI_CPU_WORDS 16

/* The report of a rank about its machine. The size is fixed, since it is exchanged as bytes. */
struct disti_locality {
    /* equal if and only if two ranks share a machine: its memory and its network */
    uint64_t machine;
    /* equal if two ranks share CPUs: on one machine, or in containers of one kernel */
    uint64_t kernel;
    uint64_t processes; /* equal if each rank can see the other's process by its pid; 0: unknown */
    struct dist_place place;        /* node is not set by disti_discover() (-1) */
    int32_t usable_cpus;            /* from affinity and cgroup quota together, at least 1 */
    int32_t quota_cpus;             /* from the cgroup quota alone; 0: no limit */
    uint64_t cpus[DISTI_CPU_WORDS]; /* the affinity; CPU c is bit c % 64 of word c / 64 %
                                       DISTI_CPU_WORDS */
    int32_t pid;
    char host[DISTI_HOST_SIZE]; /* host name, null-terminated */
};

/*
 * Determines this process's locality from the kernel's files. Uses hwloc instead if those files are
 * insufficient, or if hwloc's variables (HWLOC_SYNTHETIC, HWLOC_XMLFILE, ...) replace the real
 * machine. The locality is that of the CPUs to which the process is bound. If several cores are
 * available, they are distributed over the local ranks.
 */
dist_status disti_discover(int local_rank, int local_ranks, struct disti_locality *locality_p);

/* Returns the number of CPUs that this process may use, from its affinity and cgroup quota. At
 * least 1. */
int disti_usable_cpus(void);

/*
 * True if there are more ranks than CPUs where `rank` runs. Compares the ranks of the same kernel
 * whose CPU sets overlap with its own, directly or through other ranks, with the CPUs in these
 * sets. So ranks that are bound to separate cores are not crowded. The cgroup quota is shared by
 * all ranks of a machine.
 */
bool disti_crowded(const struct disti_locality *localities, int ranks, int rank);

/*
 * If the ranks are on several machines that are containers of one kernel, returns the number of
 * CPUs of all ranks together; otherwise, or if unknown, returns 0.
 */
int disti_shared_cpus(const struct disti_locality *localities, int ranks);

/* Numbers the machines from 0 in the order of ranks, stores the number in numbered[rank].node, and
 * returns how many machines there are. */
int disti_number_nodes(const struct disti_locality *localities, int ranks,
                       struct dist_place *numbered);

/* ---- CPUs that a process may use ---- */

/*
 * Returns the cgroup quota of this process in CPUs, rounded up; 0: no limit. `membership` is a file
 * like /proc/PID/cgroup, `mounts` the directory where cgroups are mounted, such as /sys/fs/cgroup.
 * Supports both versions of cgroups, and takes the limits of all groups of the path into account.
 */
int disti_quota_cpus(const char *membership, const char *mounts);

/* ---- packages, NUMA nodes and cores, from the kernel's files ---- */

/*
 * Assigns a core to local_rank among those that overlap with the affinity `cpus` (DISTI_CPU_WORDS
 * words; all zero: any core), in order. Sets core, package and numa of *locality_p, which are
 * hwloc's logical indexes: cores are numbered over the whole machine, in the order of package, NUMA
 * node and CPU. `root` is /sys/devices/system. Returns false if the files are insufficient or there
 * are more CPUs than bits. Reads one file per core, package and node.
 */
bool disti_sysfs_locality(const char *root, const uint64_t *cpus, int local_rank, int local_ranks,
                          struct dist_place *locality_p);

#endif
