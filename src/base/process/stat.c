/* SPDX-License-Identifier: BSD-3-Clause */
/* What the kernel has of a process of this machine and of its threads (/proc/PID/stat). */
#include "base/process/stat.h"

#include "base/process/space.h"
#include "base/thread.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Counted from the field behind the command's ")". */
#define STAT_STATE 0
#define STAT_FLAGS 6
#define STAT_EXIT_CODE 49
/* The kernel's mark of a thread that is about to end. */
#define STAT_EXITING 0x4u

/* The fields behind the command, which may hold anything. NULL: none. */
static const char *stat_read(const char *path, char *text, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length;
    char *end;

    if (fd < 0)
        return NULL;
    length = read(fd, text, size - 1);
    close(fd);
    if (length <= 0)
        return NULL;
    text[length] = '\0';
    end = strrchr(text, ')');
    return end && end[1] == ' ' ? end + 2 : NULL;
}

static const char *stat_field(const char *fields, int number)
{
    while (fields && number-- > 0) {
        fields = strchr(fields, ' ');
        fields = fields ? fields + 1 : NULL;
    }
    return fields;
}

/* False: nothing is known. There is a status from the moment that a thread begins to end. */
static bool stat_ends(const char *path, bool *ends_p, int *status_p)
{
    char text[1024];
    const char *fields = stat_read(path, text, sizeof(text));
    const char *code = stat_field(fields, STAT_EXIT_CODE);
    unsigned flags = 0;

    if (!code || sscanf(stat_field(fields, STAT_FLAGS), "%u", &flags) != 1 ||
        sscanf(code, "%d", status_p) != 1)
        return false;
    *ends_p = fields[STAT_STATE] == 'Z' || (flags & STAT_EXITING);
    return true;
}

bool disti_process_first_ends(int pid, int *status_p)
{
    char path[40];
    bool ends;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    return disti_process_proc_is_own() && stat_ends(path, &ends, status_p) && ends;
}

static bool stat_goes_on(int pid, int thread)
{
    char path[64];
    bool ends;
    int status;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, thread);
    return stat_ends(path, &ends, &status) && !ends;
}

static int stat_find(DIR *folder, int pid)
{
    const struct dirent *entry;

    while ((entry = readdir(folder))) {
        const int thread = atoi(entry->d_name);

        if (thread > 0 && thread != pid && stat_goes_on(pid, thread))
            return thread;
    }
    return 0;
}

int disti_process_thread(int pid)
{
    const int held = disti_cancel_hold(); /* a caller may have a lock */
    char path[40];
    DIR *folder;
    int found = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    folder = disti_process_proc_is_own() ? opendir(path) : NULL;
    if (folder) {
        found = stat_find(folder, pid);
        closedir(folder);
    }
    disti_cancel_let(held);
    return found;
}
