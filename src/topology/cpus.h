/* SPDX-License-Identifier: BSD-3-Clause */
/* CPUs that a process is allowed: the parts, for tests. */
#ifndef DISTI_TOPOLOGY_CPUS_H
#define DISTI_TOPOLOGY_CPUS_H

#include <stdint.h>

/*
 * CPUs' worth of time that the cgroups let this process have, rounded up; 0: no limit. membership
 * is a file like /proc/PID/cgroup, mounts the folder where cgroups are mounted, as
 * /sys/fs/cgroup: both versions of cgroups, each group of the path up to the top counts.
 */
int disti_quota_cpus(const char *membership, const char *mounts);

/* The affinity's CPUs, or the quota if that is fewer; at least 1. */
int disti_usable_within(int quota);

/* The affinity as a mask; machines with more CPUs than bits fold over. All zero: unknown. */
void disti_affinity(uint64_t *words, int count);

#endif
