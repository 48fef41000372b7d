/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine and the job. */
#include "host.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

static void host_add(struct record_fact *facts, int *count, const char *name, const char *value)
{
    struct record_fact *fact = &facts[*count];

    if (!*value)
        return;
    *fact = (struct record_fact){.changed = false};
    snprintf(fact->name, sizeof(fact->name), "%s", name);
    snprintf(fact->value, sizeof(fact->value), "%.*s", (int)sizeof(fact->value) - 1, value);
    (*count)++;
}

/* "AMD EPYC 9B14": the first that the kernel tells of; "" where it tells of none. */
static void host_processor(char *text, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];

    text[0] = '\0';
    while (file && fgets(line, sizeof(line), file) && !*text) {
        const char *at = strchr(line, ':');

        if (at && strncmp(line, "model name", 10) == 0)
            snprintf(text, size, "%.*s", (int)strcspn(at + 2, "\n"), at + 2);
    }
    if (file)
        fclose(file);
}

static int host_cpus(void)
{
    cpu_set_t set;

    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 0;
}

static void host_machine(struct record_fact *facts, int *count)
{
    struct utsname name;
    struct sysinfo info;
    char text[256];

    if (uname(&name) == 0)
        host_add(facts, count, "host of rank 0", name.nodename);
    host_processor(text, sizeof(text));
    host_add(facts, count, "processor", text);
    snprintf(text, sizeof(text), "%d", host_cpus());
    host_add(facts, count, "CPUs that rank 0 may use", text);
    if (sysinfo(&info) == 0) {
        snprintf(text, sizeof(text), "%.1f GiB",
                 (double)info.totalram * info.mem_unit / (1024.0 * 1024 * 1024));
        host_add(facts, count, "memory", text);
    }
    snprintf(text, sizeof(text), "%s %s, %s", name.sysname, name.release, name.machine);
    host_add(facts, count, "system", text);
}

int host_facts(dist_group *group, struct record_fact facts[HOST_FACTS])
{
    int count = 0;
    char text[256];

    host_machine(facts, &count);
    host_add(facts, &count, "libdist", dist_version());
    if (group) {
        host_add(facts, &count, "backend", dist_get_backend(group));
        snprintf(text, sizeof(text), "%d", dist_get_world_size(group));
        host_add(facts, &count, "ranks", text);
    }
    return count;
}
