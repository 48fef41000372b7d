/* SPDX-License-Identifier: BSD-3-Clause */
/* The PID namespace of this process, which decides whom a pid names. */
#include "base/process/space.h"

#include "base/process/own.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

uint32_t disti_process_space(void)
{
    struct stat space;

    return stat(DISTI_PROCESS_OWN "/ns/pid", &space) == 0 ? (uint32_t)space.st_ino : 0;
}

/* The link /proc/self has the pid that this process has in the namespace of /proc. */
bool disti_process_proc_is_own(void)
{
    char pid[16];
    const ssize_t length = readlink("/proc/self", pid, sizeof(pid) - 1);

    if (length <= 0)
        return false;
    pid[length] = '\0';
    return atoi(pid) == getpid();
}

const char *disti_process_elsewhere(uint32_t space)
{
    return space && space != disti_process_space() ? " in another PID namespace" : "";
}
