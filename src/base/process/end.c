/* SPDX-License-Identifier: BSD-3-Clause */
/* How a process ended, by what the kernel still has of it. */
#include "base/process/end.h"

#include "base/host_name.h"
#include "base/process/signal_name.h"
#include "base/process/space.h"
#include "base/process/stat.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* Its first thread may end while others go on. Those end before their connections close. */
static bool process_ends(int pid, int *status_p)
{
    return disti_process_first_ends(pid, status_p) && !disti_process_thread(pid);
}

const char *disti_process_end(const char *host, uint32_t space, int pid, char *text, size_t size)
{
    const char *name;
    char own[DISTI_HOST_SIZE];
    int status;

    disti_host_name(own);
    if (strcmp(host, own) != 0 || space != disti_process_space() || !process_ends(pid, &status))
        return "closed its connection without leaving the job";
    if (WIFSIGNALED(status)) {
        name = disti_signal_name(WTERMSIG(status));
        snprintf(text, size, "was killed by signal %d (SIG%s)", WTERMSIG(status),
                 name ? name : "?");
    } else {
        snprintf(text, size, "exited with code %d without leaving the job", WEXITSTATUS(status));
    }
    return text;
}
