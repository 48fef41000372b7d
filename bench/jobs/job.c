/* SPDX-License-Identifier: BSD-3-Clause */
/* Libraries as processes: starting, meeting, ending. */
#include "job.h"

#include "bench/protocol.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOB_LOOK_MS 50         /* between two looks whether it has ended */
#define JOB_GO_NS 5e9          /* from "quit" to SIGTERM */
#define JOB_TERM_NS 3e9        /* and on to SIGKILL */
#define JOB_TAIL ((off_t)4096) /* of what it printed, for the reason */

/* ---- what it printed ---- */

/* The last line with a letter in it: rules and blank lines say nothing. "" if there is none. */
static void job_last_line(const struct job *job, char *text, size_t size)
{
    char tail[JOB_TAIL + 1];
    off_t end = lseek(job->output, 0, SEEK_END);
    ssize_t length = pread(job->output, tail, JOB_TAIL, end > JOB_TAIL ? end - JOB_TAIL : 0);

    *text = '\0';
    tail[length > 0 ? length : 0] = '\0';
    for (char *line = strtok(tail, "\n"); line; line = strtok(NULL, "\n")) {
        bool says = false;

        for (const char *at = line; *at; at++)
            says = says || isalpha((unsigned char)*at);
        if (says)
            snprintf(text, size, "%s", line);
    }
}

/* ---- ending ---- */

