/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the launcher's process by what /proc says of those above this one. */
#include "rendezvous/launchers/process.h"

#include "base/descriptor.h"
#include "base/process/space.h"
#include "base/settings/env.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROCESS_INIT = 1, PROCESS_ABOVE = 64 /* looked at, at most */ };

static FILE *process_open(int pid, const char *what)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
    return fopen(path, "re");
}

/* Was it started with that variable, set to that? One that another user has started is no rank of
 * ours. */
static bool process_has(int pid, const char *variable, const char *value)
{
    const size_t length = strlen(variable);
    FILE *file = process_open(pid, "environ");
    char *entry = NULL;
    size_t room = 0;
    bool found = false;

    if (!file)
        return errno != EACCES;
    while (!found && getdelim(&entry, &room, '\0', file) > 0)
        found = strncmp(entry, variable, length) == 0 && entry[length] == '=' &&
                strcmp(entry + length + 1, value) == 0;
    free(entry);
    fclose(file);
    return found;
}

/* "PID (NAME) STATE PARENT ..."; the name may have blanks and brackets in it. 0: not known. */
static int process_parent(int pid, char name[DISTI_PROCESS_NAME])
{
    FILE *file = process_open(pid, "stat");
    char text[256] = "", *begin, *end;
    int parent = 0;

    if (!file)
        return 0;
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    fclose(file);
    begin = strchr(text, '(');
    end = strrchr(text, ')');
    if (!begin || !end || sscanf(end + 1, " %*c %d", &parent) != 1)
        return 0;
    snprintf(name, DISTI_PROCESS_NAME, "%.*s", (int)(end - begin - 1), begin + 1);
    return parent;
}

int disti_launcher_process(const char *variable, int *pid_p, char name[DISTI_PROCESS_NAME])
{
    const char *value = disti_env(variable);
    int pid = getppid(), fd;

    if (!disti_process_proc_is_own())
        return -1;
    for (int above = 0; value && pid > PROCESS_INIT && above < PROCESS_ABOVE; above++) {
        const bool is_below = process_has(pid, variable, value);
        const int parent = process_parent(pid, name);

        if (is_below) {
            pid = parent;
            continue;
        }
        fd = disti_descriptor_own((int)syscall(SYS_pidfd_open, pid, 0));
        *pid_p = pid;
        return fd;
    }
    return -1;
}
