/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the machine, the CPUs and the locality of this process. */
#include "topology/discover.h"

#include <config.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"
#include "base/settings/env.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef HAVE_HWLOC
#include <hwloc.h>
#endif

/* Reads a short file as text. Returns false if it does not exist or is empty. */
static bool read_text(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, size - 1, file) : 0;

    if (file)
        fclose(file);
    text[length] = '\0';
    return length > 0;
}

/* ---- packages, NUMA nodes and cores, from the kernel's own files ---- */

#define SYSFS_CPUS (DISTI_CPU_WORDS * 64)

/* Buffer size for a list of numbers as written by the kernel, "0-3,8-11": enough for SYSFS_CPUS. */
#define SYSFS_LIST (SYSFS_CPUS * 5 + 2)

/* Allocated on the heap, since it is too large for a small stack. */
struct sysfs_machine {
    /* For each CPU, the lowest CPU of its core, package and NUMA node; -1: unknown, or no such
     * CPU. */
    int core[SYSFS_CPUS], package[SYSFS_CPUS], numa[SYSFS_CPUS];
    int cores[SYSFS_CPUS][3]; /* each core's package, NUMA node and lowest CPU */
    char path[PATH_MAX];      /* the file being read */
    char list[SYSFS_LIST], text[SYSFS_LIST];
};

/* Parses the next range of a list. Returns false at the end of the list, or if it is malformed. */
static bool sysfs_range(const char **text, int *first_p, int *last_p)
{
    char *end;
    long first = strtol(*text, &end, 10), last = first;

    if (end == *text || first < 0)
        return false;
    if (*end == '-')
        last = strtol(end + 1, &end, 10);
    if (last < first || last > INT_MAX)
        return false;
    *text = *end == ',' ? end + 1 : end;
    *first_p = (int)first;
    *last_p = (int)last;
    return true;
}

static bool sysfs_read(const char *root, const char *name, struct sysfs_machine *machine,
                       char text[SYSFS_LIST])
{
    return snprintf(machine->path, sizeof(machine->path), "%s/%s", root, name) <
               (int)sizeof(machine->path) &&
           read_text(machine->path, text, SYSFS_LIST);
}

/* Marks all CPUs of the list in a file as one group: lowest[cpu] is the group's first CPU. */
static bool sysfs_mark_file(const char *root, const char *format, int number,
                            struct sysfs_machine *machine, int *lowest)
{
    const char *list = machine->text;
    int first, last, low = -1;
    char name[64];

    snprintf(name, sizeof(name), format, number);
    if (!sysfs_read(root, name, machine, machine->text))
        return false;
    while (sysfs_range(&list, &first, &last)) {
        low = low < 0 ? first : low;
        for (int cpu = first; cpu <= last && cpu < SYSFS_CPUS; cpu++)
            lowest[cpu] = low;
    }
    return true;
}

static bool sysfs_load(const char *root, struct sysfs_machine *machine)
{
    const char *list = machine->list;
    int first, last;

    for (int cpu = 0; cpu < SYSFS_CPUS; cpu++)
        machine->core[cpu] = machine->package[cpu] = machine->numa[cpu] = -1;
    if (!sysfs_read(root, "cpu/online", machine, machine->list))
        return false;
    while (sysfs_range(&list, &first, &last)) {
        for (int cpu = first; cpu <= last; cpu++) {
            if (cpu >= SYSFS_CPUS)
                return false;
            if (machine->core[cpu] < 0 &&
                !sysfs_mark_file(root, "cpu/cpu%d/topology/thread_siblings_list", cpu, machine,
                                 machine->core))
                return false;
            if (machine->package[cpu] < 0)
                sysfs_mark_file(root, "cpu/cpu%d/topology/core_siblings_list", cpu, machine,
                                machine->package);
            if (machine->core[cpu] < 0)
                return false;
        }
    }
    list = machine->list;
    if (!sysfs_read(root, "node/online", machine, machine->list))
        return true;
    while (sysfs_range(&list, &first, &last)) {
        for (int node = first; node <= last; node++) /* some nodes have only memory */
            sysfs_mark_file(root, "node/node%d/cpulist", node, machine, machine->numa);
    }
    return true;
}

