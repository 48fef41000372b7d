/* SPDX-License-Identifier: BSD-3-Clause */
/* How many CPUs this process may really use. */
#include "topology/cpus.h"

#include "base/process/own.h"
#include "topology/discover.h"

#include <limits.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads a short file as text. False: it is not there. */
static bool cpus_read(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t length = fread(text, 1, size - 1, file);
    fclose(file);
    text[length] = '\0';
    return length > 0;
}

/* quota microseconds in each period, as CPUs; 0: no limit. */
static int cpus_of_quota(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return 0;
    long long cpus = quota / period + (quota % period != 0);
    return cpus > INT_MAX ? INT_MAX : (int)cpus;
}

/* Allocated, as it is too large for a small stack. */
struct cpus_paths {
    char line[PATH_MAX + 256]; /* of the membership */
    char mount[PATH_MAX], folder[PATH_MAX], file[PATH_MAX];
};

/* Version 2: cpu.max is "max 100000" or "150000 100000". */
static int cpus_of_group_2(struct cpus_paths *paths, const char *folder)
{
    char text[128];
    long long quota, period;
    if (snprintf(paths->file, sizeof(paths->file), "%s/cpu.max", folder) >=
            (int)sizeof(paths->file) ||
        !cpus_read(paths->file, text, sizeof(text)) ||
        sscanf(text, "%lld %lld", &quota, &period) != 2)
        return 0;
    return cpus_of_quota(quota, period);
}

/* Version 1: two files, quota -1 is no limit. */
static int cpus_of_group_1(struct cpus_paths *paths, const char *folder)
{
    char quota[64], period[64];
    if (snprintf(paths->file, sizeof(paths->file), "%s/cpu.cfs_quota_us", folder) >=
            (int)sizeof(paths->file) ||
        !cpus_read(paths->file, quota, sizeof(quota)))
        return 0;
    snprintf(paths->file, sizeof(paths->file), "%s/cpu.cfs_period_us", folder);
    if (!cpus_read(paths->file, period, sizeof(period)))
        return 0;
    return cpus_of_quota(atoll(quota), atoll(period));
}

/* The tighter of two limits, of which 0 is none. */
static int cpus_tighter(int a, int b)
{
    if (a == 0 || b == 0)
        return a + b;
    return a < b ? a : b;
}

/* The group and all above it. Inside a container its own path may not be there: only the top is. */
static int cpus_of_path(struct cpus_paths *paths, const char *mount, const char *group,
                        int (*limit)(struct cpus_paths *, const char *))
{
    char *folder = paths->folder;
    size_t top = strlen(mount);
    int cpus = 0;
    if (snprintf(folder, sizeof(paths->folder), "%s%s", mount, group) >= (int)sizeof(paths->folder))
        return limit(paths, mount);
    for (;;) {
        cpus = cpus_tighter(cpus, limit(paths, folder));
        char *slash = strrchr(folder, '/');
        if (strlen(folder) <= top || !slash)
            return cpus;
        *slash = '\0';
    }
}

/* Is "cpu" one of the controllers in "cpu,cpuacct"? */
static bool cpus_controls(const char *controllers)
{
    for (const char *c = controllers; *c; c += strcspn(c, ","), c += *c == ',')
        if (strncmp(c, "cpu", 3) == 0 && (c[3] == ',' || c[3] == '\0'))
            return true;
    return false;
}

/* A line is "hierarchy:controllers:path"; version 2 has the hierarchy 0 and no controllers. */
static int cpus_of_line(struct cpus_paths *paths, const char *mounts)
{
    char *line = paths->line;
    line[strcspn(line, "\n")] = '\0';
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
        return 0;
    *controllers++ = '\0';
    *group++ = '\0';
    if (strcmp(line, "0") == 0 && !*controllers)
        return cpus_of_path(paths, mounts, group, cpus_of_group_2);
    if (!cpus_controls(controllers) ||
        snprintf(paths->mount, sizeof(paths->mount), "%s/cpu", mounts) >= (int)sizeof(paths->mount))
        return 0;
    return cpus_of_path(paths, paths->mount, group, cpus_of_group_1);
}

int disti_quota_cpus(const char *membership, const char *mounts)
{
    struct cpus_paths *paths = malloc(sizeof(*paths));
    int cpus = 0;
    FILE *file = fopen(membership, "re");
    while (file && paths && fgets(paths->line, sizeof(paths->line), file))
        cpus = cpus_tighter(cpus, cpus_of_line(paths, mounts));
    if (file)
        fclose(file);
    free(paths);
    return cpus;
}

/* The set grows until the kernel's fits in. Counts the CPUs, and marks them in words. */
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

void disti_affinity(uint64_t *words, int count)
{
    memset(words, 0, (size_t)count * sizeof(*words));
    cpus_of_affinity(words, count);
}

int disti_usable_within(int quota)
{
    int cpus = cpus_tighter(cpus_of_affinity(NULL, 0), quota);
    return cpus > 0 ? cpus : 1;
}

/* The quota of this process, which is asked for with every group: its many files are read once. */
static int cpus_own_quota(void)
{
    static atomic_int known = -1;
    int cpus = atomic_load(&known);

    if (cpus < 0) {
        cpus = disti_quota_cpus(DISTI_PROCESS_OWN "/cgroup", "/sys/fs/cgroup");
        atomic_store(&known, cpus);
    }
    return cpus;
}

int disti_usable_cpus(void)
{
    return disti_usable_within(cpus_own_quota());
}
