/* SPDX-License-Identifier: BSD-3-Clause */
/* How many processes the kernel's out-of-memory killer has ended. */
#include "base/process/oom.h"

#include "base/process/own.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#define OOM_BUFFER 1024

/* Reads with a buffer of the caller's: a launcher looks here for each process that was killed. */
static FILE *oom_open(const char *path, char buffer[OOM_BUFFER])
{
    FILE *file = fopen(path, "re");

    if (file)
        setvbuf(file, buffer, _IOFBF, OOM_BUFFER);
    return file;
}

/* The number in the line "oom_kill N" of a file; -1: there is none. */
static int64_t oom_read(const char *path)
{
    char buffer[OOM_BUFFER], line[128];
    FILE *file = oom_open(path, buffer);
    int64_t kills = -1;

    while (file && kills < 0 && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "oom_kill %" SCNd64, &kills) != 1)
            kills = -1;
    }
    if (file)
        fclose(file);
    return kills;
}

/* Inside a container the group's own path may not be there: then the top is the group. */
static int64_t oom_of_group(const char *mounts, const char *hierarchy, const char *group,
                            const char *name)
{
    char path[PATH_MAX];
    int64_t kills = -1;

    if (snprintf(path, sizeof(path), "%s%s%s/%s", mounts, hierarchy, group, name) <
        (int)sizeof(path))
        kills = oom_read(path);
    if (kills < 0 &&
        snprintf(path, sizeof(path), "%s%s/%s", mounts, hierarchy, name) < (int)sizeof(path))
        kills = oom_read(path);
    return kills;
}

static bool oom_controls_memory(const char *controllers)
{
    for (const char *c = controllers; *c; c += strcspn(c, ","), c += *c == ',') {
        if (strncmp(c, "memory", 6) == 0 && (c[6] == ',' || c[6] == '\0'))
            return true;
    }
    return false;
}

/* A line is "hierarchy:controllers:path"; version 2 has no controllers, and is mounted at the top,
 * or beside those of version 1. */
static int64_t oom_of_line(char *line, const char *mounts)
{
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;
    int64_t kills;

    line[strcspn(line, "\n")] = '\0';
    if (!group)
        return -1;
    *controllers++ = '\0';
    *group++ = '\0';
    if (oom_controls_memory(controllers))
        return oom_of_group(mounts, "/memory", group, "memory.oom_control");
    if (*controllers)
        return -1;
    kills = oom_of_group(mounts, "", group, "memory.events");
    return kills >= 0 ? kills : oom_of_group(mounts, "/unified", group, "memory.events");
}

int64_t disti_process_oom_kills_in(const char *membership, const char *mounts, const char *vmstat)
{
    char buffer[OOM_BUFFER], line[PATH_MAX + 256];
    FILE *file = oom_open(membership, buffer);
    int64_t kills = -1;

    while (file && kills < 0 && fgets(line, sizeof(line), file))
        kills = oom_of_line(line, mounts);
    if (file)
        fclose(file);
    if (kills < 0)
        kills = oom_read(vmstat);
    return kills < 0 ? 0 : kills;
}

int64_t disti_process_oom_kills(void)
{
    return disti_process_oom_kills_in(DISTI_PROCESS_OWN "/cgroup", "/sys/fs/cgroup",
                                      "/proc/vmstat");
}

const char *disti_process_oom_text(bool killed)
{
    return killed ? ": the kernel's out-of-memory killer ended it: raise the memory limit of the "
                    "job (cgroup, container), or start fewer processes"
                  : "";
}
