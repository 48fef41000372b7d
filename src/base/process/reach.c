/* SPDX-License-Identifier: BSD-3-Clause */
/* Another process's memory and descriptors, also while only its first thread has ended. */
#include "base/process/reach.h"

#include "base/process/stat.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A thread that was found may end before it is used, and the next one too. */
#define REACH_TRIES 8

/* The last process whose first thread was gone, and the one that stood in for it: to look for that
 * takes longer than to copy a piece of a message. */
static _Thread_local struct {
    int pid, thread;
} reach_last;

/* The number of a thread that has ended may be another process's by now. */
static bool reach_knows(int pid)
{
    return reach_last.pid == pid && reach_last.thread &&
           syscall(SYS_tgkill, pid, reach_last.thread, 0) == 0;
}

static int reach_thread(int pid, bool again)
{
    if (again || !reach_knows(pid)) {
        reach_last.pid = pid;
        reach_last.thread = disti_process_thread(pid);
    }
    return reach_last.thread;
}

typedef ssize_t (*reach_call)(pid_t pid, const struct iovec *here, unsigned long here_count,
                              const struct iovec *there, unsigned long there_count,
                              unsigned long flags);

static ssize_t reach_copy(reach_call call, int pid, const struct iovec *here,
                          const struct iovec *there)
{
    ssize_t copied = call(pid, here, 1, there, 1, 0);

    for (int tries = 0; copied < 0 && errno == ESRCH && tries < REACH_TRIES; tries++) {
        const int thread = reach_thread(pid, tries > 0);

        errno = ESRCH;
        if (!thread)
            break;
        copied = call(thread, here, 1, there, 1, 0);
    }
    return copied;
}

ssize_t disti_process_read(int pid, const struct iovec *here, const struct iovec *there)
{
    return reach_copy(process_vm_readv, pid, here, there);
}

ssize_t disti_process_write(int pid, const struct iovec *here, const struct iovec *there)
{
    return reach_copy(process_vm_writev, pid, here, there);
}

/* Whatever the link leads to, and whether or not this process may open it. */
static bool reach_is_there(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0;
}

void disti_process_path(int pid, int fd, char path[DISTI_PROCESS_PATH])
{
    int thread;

    snprintf(path, DISTI_PROCESS_PATH, "/proc/%d/fd/%d", pid, fd);
    if (reach_is_there(path))
        return;
    thread = disti_process_thread(pid);
    if (thread)
        snprintf(path, DISTI_PROCESS_PATH, "/proc/%d/task/%d/fd/%d", pid, thread, fd);
}
