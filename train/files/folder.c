/* SPDX-License-Identifier: BSD-3-Clause */
/* A folder of checkpoints. */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/common/output.h"
#include "train/failure.h"

#define FOLDER_PREFIX "step-"
#define FOLDER_ENDING ".safetensors"

bool folder_is(const char *path)
{
    const size_t length = strlen(path);
    struct stat status;

    return (length > 0 && path[length - 1] == '/') ||
           (stat(path, &status) == 0 && S_ISDIR(status.st_mode));
}

int folder_make(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : failure("%s: %s", path, strerror(errno));
}

int folder_name(const char *folder, int64_t step, char path[FOLDER_PATH])
{
    const size_t length = strlen(folder);
    const char *slash = length > 0 && folder[length - 1] == '/' ? "" : "/";
    const int size = snprintf(path, FOLDER_PATH, "%s%s" FOLDER_PREFIX "%012" PRId64 FOLDER_ENDING,
                              folder, slash, step);

    return size < FOLDER_PATH ? 0 : failure("%s: the path is too long", folder);
}

/* The step that a name says; -1: it is no such name. Behind the number comes `ending`. */
static int64_t folder_step(const char *name, const char *ending)
{
    const size_t prefix = strlen(FOLDER_PREFIX);
    char *end;
    int64_t step;

    if (strncmp(name, FOLDER_PREFIX, prefix) != 0 || name[prefix] < '0' || name[prefix] > '9')
        return -1;
    step = strtoll(name + prefix, &end, 10);
    return strcmp(end, ending) == 0 ? step : -1;
}

int64_t folder_newest(const char *folder, int64_t below)
{
    DIR *list = opendir(folder);
    const struct dirent *entry;
    int64_t newest = -1;

    if (!list) {
        failure("%s: %s", folder, strerror(errno));
        return -2;
    }
    while ((entry = readdir(list))) {
        const int64_t step = folder_step(entry->d_name, FOLDER_ENDING);

        if (step > newest && step < below)
            newest = step;
    }
    closedir(list);
    return newest;
}

/* A draft of a step's file. */
static bool folder_is_half(const char *name)
{
    char base[NAME_MAX + 1];

    snprintf(base, sizeof(base), "%.*s", (int)draft_base(name), name);
    return folder_step(base, FOLDER_ENDING) >= 0;
}

/* Those of writers that live, of whatever process, stay. */
static void folder_remove_halves(const char *folder)
{
    DIR *list = opendir(folder);
    const struct dirent *entry;

    while (list && (entry = readdir(list))) {
        if (folder_is_half(entry->d_name))
            draft_remove_dead(list, entry->d_name);
    }
    if (list)
        closedir(list);
}

void folder_prune(const char *path, int keep)
{
    const char *slash = strrchr(path, '/');
    char folder[FOLDER_PATH], old[FOLDER_PATH];
    int64_t step;

    snprintf(folder, sizeof(folder), "%.*s", (int)(slash + 1 - path), path);
    folder_remove_halves(folder);
    step = folder_step(slash + 1, FOLDER_ENDING) + 1;
    for (int kept = 0; (step = folder_newest(folder, step)) >= 0; kept++) {
        if (kept >= keep && folder_name(folder, step, old) == 0)
            unlink(old);
    }
}
