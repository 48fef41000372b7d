/* SPDX-License-Identifier: BSD-3-Clause */
/* This machine: its packages, NUMA nodes, cores and GPUs, by hwloc. */
#include "topology.h"

#include <config.h>
#include <string.h>
#include <unistd.h>

struct topology_part topology_part_at(const struct topology_machine *machine, int core)
{
    struct topology_part part = {machine->core[core].package, machine->core[core].numa, core, 0};

    while (core < machine->cores && machine->core[core].package == part.package &&
           machine->core[core].numa == part.numa)
        core++;
    part.cores = core - part.first;
    return part;
}

bool topology_part_has_gpu(const struct topology_machine *machine, const struct topology_part *part,
                           int gpu)
{
    const struct topology_gpu *of = &machine->gpu[gpu];

    return of->numa >= 0 && of->numa == part->numa &&
           (of->package < 0 || of->package == part->package);
}

#ifdef HAVE_HWLOC
#include <hwloc.h>

static int machine_above(hwloc_topology_t hwloc, hwloc_obj_type_t type, hwloc_obj_t object)
{
    hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(hwloc, type, object);

    return above ? (int)above->logical_index : -1;
}

/* NUMA nodes hang beside the tree: the first that shares CPUs. */
static int machine_numa(hwloc_topology_t hwloc, hwloc_const_cpuset_t cpus)
{
    hwloc_obj_t numa = NULL;

    while (cpus && (numa = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, numa))) {
        if (hwloc_bitmap_intersects(numa->cpuset, cpus))
            return (int)numa->logical_index;
    }
    return -1;
}

/* The cores, or the hardware threads where the machine tells of no cores. */
static void machine_cores(hwloc_topology_t hwloc, struct topology_machine *machine)
{
    const bool cores = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE) > 0;
    hwloc_obj_t core = NULL;

    while (
        (core = hwloc_get_next_obj_by_type(hwloc, cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU, core)) &&
        machine->cores < TOPOLOGY_CORES)
        machine->core[machine->cores++] = (struct topology_core){
            (int16_t)machine_above(hwloc, HWLOC_OBJ_PACKAGE, core),
            (int16_t)machine_numa(hwloc, core->cpuset), (int16_t)hwloc_bitmap_weight(core->cpuset)};
}

/* What computes and displays nothing, or displays and is of a maker of GPUs. */
static bool machine_is_gpu(hwloc_obj_t device)
{
    enum { MACHINE_NVIDIA = 0x10de, MACHINE_AMD = 0x1002 };
    const unsigned vendor = device->attr->pcidev.vendor_id;

    return device->attr->pcidev.class_id >> 8 == 0x03 &&
           (vendor == MACHINE_NVIDIA || vendor == MACHINE_AMD);
}

static void machine_gpus(hwloc_topology_t hwloc, struct topology_machine *machine)
{
    hwloc_obj_t device = NULL, host;

    while ((device = hwloc_get_next_pcidev(hwloc, device)) && machine->gpus < TOPOLOGY_GPUS) {
        struct topology_gpu *gpu = &machine->gpu[machine->gpus];

        if (!machine_is_gpu(device))
            continue;
        host = hwloc_get_non_io_ancestor_obj(hwloc, device);
        gpu->package = host->type == HWLOC_OBJ_PACKAGE
                           ? (int16_t)host->logical_index
                           : (int16_t)machine_above(hwloc, HWLOC_OBJ_PACKAGE, host);
        gpu->numa = host->type == HWLOC_OBJ_MACHINE &&
                            hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_NUMANODE) > 1
                        ? -1
                        : (int16_t)machine_numa(hwloc, host->cpuset);
        snprintf(gpu->name, sizeof(gpu->name), "%s", device->name ? device->name : "");
        machine->gpus++;
    }
}

static void machine_by_hwloc(struct topology_machine *machine)
{
    hwloc_topology_t hwloc;

    if (hwloc_topology_init(&hwloc) != 0)
        return;
    hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
    if (hwloc_topology_load(hwloc) == 0) {
        machine_cores(hwloc, machine);
        machine_gpus(hwloc, machine);
    }
    hwloc_topology_destroy(hwloc);
}
#else
static void machine_by_hwloc(struct topology_machine *machine)
{
    machine->cores = 0;
}
#endif

void topology_discover(struct topology_machine *machine)
{
    memset(machine, 0, sizeof(*machine));
    gethostname(machine->host, sizeof(machine->host));
    machine_by_hwloc(machine);
    if (machine->cores)
        return;
    /* All that is known is how many CPUs there are. */
    machine->cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    machine->cores = machine->cores > TOPOLOGY_CORES ? TOPOLOGY_CORES : machine->cores;
    for (int i = 0; i < machine->cores; i++)
        machine->core[i] = (struct topology_core){-1, -1, 1};
}
