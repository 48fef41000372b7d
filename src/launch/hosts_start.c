/* SPDX-License-Identifier: BSD-3-Clause */
/* Starting a program on another host: a shell there that is told by its standard input. */
#include "launch/hosts.h"

#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 64
#define SECRET_END "__end_of_the_secret__"

/* In quotes, where the shell takes nothing for special. */
static void start_quote(FILE *script, const char *text)
{
    fputc('\'', script);
    for (const char *c = text; *c; c++) {
        if (*c == '\'')
            fputs("'\\''", script);
        else
            fputc(*c, script);
    }
    fputc('\'', script);
}

/* The shell has read all of this before it becomes the program. */
static void start_write(FILE *script, const struct disti_hosts_start *start)
{
    if (start->folder) {
        fputs("cd ", script);
        start_quote(script, start->folder);
        fputs(" || exit 126\n", script);
    }
    for (const char *const *e = start->environment; e && *e; e++) {
        const char *equals = strchr(*e, '=');

        if (!equals)
            continue;
        fprintf(script, "export %.*s=", (int)(equals - *e), *e);
        start_quote(script, equals + 1);
        fputc('\n', script);
    }
    fputs("exec", script);
    for (const char *const *a = start->argv; *a; a++) {
        fputc(' ', script);
        start_quote(script, *a);
    }
    if (start->secret)
        fprintf(script, " %d<<'%s'\n%s\n%s", DISTI_HOSTS_SECRET, SECRET_END, start->secret,
                SECRET_END);
    fputc('\n', script);
}

/* The child: becomes the agent's command, or tells the parent why it cannot. */
static void start_child(char *const *words, int in_fd, int out_fd, int err_fd, int told,
                        pid_t parent)
{
    sigset_t none;
    int error;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(126);
    for (int i = 1; i < NSIG; i++)
        signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    /* Out of the way of the three first, whichever those are. */
    out_fd = fcntl(out_fd, F_DUPFD_CLOEXEC, 3);
    err_fd = fcntl(err_fd, F_DUPFD_CLOEXEC, 3);
    in_fd = fcntl(in_fd, F_DUPFD_CLOEXEC, 3);
    told = fcntl(told, F_DUPFD_CLOEXEC, 3);
    if (dup2(in_fd, STDIN_FILENO) == 0 && dup2(out_fd, STDOUT_FILENO) == 1 &&
        dup2(err_fd, STDERR_FILENO) == 2)
        execvp(words[0], words);
    error = errno;
    if (write(told, &error, sizeof(error)) < 0)
        _exit(126);
    _exit(127);
}

/* Forks; 0, or the errno of what failed, in the child too. */
static int start_fork(char *const *words, int in_fd, int out_fd, int err_fd, pid_t *pid_p)
{
    int ends[2], error = 0;
    pid_t parent = getpid(), pid;
    ssize_t n;

    if (pipe2(ends, O_CLOEXEC))
        return errno;
    pid = fork();
    if (pid == 0)
        start_child(words, in_fd, out_fd, err_fd, ends[1], parent);
    if (pid < 0)
        error = errno;
    close(ends[1]);
    while (pid > 0 && (n = read(ends[0], &error, sizeof(error))) < 0 && errno == EINTR)
        ;
    close(ends[0]);
    if (error && pid > 0)
        waitpid(pid, NULL, 0);
    else if (pid > 0)
        *pid_p = pid;
    return error;
}

bool disti_hosts_is_variable(const char *entry)
{
    static const char known[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    const size_t length = strcspn(entry, "=");

    return length > 0 && (entry[0] < '0' || entry[0] > '9') && strspn(entry, known) >= length;
}

static dist_status start_check(const struct disti_hosts_start *start)
{
    for (const char *const *e = start->environment; e && *e; e++) {
        size_t length = strcspn(*e, "=");

        if (!(*e)[length] || !disti_hosts_is_variable(*e))
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "\"%s\" cannot be given to another host: no NAME=value", *e);
    }
    if (!start->argv[0] || (start->secret && strstr(start->secret, SECRET_END)))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "no program to be started on another host");
    return DIST_OK;
}

dist_status disti_hosts_script(const struct disti_hosts_start *start, char **script_p,
                               size_t *bytes_p)
{
    dist_status status = start_check(start);
    FILE *script;

    if (status != DIST_OK)
        return status;
    *script_p = NULL;
    script = open_memstream(script_p, bytes_p);
    if (script)
        start_write(script, start);
    if (script && fclose(script) == 0 && *script_p)
        return DIST_OK;
    free(*script_p);
    return disti_fail(DIST_ERR_NO_MEMORY, "no memory for what another host is told: free some");
}

dist_status disti_hosts_start(const char *agent, const char *host, int in_fd, int out_fd,
                              int err_fd, pid_t *pid_p)
{
    char *command = strdup(!host ? "" : agent ? agent : DISTI_HOSTS_AGENT), *rest = NULL;
    char *words[WORDS_MAX + 3] = {NULL};
    char *word = command ? strtok_r(command, " \t", &rest) : NULL;
    int count = 0, error = 0;
    dist_status status = DIST_OK;

    for (; word && count < WORDS_MAX; word = strtok_r(NULL, " \t", &rest))
        words[count++] = word;
    if (!command)
        error = ENOMEM;
    else if (word)
        error = E2BIG;
    else if (host && count == 0)
        error = ENOENT;
    if (host)
        words[count++] = (char *)host;
    words[count] = (char[]){"sh"};
    if (!error)
        error = start_fork(words, in_fd, out_fd, err_fd, pid_p);
    errno = error;
    if (error)
        status = disti_fail_errno(DIST_ERR_SYSTEM, "cannot start \"%s %s\"", words[0],
                                  count > 1 ? host : "");
    free(command);
    return status;
}
