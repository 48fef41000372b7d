/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts a worker. */
#include "launch/workers/workers.h"

#include "base/log.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

bool disti_run_worker_has_failed(const struct disti_run_worker *worker)
{
    return worker->ended && worker->how != 0;
}

static const char worker_refused[] = "the system refuses it";

/* What is likely if execve has refused a file that is there. */
static const char *worker_hint(int error)
{
    switch (error) {
    case ENOEXEC:
        return " (a script begins with #!/bin/sh or the like)";
    case ENOENT:
        return " (what it names behind #!, or its loader, is not there)";
    default:
        return "";
    }
}

/* The child, which shares the agent's memory until it runs the program: what failed, in *what_p. */
static void worker_become(const struct disti_run_start *start, pid_t agent, const char **what_p)
{
    /* The agent may be dead already; nobody outlives it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(128 + SIGKILL);
    /* If the group is gone the user has killed it, and the agent knows that soon. */
    setpgid(0, start->group);
    *what_p = "cannot pass on its input and output";
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (start->fds[fd] >= 0 && dup2(start->fds[fd], fd) < 0)
            return;
    }
    *what_p = "cannot bind it to its CPUs";
    if (start->cpus && sched_setaffinity(0, sizeof(*start->cpus), (const cpu_set_t *)start->cpus))
        return;
    for (int i = 0; i < 2; i++)
        fcntl(start->inherited[i], F_SETFD, 0);
    setrlimit(RLIMIT_NOFILE, &start->files);
    sigprocmask(SIG_SETMASK, &start->mask, NULL);
    *what_p = worker_refused;
    execve(start->path, start->command, start->environment);
}

dist_status disti_run_worker_start(const struct disti_run_start *start, pid_t *pid_p)
{
    const char *volatile what = NULL;
    volatile int error = 0;
    const pid_t agent = getpid();
    const char *failed = NULL;
    pid_t pid;

    /* vfork: a fork of a process with many pages would take longer, and 256 of them a second. */
    pid = vfork();
    if (pid == 0) {
        worker_become(start, agent, &failed);
        error = errno;
        what = failed;
        _exit(127);
    }
    if (pid < 0)
        return disti_process_limit_fail("start %s", start->name);
    if (!what) {
        *pid_p = pid;
        return DIST_OK;
    }
    waitpid(pid, NULL, 0);
    errno = error;
    return disti_fail_errno(what == worker_refused ? DIST_ERR_INVALID_ARGUMENT : DIST_ERR_SYSTEM,
                            "cannot run %s, as %s%s", start->path, what, worker_hint(error));
}