/* The order in which cores are numbered. */
static int sysfs_compare(const void *a, const void *b)
{
    const int *x = a, *y = b;

    for (int i = 0; i < 3; i++) {
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}

static bool sysfs_intersects(const struct sysfs_machine *machine, int core, const uint64_t *cpus)
{
    bool any = false;

    for (int w = 0; w < DISTI_CPU_WORDS; w++)
        any = any || cpus[w];
    for (int cpu = core; any && cpu < SYSFS_CPUS; cpu++) {
        if (machine->core[cpu] == core && (cpus[cpu / 64] >> cpu % 64 & 1))
            return true;
    }
    return !any;
}

/* Returns the number of groups before `group`; -1: unknown. */
static int32_t sysfs_number(const int *lowest, int group)
{
    int32_t number = 0;

    for (int cpu = 0; cpu < group; cpu++)
        number += lowest[cpu] == cpu;
    return group < 0 ? -1 : number;
}

/* Returns the index in 0 .. count - 1 assigned to local_rank, when `count` cores are distributed in
 * order. */
static int discover_index(int local_rank, int local_ranks, int count)
{
    int64_t turn = local_ranks > 0 ? local_rank % local_ranks : 0;

    return local_ranks > 0 ? (int)(turn * count / local_ranks) : 0;
}

bool disti_sysfs_locality(const char *root, const uint64_t *cpus, int local_rank, int local_ranks,
                          struct dist_place *locality_p)
{
    struct sysfs_machine *machine = malloc(sizeof(*machine));
    int(*cores)[3] = machine ? machine->cores : NULL, count = 0, usable = 0, mine;
    bool found = false;

    if (!machine || !sysfs_load(root, machine))
        goto out;
    for (int cpu = 0; cpu < SYSFS_CPUS; cpu++) {
        if (machine->core[cpu] != cpu)
            continue;
        cores[count][0] = machine->package[cpu];
        cores[count][1] = machine->numa[cpu];
        cores[count++][2] = cpu;
    }
    qsort(cores, (size_t)count, sizeof(*cores), sysfs_compare);
    for (int i = 0; i < count; i++)
        usable += sysfs_intersects(machine, cores[i][2], cpus);
    mine = discover_index(local_rank, local_ranks, usable);
    for (int i = 0; i < count && !found; i++) {
        if (!sysfs_intersects(machine, cores[i][2], cpus) || mine-- > 0)
            continue;
        locality_p->core = i;
        locality_p->package = sysfs_number(machine->package, cores[i][0]);
        locality_p->numa = sysfs_number(machine->numa, cores[i][1]);
        found = true;
    }
out:
    free(machine);
    return found;
}

/* ---- number of CPUs that this process may use ---- */

#define CPUS_TEXT 128 /* buffer size for the text of a cgroup file */

/* Allocated on the heap, since it is too large for a small stack. */
struct cpus_paths {
    char line[PATH_MAX + 256]; /* a line of the membership file */
    char mount[PATH_MAX], folder[PATH_MAX], file[PATH_MAX];
};

static bool cpus_read(struct cpus_paths *paths, const char *folder, const char *name,
                      char text[CPUS_TEXT])
{
    return snprintf(paths->file, sizeof(paths->file), "%s/%s", folder, name) <
               (int)sizeof(paths->file) &&
           read_text(paths->file, text, CPUS_TEXT);
}

/* Returns the quota of one group in CPUs; 0: no limit. Version 2 of cgroups has one file, "max
 * 100000" or "150000 100000". Version 1 has two files, where quota -1 means no limit. */
static int cpus_of_group(struct cpus_paths *paths, const char *folder, int version)
{
    char text[CPUS_TEXT], other[CPUS_TEXT];
    long long quota = 0, period = 0, cpus;

    if (version == 2 && cpus_read(paths, folder, "cpu.max", text) &&
        sscanf(text, "%lld %lld", &quota, &period) != 2)
        return 0;
    if (version == 1 && cpus_read(paths, folder, "cpu.cfs_quota_us", text) &&
        cpus_read(paths, folder, "cpu.cfs_period_us", other)) {
        quota = atoll(text);
        period = atoll(other);
    }
    if (quota <= 0 || period <= 0)
        return 0;
    cpus = quota / period + (quota % period != 0);
    return cpus > INT_MAX ? INT_MAX : (int)cpus;
}

/* Returns the lower of two limits, where 0 means no limit. */
static int cpus_minimum(int a, int b)
{
    if (a == 0 || b == 0)
        return a + b;
    return a < b ? a : b;
}

/*
 * Returns the tightest quota of the group and all groups above it. Inside a container the group's
 * path may not exist; then only the top is read.
 */
static int cpus_of_path(struct cpus_paths *paths, const char *mount, const char *group, int version)
{
    char *folder = paths->folder;
    size_t top = strlen(mount);
    int cpus = 0;
    if (snprintf(folder, sizeof(paths->folder), "%s%s", mount, group) >= (int)sizeof(paths->folder))
        return cpus_of_group(paths, mount, version);
    for (;;) {
        cpus = cpus_minimum(cpus, cpus_of_group(paths, folder, version));
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= top || !slash)
            return cpus;
        *slash = '\0';
    }
}

