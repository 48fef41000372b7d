/* SPDX-License-Identifier: BSD-3-Clause */
/* Divides a machine among the workers, by hwloc. */
#include "launch/workers/binding.h"

#include "base/log.h"
#include "topology/discover.h"

#include <config.h>
#include <stdlib.h>
#include <string.h>

int disti_run_binding_part(int local_rank, int workers, int parts)
{
    return (int)((long long)local_rank * parts / workers);
}

void disti_run_binding_release(struct disti_run_binding *binding)
{
    free(binding->cpus);
    binding->cpus = NULL;
}

#ifdef HAVE_HWLOC
#include <hwloc.h>

/* What --numa-binding names, as hwloc does. */
static const struct binding_mode {
    const char *name;
    hwloc_obj_type_t type;
} binding_modes[] = {{"node", HWLOC_OBJ_NUMANODE},
                     {"socket", HWLOC_OBJ_PACKAGE},
                     {"core-complex", HWLOC_OBJ_L3CACHE},
                     {"exclusive", HWLOC_OBJ_CORE}};

/* The machine, and the CPUs of it that this process may use. */
struct binding_machine {
    hwloc_topology_t topology;
    hwloc_bitmap_t usable;
};

static bool binding_open(struct binding_machine *machine)
{
    machine->usable = hwloc_bitmap_alloc();
    if (!machine->usable || hwloc_topology_init(&machine->topology) != 0) {
        hwloc_bitmap_free(machine->usable);
        return false;
    }
    if (hwloc_topology_load(machine->topology) == 0) {
        if (hwloc_get_cpubind(machine->topology, machine->usable, HWLOC_CPUBIND_PROCESS) != 0)
            hwloc_bitmap_copy(machine->usable,
                              hwloc_topology_get_allowed_cpuset(machine->topology));
        return true;
    }
    hwloc_topology_destroy(machine->topology);
    hwloc_bitmap_free(machine->usable);
    return false;
}

static void binding_close(struct binding_machine *machine)
{
    hwloc_topology_destroy(machine->topology);
    hwloc_bitmap_free(machine->usable);
}

/* The index-th part of that type that has a usable CPU; NULL: there are no more. */
static hwloc_obj_t binding_part(const struct binding_machine *machine, hwloc_obj_type_t type,
                                int index)
{
    hwloc_obj_t part = NULL;

    while ((part = hwloc_get_next_obj_by_type(machine->topology, type, part))) {
        if (hwloc_bitmap_intersects(part->cpuset, machine->usable) && index-- == 0)
            return part;
    }
    return NULL;
}

static int binding_parts(const struct binding_machine *machine, hwloc_obj_type_t type)
{
    int count = 0;

    while (binding_part(machine, type, count))
        count++;
    return count;
}

static void binding_add(const struct binding_machine *machine, hwloc_obj_t part,
                        struct disti_run_cpus *cpus)
{
    const unsigned bits = 8 * sizeof(cpus->words[0]);
    unsigned cpu;

    hwloc_bitmap_foreach_begin(cpu, part->cpuset) if (cpu < DISTI_RUN_CPUS &&
                                                      hwloc_bitmap_isset(machine->usable, cpu))
        cpus->words[cpu / bits] |= 1ul << cpu % bits;
    hwloc_bitmap_foreach_end();
}

/* A part for each worker, shared if they are more; or several cores each, shared by nobody. */
static void binding_divide(const struct binding_machine *machine, const struct binding_mode *mode,
                           int parts, struct disti_run_binding *binding)
{
    for (int w = 0; w < binding->workers; w++) {
        const int first = disti_run_binding_part(w, binding->workers, parts);
        int behind = first + 1;

        if (mode->type == HWLOC_OBJ_CORE)
            behind = disti_run_binding_part(w + 1, binding->workers, parts);
        for (int p = first; p < behind; p++)
            binding_add(machine, binding_part(machine, mode->type, p), &binding->cpus[w]);
    }
    binding->mode = mode->name;
}

static dist_status binding_apply(const struct binding_machine *machine,
                                 const struct binding_mode *mode, struct disti_run_binding *binding)
{
    const int parts = binding_parts(machine, mode->type);

    if (parts == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--numa-binding: this machine shows no parts to bind to by %s: give "
                          "another, or none",
                          mode->name);
    if (mode->type == HWLOC_OBJ_CORE && parts < binding->workers)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "--numa-binding: %d workers cannot have a core each: %d are usable here; "
                          "start fewer, or give node",
                          binding->workers, parts);
    binding->cpus = calloc((size_t)binding->workers, sizeof(*binding->cpus));
    if (!binding->cpus)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the CPUs of %d workers: start fewer",
                          binding->workers);
    binding_divide(machine, mode, parts, binding);
    return DIST_OK;
}

static dist_status binding_choose(const char *mode, struct disti_run_binding *binding)
{
    struct binding_machine machine;
    dist_status status = DIST_OK;
    int parts;

    if (!binding_open(&machine))
        return mode ? disti_fail(DIST_ERR_SYSTEM, "--numa-binding: hwloc cannot see this machine: "
                                                  "give none")
                    : DIST_OK;
    parts = binding_parts(&machine, HWLOC_OBJ_NUMANODE);
    if (!mode && parts > 1 && binding->workers >= parts)
        mode = "node";
    for (size_t i = 0; mode && i < sizeof(binding_modes) / sizeof(binding_modes[0]); i++) {
        if (strcmp(mode, binding_modes[i].name) == 0)
            status = binding_apply(&machine, &binding_modes[i], binding);
    }
    binding_close(&machine);
    return status;
}

#else

static dist_status binding_choose(const char *mode, struct disti_run_binding *binding)
{
    (void)binding;
    return mode ? disti_fail(DIST_ERR_UNSUPPORTED, "--numa-binding needs hwloc, without which "
                                                   "this program was built: give none")
                : DIST_OK;
}

#endif

dist_status disti_run_binding_make(const char *mode, int workers,
                                   struct disti_run_binding *binding_p)
{
    dist_status status = DIST_OK;

    *binding_p = (struct disti_run_binding){
        .mode = "none", .workers = workers, .usable = disti_usable_cpus()};
    binding_p->threads = binding_p->usable / workers;
    if (binding_p->threads < 1)
        binding_p->threads = 1;
    if (!mode || strcmp(mode, "none") != 0)
        status = binding_choose(mode, binding_p);
    return status;
}
