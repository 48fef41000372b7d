/* SPDX-License-Identifier: BSD-3-Clause */
/* distrun: runs a program once for each rank. */
#include "base/process.h"
#include "launch/agent.h"
#include "tools/common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * distrun consists of three processes, so that the job is ended even if any two of them are killed:
 * the remaining one is an ancestor of all workers and of their children, and adopts orphaned
 * processes.
 *
 *     monitor ----> supervisor ----> agent ----> worker ----> child of a worker
 *         '---------- signals ---------^
 *
 * The terminal sends its signals to the process group of the monitor and the workers; the
 * supervisor and the agent have process groups of their own. The supervisor has another process
 * name, so that `killall distrun` does not end it.
 */

/*
 * True if the signal must stay ignored. nohup ignores SIGHUP, and a shell without job control
 * SIGTSTP. An ignored SIGINT is forwarded all the same: shells ignore it in background jobs only
 * because of the terminal, and a user who sends it explicitly means it.
 */
static bool monitor_is_ignored(int number)
{
    struct sigaction action;

    return (number == SIGHUP || number == SIGTSTP) && sigaction(number, NULL, &action) == 0 &&
           action.sa_handler == SIG_IGN;
}

/*
 * Kills all descendants after the child `name` was killed, and waits for them: only an ancestor can
 * find them. Returns the exit code.
 */
static int monitor_end_all(const char *name, int wait_status)
{
    const struct timespec interval = {0, 20 * 1000000L};
    char signal_name[16];
    pid_t pid;

    disti_run_signal_name(WTERMSIG(wait_status), signal_name);
    fprintf(stderr, "distrun: the %s was ended by %s: ending all workers\n", name, signal_name);
    do {
        disti_run_signal_descendants(SIGKILL);
        nanosleep(&interval, NULL);
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            continue;
    } while (pid == 0);
    return 128 + WTERMSIG(wait_status);
}

static int monitor_wait(pid_t supervisor, int fd, const sigset_t *set)
{
    siginfo_t info;
    int wait_status, end = -1;
    pid_t pid;

    for (;;) {
        if (sigwaitinfo(set, &info) < 0)
            continue;
        if (info.si_signo == SIGCHLD) {
            while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0)
                end = pid == supervisor ? wait_status : end;
            if (end >= 0)
                return WIFSIGNALED(end) ? monitor_end_all("supervisor", end) : WEXITSTATUS(end);
        } else if (!monitor_is_ignored(info.si_signo)) {
            const struct disti_run_signal forwarded = {info.si_signo, info.si_code == SI_KERNEL};

            (void)!send(fd, &forwarded, sizeof(forwarded), MSG_NOSIGNAL | MSG_DONTWAIT);
            /*
             * The agent stops the workers. The shell sees that the job is stopped when this process
             * stops.
             */
            if (info.si_signo == SIGTSTP)
                raise(SIGSTOP);
        }
    }
}

static int monitor_failed(void)
{
    disti_process_limit_fail("start the agent");
    fprintf(stderr, "distrun: %s\n", dist_last_error());
    return 1;
}

/* The supervisor: waits until the agent ends; blocks all signals. Returns the exit code. */
static int supervisor_run(pid_t agent)
{
    sigset_t all;
    int wait_status;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    prctl(PR_SET_NAME, "supervisor");
    setpgid(0, 0);
    /* The agent's descendants must be ended even if stderr has no reader. */
    signal(SIGPIPE, SIG_IGN);
    while (waitpid(agent, &wait_status, 0) < 0 && errno == EINTR)
        continue;
    return WIFSIGNALED(wait_status) ? monitor_end_all("agent", wait_status)
                                    : WEXITSTATUS(wait_status);
}

/*
 * Starts the supervisor and the agent (or the starter). Returns the agent's exit code, or 128 +
 * signal if it was killed; all descendants have ended by then. Each process of distrun is a
 * subreaper: orphaned descendants become its own children, so that no descendant is left when
 * waitpid fails with ECHILD.
 */
static int monitor_run(const struct disti_run_options *options)
{
    static const int reset[] = {SIGCHLD, SIGINT, SIGQUIT, SIGTERM, SIGPIPE};
    static const int excluded[] = {SIGKILL, SIGSTOP, SIGTTIN, SIGTTOU, SIGPIPE, SIGSEGV,
                                   SIGBUS,  SIGFPE,  SIGILL,  SIGABRT, SIGTRAP, SIGSYS};
    sigset_t set, mask;
    int ends[2];
    pid_t pid;

    /*
     * These signals must not be ignored here or in the workers. With an ignored SIGCHLD the
     * children's exit codes would be lost.
     */
    for (size_t i = 0; i < sizeof(reset) / sizeof(reset[0]); i++)
        signal(reset[i], SIG_DFL);
    /* SIGCHLD and all signals that can be forwarded; not those that report a fault. */
    sigfillset(&set);
    for (size_t i = 0; i < sizeof(excluded) / sizeof(excluded[0]); i++)
        sigdelset(&set, excluded[i]);
    sigprocmask(SIG_BLOCK, &set, &mask);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    fflush(NULL);
    pid = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0 ? fork() : -1;
    if (pid < 0)
        return monitor_failed();
    if (pid > 0) {
        close(ends[1]);
        signal(SIGPIPE, SIG_IGN); /* workers must be ended even if stderr has no reader */
        return monitor_wait(pid, ends[0], &set);
    }
    close(ends[0]);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        return options->hosts.count > 0 ? disti_run_starter(ends[1], options)
                                        : disti_run_agent(ends[1], &mask, options);
    }
    close(ends[1]);
    return pid < 0 ? monitor_failed() : supervisor_run(pid);
}

enum { MAIN_WRONG = 2 }; /* exit code for a wrong command line, as torchrun's */

int main(int argc, char *argv[])
{
    struct disti_run_options options;
    int code = MAIN_WRONG, fd = open("/dev/null", O_RDWR);

    /* If standard streams are closed, descriptors opened later would take their numbers. */
    while (fd >= 0 && fd <= STDERR_FILENO)
        fd = dup(fd);
    if (fd >= 0)
        close(fd);
    if (disti_run_options_read(argc, argv, &options))
        code = options.action ? output_exit("distrun", 0) : monitor_run(&options);
    disti_hosts_free(&options.hosts);
    return code;
}