int disti_quota_cpus(const char *membership, const char *mounts)
{
    struct cpus_paths *paths = malloc(sizeof(*paths));
    int cpus = 0;
    FILE *file = fopen(membership, "re");
    while (file && paths && fgets(paths->line, sizeof(paths->line), file)) {
        char *controllers, *group;
        if (!disti_cgroup_split(paths->line, &controllers, &group))
            continue;
        /* Version 2 has hierarchy 0 and no controllers. */
        if (strcmp(paths->line, "0") == 0 && !*controllers)
            cpus = cpus_minimum(cpus, cpus_of_path(paths, mounts, group, 2));
        else if (disti_cgroup_controls(controllers, "cpu") &&
                 snprintf(paths->mount, sizeof(paths->mount), "%s/cpu", mounts) <
                     (int)sizeof(paths->mount))
            cpus = cpus_minimum(cpus, cpus_of_path(paths, paths->mount, group, 1));
    }
    if (file)
        fclose(file);
    free(paths);
    return cpus;
}

/*
 * Returns the number of CPUs in the affinity mask, or 0 if unknown, and sets their bits in words[],
 * modulo the number of bits there. Enlarges the mask until the kernel's mask fits.
 */
static int cpus_of_affinity(uint64_t *words, int word_count)
{
    for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
        cpu_set_t *set = CPU_ALLOC(bits);
        size_t size = CPU_ALLOC_SIZE(bits);
        if (!set)
            return 0;
        int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
        for (int cpu = 0; count > 0 && word_count && cpu < bits; cpu++) {
            if (CPU_ISSET_S((size_t)cpu, size, set))
                words[cpu / 64 % word_count] |= UINT64_C(1) << cpu % 64;
        }
        CPU_FREE(set);
        if (count > 0)
            return count;
    }
    return 0;
}

int disti_usable_cpus(void)
{
    /* Opening each group needs the quota, so the many files of the cgroup are read only once. */
    static atomic_int known = -1;
    int quota = atomic_load(&known);

    if (quota < 0) {
        quota = disti_quota_cpus(DISTI_PROCESS_OWN "/cgroup", "/sys/fs/cgroup");
        atomic_store(&known, quota);
    }
    int cpus = cpus_minimum(cpus_of_affinity(NULL, 0), quota);
    return cpus > 0 ? cpus : 1;
}

/* ---- the machine, and the locality in it ---- */

/* Returns a hash that identifies the namespace; 0: unknown. */
static uint64_t discover_namespace(uint64_t kernel, const char *path)
{
    struct stat space;

    if (stat(path, &space) != 0)
        return 0;
    return disti_hash_bytes(disti_hash_bytes(kernel, &space.st_dev, sizeof(space.st_dev)),
                            &space.st_ino, sizeof(space.st_ino));
}

#ifdef HAVE_HWLOC