static bool job_is_open(const struct job_rank *rank)
{
    char byte;

    return rank->fd >= 0 && recv(rank->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

/* Those whose line is still open live, so their ids are theirs. */
static void job_kill_ranks(struct job *job)
{
    for (int r = 0; r < job->runner.ranks; r++) {
        if (job_is_open(&job->members[r]) && job->members[r].pid > 1)
            kill(job->members[r].pid, SIGKILL);
    }
}

static void job_close_ranks(struct job *job)
{
    for (int r = 0; r < job->runner.ranks; r++) {
        if (job->members[r].fd >= 0)
            close(job->members[r].fd);
        job->members[r].fd = -1;
    }
}

void job_fail(struct job *job, const char *format, ...)
{
    char last[256];
    va_list arguments;
    int length;

    if (job->runner.gone)
        return;
    job->runner.gone = true;
    va_start(arguments, format);
    length = vsnprintf(job->reason, sizeof(job->reason), format, arguments);
    va_end(arguments);
    job_last_line(job, last, sizeof(last));
    if (*last && length >= 0 && (size_t)length < sizeof(job->reason))
        snprintf(job->reason + length, sizeof(job->reason) - (size_t)length, "; it said: %s", last);
    job_kill_ranks(job);
    job_close_ranks(job);
    if (job->pid > 0)
        kill(-job->pid, SIGTERM);
}

bool job_has_ended(struct job *job, char *text)
{
    int how;

    if (job->pid > 0 && waitpid(job->pid, &how, WNOHANG) == job->pid) {
        job->pid = 0;
        if (WIFSIGNALED(how))
            snprintf(text, 64, "was ended by signal %d", WTERMSIG(how));
        else
            snprintf(text, 64, "ended with exit code %d", WEXITSTATUS(how));
    }
    return job->pid == 0;
}

/* Waits so long for what was started to end. */
static bool job_wait(struct job *job, double limit)
{
    double until = measure_now() + limit;
    char text[64];

    while (!job_has_ended(job, text)) {
        if (measure_now() > until)
            return false;
        poll(NULL, 0, 10);
    }
    return true;
}

void job_quit(struct job *job)
{
    for (int r = 0; r < job->runner.ranks; r++) {
        if (job->members[r].fd >= 0)
            send(job->members[r].fd, "quit\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

void job_end(struct job *job)
{
    if (!job)
        return;
    if (job->members) {
        job_quit(job);
        if (!job->runner.gone && job->pid > 0 && !job_wait(job, JOB_GO_NS))
            kill(-job->pid, SIGTERM);
        job_kill_ranks(job);
        if (job->pid > 0 && !job_wait(job, JOB_TERM_NS)) {
            kill(-job->pid, SIGKILL);
            job_wait(job, JOB_TERM_NS);
        }
        job_close_ranks(job);
        for (int r = 0; r < job->runner.ranks; r++)
            free(job->members[r].line);
    }
    if (job->listener >= 0)
        close(job->listener);
    if (job->output >= 0)
        close(job->output);
    if (job->path)
        unlink(job->path);
    free(job->members);
    free(job->path);
    free(job->release);
    free(job->name);
    free(job);
}

/* ---- starting ---- */

static int job_listen(struct job *job, const char *folder)
{
    static int number;
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (asprintf(&job->path, "%s/%d", folder, number++) < 0)
        return job->path = NULL, -1;
    if (strlen(job->path) >= sizeof(address.sun_path))
        return errno = ENAMETOOLONG, -1;
    strcpy(address.sun_path, job->path);
    job->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return job->listener >= 0 &&
                   bind(job->listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
                   listen(job->listener, 4096) == 0
               ? 0
               : -1;
}

static int job_output(struct job *job)
{
    char *path;

    if (asprintf(&path, "%s.out", job->path) < 0)
        return -1;
    job->output = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    unlink(path);
    free(path);
    return job->output >= 0 ? 0 : -1;
}

void job_oversubscribe(void)
{
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);                  /* Open MPI 4 */
    setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0); /* Open MPI 5 */
}

/* In a process group of its own, that ends with this process; prints into the file. */
static void job_child(const struct job *job, char *const argv[], pid_t parent)
    __attribute__((noreturn));
static void job_child(const struct job *job, char *const argv[], pid_t parent)
{
    int none = open("/dev/null", O_RDONLY);
    sigset_t all;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(128 + SIGKILL);
    setpgid(0, 0);
    sigemptyset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    dup2(none, 0);
    dup2(job->output, 1);
    dup2(job->output, 2);
    setenv(BENCH_SOCKET, job->path, 1);
    job_oversubscribe();
    execvp(argv[0], argv);
    dprintf(2, "cannot start %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static int job_fork(struct job *job, char *const argv[])
{
    pid_t parent = getpid();

    fflush(NULL);
    job->pid = fork();
    if (job->pid == 0)
        job_child(job, argv, parent);
    if (job->pid < 0)
        return job->pid = 0, -1;
    setpgid(job->pid, job->pid); /* whoever of the two comes first */
    return 0;
}

struct job *job_start(const char *folder, const char *name, int ranks, char *const argv[],
                      double timeout)
{
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->listener = job->output = -1;
    job->timeout = timeout;
    job->runner = (struct runner){.ranks = ranks, .turn = job_turn};
    job->name = strdup(name);
    job->members = calloc((size_t)ranks, sizeof(*job->members));
    for (int r = 0; job->members && r < ranks; r++)
        job->members[r].fd = -1;
    if (job->name && job->members && job_listen(job, folder) == 0 && job_output(job) == 0 &&
        job_fork(job, argv) == 0)
        return job;
    fprintf(stderr, "dist_bench: cannot start %s: %s\n", name, strerror(errno));
    job_end(job);
    return NULL;
}

void job_wait_for_ranks(struct job *job, bool (*stopped)(void))
{
    double until = measure_now() + job->timeout;
    struct pollfd waiting = {.fd = job->listener, .events = POLLIN};
    char text[64];

    while (!job->runner.gone && job->joined < job->runner.ranks && !stopped()) {
        /* Ended is looked for first: what it has sent before is seen then. */
        bool ended = job_has_ended(job, text);

        if (poll(&waiting, 1, JOB_LOOK_MS) > 0)
            job_accept(job, until);
        else if (ended)
            job_fail(job, "it %s before its ranks had come", text);
        else if (measure_now() > until)
            job_fail(job, "only %d of its %d ranks have come within %.0f s", job->joined,
                     job->runner.ranks, job->timeout / 1e9);
    }
}
