/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Probes in a child process. A module that is loaded stays for the life of the process, brings
 * libraries that may handle signals and start threads, and may crash.
 */
#include "backends/registry.h"
#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A probe never blocks; a slow one looks for a device. */
#define APART_SECONDS 5

/* The program's handlers are not for what happens here. */
static void apart_child(const char *name, int fd) __attribute__((noreturn));
static void apart_child(const char *name, int fd)
{
    const struct rlimit none = {0, 0};
    char text[DISTI_PROBE_TEXT];
    size_t length;

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    setrlimit(RLIMIT_CORE, &none);
    disti_probe_here(name, text, sizeof(text));
    length = strlen(text);
    _exit(write(fd, text, length) == (ssize_t)length ? 0 : 1);
}

/* Reads until the child closes its end. False: the deadline has passed. */
static bool apart_read(int fd, int64_t deadline, char *text, size_t size)
{
    size_t used = 0;

    for (;;) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        int ready = poll(&look, 1, disti_left_ms(deadline));
        ssize_t got = ready > 0 ? read(fd, text + used, size - 1 - used) : -1;

        if (ready == 0)
            return false;
        if (got == 0 || (got < 0 && errno != EINTR))
            return true;
        if (got > 0)
            used += (size_t)got;
        text[used] = '\0';
    }
}

/* The file that was loaded: the first of that name, in the folders' order. */
static void apart_path(const char *name, char *path, size_t size)
{
    size_t bytes = dist_list_module_folders(NULL, 0) + 1;
    char *folders = malloc(bytes), *rest;

    snprintf(path, size, "dist_%s.so", name);
    if (folders)
        dist_list_module_folders(folders, bytes);
    for (char *folder = folders ? strtok_r(folders, "\n", &rest) : NULL; folder;
         folder = strtok_r(NULL, "\n", &rest)) {
        char file[1024];

        snprintf(file, sizeof(file), "%s/dist_%s.so", folder, name);
        if (access(file, F_OK) != 0)
            continue;
        snprintf(path, size, "%s", file);
        break;
    }
    free(folders);
}

/* Writes what replaces the text of a child that crashed, hung or exited. */
static void apart_blame(const char *name, int how, bool late, char *text, size_t size)
{
    char path[1024], what[128];

    apart_path(name, path, sizeof(path));
    if (late)
        snprintf(what, sizeof(what), "did not come back within %d s", APART_SECONDS);
    else if (WIFSIGNALED(how))
        snprintf(what, sizeof(what), "crashed (%s)", strsignal(WTERMSIG(how)));
    else
        snprintf(what, sizeof(what), "ended the process (exit code %d)", WEXITSTATUS(how));
    snprintf(text, size,
             "lost %s no module %s %s when it was loaded or in its probe: a job that asks for "
             "it would do the same\n",
             name, path, what);
}

/* A child that the program has reaped elsewhere counts as one that ended well if it has answered.
 */
static void apart_parent(const char *name, pid_t child, int fd, char *text, size_t size)
{
    const int64_t deadline = disti_deadline_ms(APART_SECONDS * 1000);
    bool late = !apart_read(fd, deadline, text, size), reaped;
    siginfo_t ended = {.si_pid = 0};
    int how = 0;

    /* A module may close all descriptors, and then hang. */
    while (!late && waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           !ended.si_pid) {
        disti_sleep_ns(1000000);
        late = disti_expired(deadline);
    }
    if (late)
        kill(child, SIGKILL);
    while (!(reaped = waitpid(child, &how, 0) == child) && errno == EINTR) {
    }
    if (late || (reaped ? !WIFEXITED(how) || WEXITSTATUS(how) != 0 : !text[0]))
        apart_blame(name, how, late, text, size);
}

/* Takes away the SIGCHLD of our child, if this thread would get it. */
static void apart_forget_child(const sigset_t *before)
{
    const struct timespec now = {0, 0};
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    /* It may also have been that of a child of the program, which waits to be reaped. */
    if (!sigismember(before, SIGCHLD) && sigtimedwait(&child, NULL, &now) == SIGCHLD) {
        siginfo_t ended = {.si_pid = 0};

        if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid)
            raise(SIGCHLD);
    }
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

void disti_probe_apart(const char *name, char *text, size_t size)
{
    sigset_t child_signal, before;
    int ends[2];
    pid_t child;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) < 0) {
        snprintf(text, size, "lost %s no it could not be tried: %s\n", name, strerror(errno));
        return;
    }
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &child_signal, &before);
    child = fork();
    if (child == 0)
        apart_child(name, ends[1]);
    if (child < 0)
        snprintf(text, size, "lost %s no it could not be tried: %s\n", name, strerror(errno));
    close(ends[1]);
    if (child > 0)
        apart_parent(name, child, ends[0], text, size);
    close(ends[0]);
    apart_forget_child(&before);
}
