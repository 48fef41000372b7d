/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine's packages, NUMA nodes and cores, from the kernel's own files. */
#include "topology/sysfs.h"

#include "topology/discover.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define SYSFS_CPUS (DISTI_CPU_WORDS * 64)

/* A list of numbers as the kernel writes it, "0-3,8-11". Longer than any for SYSFS_CPUS. */
#define SYSFS_LIST (SYSFS_CPUS * 5 + 2)

/* Allocated, as it is too large for a small stack. */
struct sysfs_machine {
    /* For each CPU the lowest one of its core, its package, its NUMA node; -1: unknown, not there.
     */
    int core[SYSFS_CPUS], package[SYSFS_CPUS], numa[SYSFS_CPUS];
    int cores[SYSFS_CPUS][3]; /* each core's package, NUMA node and lowest CPU */
    char path[PATH_MAX];      /* of the file that is read */
    char list[SYSFS_LIST], text[SYSFS_LIST];
};

static bool sysfs_read(const char *path, char text[SYSFS_LIST])
{
    FILE *file = fopen(path, "re");
    size_t length = file ? fread(text, 1, SYSFS_LIST - 1, file) : 0;

    if (file)
        fclose(file);
    text[length] = '\0';
    return length > 0;
}

/* The next range of a list. False: there is none, or nonsense. */
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

/* Says of all CPUs of a list that they belong together. */
static void sysfs_mark(const char *list, int *lowest)
{
    int first, last, low = -1;

    while (sysfs_range(&list, &first, &last)) {
        low = low < 0 ? first : low;
        for (int cpu = first; cpu <= last && cpu < SYSFS_CPUS; cpu++)
            lowest[cpu] = low;
    }
}

static bool sysfs_read_in(const char *root, const char *name, struct sysfs_machine *machine,
                          char text[SYSFS_LIST])
{
    return snprintf(machine->path, sizeof(machine->path), "%s/%s", root, name) <
               (int)sizeof(machine->path) &&
           sysfs_read(machine->path, text);
}

static bool sysfs_mark_file(const char *root, const char *format, int number,
                            struct sysfs_machine *machine, int *lowest)
{
    char name[64];

    snprintf(name, sizeof(name), format, number);
    if (!sysfs_read_in(root, name, machine, machine->text))
        return false;
    sysfs_mark(machine->text, lowest);
    return true;
}

/* One CPU, with all that share its core and its package. */
static bool sysfs_mark_cpu(const char *root, int cpu, struct sysfs_machine *machine)
{
    if (cpu >= SYSFS_CPUS)
        return false;
    if (machine->core[cpu] < 0 && !sysfs_mark_file(root, "cpu/cpu%d/topology/thread_siblings_list",
                                                   cpu, machine, machine->core))
        return false;
    if (machine->package[cpu] < 0)
        sysfs_mark_file(root, "cpu/cpu%d/topology/core_siblings_list", cpu, machine,
                        machine->package);
    return machine->core[cpu] >= 0;
}

/* Every number of the list in `file`. */
static bool sysfs_each(const char *root, const char *file, struct sysfs_machine *machine,
                       bool (*mark)(const char *root, int number, struct sysfs_machine *machine))
{
    const char *list = machine->list;
    int first, last;

    if (!sysfs_read_in(root, file, machine, machine->list))
        return false;
    while (sysfs_range(&list, &first, &last)) {
        for (int number = first; number <= last; number++) {
            if (!mark(root, number, machine))
                return false;
        }
    }
    return true;
}

/* Some have memory only. */
static bool sysfs_mark_node(const char *root, int node, struct sysfs_machine *machine)
{
    sysfs_mark_file(root, "node/node%d/cpulist", node, machine, machine->numa);
    return true;
}

static bool sysfs_load(const char *root, struct sysfs_machine *machine)
{
    for (int cpu = 0; cpu < SYSFS_CPUS; cpu++)
        machine->core[cpu] = machine->package[cpu] = machine->numa[cpu] = -1;
    if (!sysfs_each(root, "cpu/online", machine, sysfs_mark_cpu))
        return false;
    sysfs_each(root, "node/online", machine, sysfs_mark_node);
    return true;
}

/* A core's index among all. */
static int sysfs_compare(const void *a, const void *b)
{
    const int *x = a, *y = b;

    for (int i = 0; i < 3; i++) {
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}

/* Lists the cores in order: package, NUMA node, lowest CPU. Returns how many there are. */
static int sysfs_cores(struct sysfs_machine *machine)
{
    int(*cores)[3] = machine->cores, count = 0;

    for (int cpu = 0; cpu < SYSFS_CPUS; cpu++) {
        if (machine->core[cpu] != cpu)
            continue;
        cores[count][0] = machine->package[cpu];
        cores[count][1] = machine->numa[cpu];
        cores[count++][2] = cpu;
    }
    qsort(cores, (size_t)count, sizeof(*cores), sysfs_compare);
    return count;
}

static bool sysfs_meets(const struct sysfs_machine *machine, int core, const uint64_t *cpus)
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

/* How many groups come before that one; -1: it is unknown. */
static int32_t sysfs_number(const int *lowest, int group)
{
    int32_t number = 0;

    for (int cpu = 0; cpu < group; cpu++)
        number += lowest[cpu] == cpu;
    return group < 0 ? -1 : number;
}

int disti_share(int local_rank, int local_ranks, int count)
{
    int64_t turn = local_ranks > 0 ? local_rank % local_ranks : 0;

    return local_ranks > 0 ? (int)(turn * count / local_ranks) : 0;
}

static bool sysfs_place(struct sysfs_machine *machine, const uint64_t *cpus, int local_rank,
                        int local_ranks, struct dist_place *locality_p)
{
    const int(*cores)[3] = (const int(*)[3])machine->cores;
    int count = sysfs_cores(machine), usable = 0, mine;

    for (int i = 0; i < count; i++)
        usable += sysfs_meets(machine, cores[i][2], cpus);
    mine = disti_share(local_rank, local_ranks, usable);
    for (int i = 0; i < count; i++) {
        if (!sysfs_meets(machine, cores[i][2], cpus) || mine-- > 0)
            continue;
        locality_p->core = i;
        locality_p->package = sysfs_number(machine->package, cores[i][0]);
        locality_p->numa = sysfs_number(machine->numa, cores[i][1]);
        return true;
    }
    return false;
}

bool disti_sysfs_locality(const char *root, const uint64_t *cpus, int local_rank, int local_ranks,
                          struct dist_place *locality_p)
{
    struct sysfs_machine *machine = malloc(sizeof(*machine));
    bool found = machine && sysfs_load(root, machine) &&
                 sysfs_place(machine, cpus, local_rank, local_ranks, locality_p);

    free(machine);
    return found;
}