static void discover_by_hwloc(int local_rank, int local_ranks, struct dist_place *locality)
{
    hwloc_topology_t topology;
    bool loaded = hwloc_topology_init(&topology) == 0;
    if (loaded) {
        /*
         * Load only the object types of a locality, since loading all types would take much longer.
         * Keep groups, because NUMA nodes are attached to them.
         */
        hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_NONE);
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_PACKAGE, HWLOC_TYPE_FILTER_KEEP_ALL);
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
        hwloc_topology_set_type_filter(topology, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
        loaded = hwloc_topology_load(topology) == 0;
        if (!loaded)
            hwloc_topology_destroy(topology);
    }
    if (!loaded) {
        disti_warn("hwloc cannot read this machine's topology: ranks are ordered by number only");
        return;
    }
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus) {
        /* The CPUs on which this process may run; all CPUs if the topology is not this
         * machine's. */
        hwloc_const_bitmap_t all = hwloc_topology_get_topology_cpuset(topology);
        if (!hwloc_topology_is_thissystem(topology) ||
            hwloc_get_cpubind(topology, cpus, HWLOC_CPUBIND_PROCESS) != 0 ||
            !hwloc_bitmap_intersects(cpus, all))
            hwloc_bitmap_copy(cpus, all);
        else
            hwloc_bitmap_and(cpus, cpus, all);
        /* This rank's share of the cores, or of the hardware threads if no cores are known. */
        hwloc_obj_type_t types[] = {HWLOC_OBJ_CORE, HWLOC_OBJ_PU};
        hwloc_obj_t core = NULL, o = NULL;
        for (int i = 0; i < 2 && !core; i++) {
            int count = 0, mine;
            while ((o = hwloc_get_next_obj_covering_cpuset_by_type(topology, cpus, types[i], o)))
                count++;
            mine = discover_index(local_rank, local_ranks, count);
            while (mine-- >= 0 && count)
                core = hwloc_get_next_obj_covering_cpuset_by_type(topology, cpus, types[i], core);
        }
        if (core) {
            hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, core);
            /* NUMA nodes are not part of the tree, so they are found by their CPUs. */
            hwloc_obj_t numa = hwloc_get_next_obj_covering_cpuset_by_type(topology, core->cpuset,
                                                                          HWLOC_OBJ_NUMANODE, NULL);
            locality->core = (int32_t)core->logical_index;
            locality->package = package ? (int32_t)package->logical_index : -1;
            locality->numa = numa ? (int32_t)numa->logical_index : -1;
        }
    }
    hwloc_bitmap_free(cpus);
    hwloc_topology_destroy(topology);
}

#else

/* Without hwloc only the number of CPUs is known. */
static void discover_by_hwloc(int local_rank, int local_ranks, struct dist_place *locality)
{
    locality->core = discover_index(local_rank, local_ranks, disti_usable_cpus());
}

#endif

dist_status disti_discover(int local_rank, int local_ranks, struct disti_locality *locality_p)
{
    struct disti_locality locality;
    /* If one of these variables is set, hwloc's topology differs from the kernel's. */
    static const char *const names[] = {"HWLOC_SYNTHETIC", "HWLOC_XMLFILE", "HWLOC_FSROOT",
                                        "HWLOC_COMPONENTS", "HWLOC_CPUID_PATH"};
    char boot[64];
    bool replaced = false;
    /* Zero the padding too, since it is sent to the other ranks. */
    memset(&locality, 0, sizeof(locality));
    locality.place = (struct dist_place){-1, -1, -1, -1, -1};
    disti_host_name(locality.host);
    /* The boot id identifies the kernel, and with it the CPUs and the memory. */
    locality.kernel = disti_hash_text(
        DISTI_HASH_START,
        read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot)) ? boot : locality.host);
    /* The machine includes the network namespace: two containers that cannot reach each other's
     * sockets must not count as one machine. */
    locality.machine = discover_namespace(locality.kernel, DISTI_PROCESS_OWN "/ns/net");
    if (!locality.machine)
        locality.machine = locality.kernel;
    locality.processes = discover_namespace(locality.kernel, DISTI_PROCESS_OWN "/ns/pid");
    locality.quota_cpus = disti_quota_cpus(DISTI_PROCESS_OWN "/cgroup", "/sys/fs/cgroup");
    int cpus = cpus_minimum(cpus_of_affinity(locality.cpus, DISTI_CPU_WORDS), locality.quota_cpus);
    locality.usable_cpus = cpus > 0 ? cpus : 1;
    locality.pid = getpid();
    /* The kernel's files are preferred: hwloc loads plugins, which takes 256 KiB and most of the
     * start-up time. */
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        replaced = replaced || disti_env(names[i]);
    if (replaced || !disti_sysfs_locality("/sys/devices/system", locality.cpus, local_rank,
                                          local_ranks, &locality.place))
        discover_by_hwloc(local_rank, local_ranks, &locality.place);
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
