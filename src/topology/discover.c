/* SPDX-License-Identifier: BSD-3-Clause */
/* Where this process runs: its machine, its CPUs, its locality among them. */
#include "topology/discover.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/process/own.h"
#include "base/settings/config.h"
#include "topology/cpus.h"
#include "topology/sysfs.h"

#include <config.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

/* The kernel's boot: stands for the CPUs and the memory. */
static uint64_t discover_kernel(const char *host)
{
    uint64_t hash = DISTI_HASH_START;
    char boot[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? -1 : read(fd, boot, sizeof(boot));
    if (fd >= 0)
        close(fd);
    if (length > 0)
        return disti_hash_bytes(hash, boot, (size_t)length);
    return disti_hash_text(hash, host);
}

/* 0: the namespace is not known. */
static uint64_t discover_namespace(uint64_t kernel, const char *path)
{
    struct stat space;

    if (stat(path, &space) != 0)
        return 0;
    return disti_hash_bytes(disti_hash_bytes(kernel, &space.st_dev, sizeof(space.st_dev)),
                            &space.st_ino, sizeof(space.st_ino));
}

/*
 * The kernel and, for the network, the network namespace: two containers of one machine that cannot
 * reach each other's sockets must not take each other for neighbours.
 */
static uint64_t discover_machine(uint64_t kernel)
{
    const uint64_t hash = discover_namespace(kernel, DISTI_PROCESS_OWN "/ns/net");

    return hash ? hash : kernel;
}

#ifdef HAVE_HWLOC

/* Only what a locality is made of, the rest would cost most of the time; groups carry NUMA nodes.
 */
static bool discover_load(hwloc_topology_t *topology_p)
{
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return false;
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
    if (hwloc_topology_load(topology) == 0) {
        *topology_p = topology;
        return true;
    }
    hwloc_topology_destroy(topology);
    return false;
}

/* The CPUs this process may run on; of a machine that is only described: all. */
static void discover_bound(hwloc_topology_t topology, hwloc_bitmap_t cpus)
{
    hwloc_const_bitmap_t all = hwloc_topology_get_topology_cpuset(topology);
    if (!hwloc_topology_is_thissystem(topology) ||
        hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_PROCESS) != 0 ||
        !hwloc_bitmap_intersects(cpus, all))
        hwloc_bitmap_copy(cpus, all);
    else
        hwloc_bitmap_and(cpus, cpus, all);
}

/* The object of that type above obj, by number; -1: there is none. */
static int32_t discover_above(hwloc_topology_t topology, hwloc_obj_type_t type, hwloc_obj_t obj)
{
    hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(topology, type, obj);
    return above ? (int32_t)above->logical_index : -1;
}

/* NUMA nodes hang beside the tree, so they are found by their CPUs. */
static int32_t discover_numa(hwloc_topology_t topology, hwloc_obj_t obj)
{
    hwloc_obj_t numa = NULL;
    while ((numa = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, numa)))
        if (hwloc_bitmap_intersects(numa->cpuset, obj->cpuset))
            return (int32_t)numa->logical_index;
    return -1;
}

/* This rank's share of the cores; of the hardware threads, if the machine tells of no cores. */
static hwloc_obj_t discover_core(hwloc_topology_t topology, hwloc_const_bitmap_t cpus,
                                 int local_rank, int local_ranks)
{
    hwloc_obj_type_t types[] = {HWLOC_OBJ_CORE, HWLOC_OBJ_PU};
    hwloc_obj_t core = NULL;
    for (int i = 0; i < 2 && !core; i++) {
        int count = 0, mine = 0;
        for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(topology, types[i], o));)
            count += hwloc_bitmap_intersects(o->cpuset, cpus);
        mine = disti_share(local_rank, local_ranks, count);
        for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(topology, types[i], o));)
            if (hwloc_bitmap_intersects(o->cpuset, cpus) && mine-- == 0)
                core = o;
    }
    return core;
}

static void discover_by_hwloc(int local_rank, int local_ranks, struct dist_place *locality)
{
    hwloc_topology_t topology;
    if (!discover_load(&topology)) {
        disti_warn("hwloc cannot read this machine's topology: ranks are ordered by number alone");
        return;
    }
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus) {
        discover_bound(topology, cpus);
        hwloc_obj_t core = discover_core(topology, cpus, local_rank, local_ranks);
        if (core) {
            locality->core = (int32_t)core->logical_index;
            locality->package = discover_above(topology, HWLOC_OBJ_PACKAGE, core);
            locality->numa = discover_numa(topology, core);
        }
    }
    hwloc_bitmap_free(cpus);
    hwloc_topology_destroy(topology);
}

#else

/* Without hwloc all that is known is how many CPUs there are. */
static void discover_by_hwloc(int local_rank, int local_ranks, struct dist_place *locality)
{
    locality->core = disti_share(local_rank, local_ranks, disti_usable_cpus());
}

#endif

/* Does the environment tell hwloc where to look? Then the machine is not what the kernel says. */
static bool discover_is_told(void)
{
    static const char *const names[] = {"HWLOC_SYNTHETIC", "HWLOC_XMLFILE", "HWLOC_FSROOT",
                                        "HWLOC_COMPONENTS", "HWLOC_CPUID_PATH"};
    bool told = false;

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        told = told || disti_env(names[i]);
    return told;
}

/* The kernel's files first: hwloc loads its plugins, a quarter of MiB and two thirds of a start. */
static void discover_locality(const struct disti_locality *mine, int local_rank, int local_ranks,
                              struct dist_place *locality)
{
    if (discover_is_told() ||
        !disti_sysfs_locality("/sys/devices/system", mine->cpus, local_rank, local_ranks, locality))
        discover_by_hwloc(local_rank, local_ranks, locality);
}

dist_status disti_discover(int local_rank, int local_ranks, struct disti_locality *locality_p)
{
    struct disti_locality locality;
    memset(&locality, 0, sizeof(locality)); /* padding too: it goes to the other ranks */
    locality.place = (struct dist_place){-1, -1, -1, -1, -1};
    disti_host_name(locality.host);
    locality.kernel = discover_kernel(locality.host);
    locality.machine = discover_machine(locality.kernel);
    locality.processes = discover_namespace(locality.kernel, DISTI_PROCESS_OWN "/ns/pid");
    locality.quota_cpus = disti_quota_cpus(DISTI_PROCESS_OWN "/cgroup", "/sys/fs/cgroup");
    locality.usable_cpus = disti_usable_within(locality.quota_cpus);
    disti_affinity(locality.cpus, DISTI_CPU_WORDS);
    locality.pid = getpid();
    discover_locality(&locality, local_rank, local_ranks, &locality.place);
    *locality_p = locality;
    return DIST_OK;
}

int disti_number_nodes(const struct disti_locality *localities, int ranks,
                       struct dist_place *numbered)
{
    int nodes = 0;
    for (int rank = 0; rank < ranks; rank++) {
        int same = 0;
        while (localities[same].machine != localities[rank].machine)
            same++;
        numbered[rank].node = same < rank ? numbered[same].node : nodes++;
    }
    return nodes;
}
