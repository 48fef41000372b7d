/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kills_training FILE VICTIM PROGRAM [ARGUMENT]...: runs as this rank PROGRAM, a training that
 * saves its state in FILE repeatedly. The rank VICTIM is killed (SIGKILL) while it writes FILE,
 * after it has written FILE a few times. Exit 0 if the victim was killed, and the other ranks ended
 * by themselves with an error that names it. Prints the times as kills does.
 *
 *     FILE.tmp-XXXXXXXX made   written   ...   FILE replaced
 *     |------- the victim dies in this time --------|---->
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kills.h"

#define KEPT_MOST 6       /* the victim writes at most this number of complete files */
#define WRITING_US 3000   /* the victim dies within this time after it begins a file */
#define PATIENCE_MS 30000 /* the maximum time until a file appears */

static char **command;
static int victim;

/* Starts the training; `errors` becomes its standard error, -1: inherits this process's. */
static pid_t start(int errors)
{
    pid_t child = fork();

    if (child != 0)
        return child;
    if (errors >= 0)
        dup2(errors, STDERR_FILENO);
    execv(command[0], command);
    perror(command[0]);
    _exit(127);
}

/* ---- the victim ---- */

/* Waits for an inotify event of that kind on a file whose name begins with `name`. Returns false if
 * none arrives in time. */
static int wait_for_event(int watch, const char *name, uint32_t kind)
{
    char events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    struct pollfd ready = {.fd = watch, .events = POLLIN};
    const struct inotify_event *event;
    ssize_t length;

    while (poll(&ready, 1, PATIENCE_MS) > 0) {
        length = read(watch, events, sizeof(events));
        for (char *at = events; at < events + length; at += sizeof(*event) + event->len) {
            event = (const struct inotify_event *)at;
            if ((event->mask & kind) && event->len > 0 &&
                strncmp(event->name, name, strlen(name)) == 0)
                return 1;
        }
    }
    return 0;
}

static int be_killed(const char *folder, const char *name)
{
    char draft[256];
    struct timespec wait = {0};
    int watch = inotify_init1(IN_CLOEXEC), written, status;
    pid_t child;

    srand((unsigned)(now() * 1e6) ^ (unsigned)getpid());
    snprintf(draft, sizeof(draft), "%s.tmp-", name);
    if (watch < 0 || inotify_add_watch(watch, folder, IN_CREATE | IN_MOVED_TO) < 0)
        return 1;
    child = start(-1);
    written = 1;
    for (int i = rand() % KEPT_MOST; i >= 0 && written; i--)
        written = wait_for_event(watch, name, IN_MOVED_TO);
    written = written && wait_for_event(watch, draft, IN_CREATE);
    wait.tv_nsec = rand() % WRITING_US * 1000L;
    nanosleep(&wait, NULL);
    printf("dead %.6f\n", now());
    kill(child, SIGKILL);
    if (waitpid(child, &status, 0) < 0)
        return 1;
    if (!written || !WIFSIGNALED(status))
        printf("it was not killed while it trained\n");
    return !written || !WIFSIGNALED(status);
}

/* ---- the other ranks ---- */

static int survive(void)
{
    char line[4096], name[32];
    int ends[2], status, named = 0;
    pid_t child;
    FILE *errors;

    if (pipe(ends) < 0 || (child = start(ends[1])) < 0)
        return 1;
    close(ends[1]);
    errors = fdopen(ends[0], "r");
    snprintf(name, sizeof(name), "rank %d ", victim);
    while (errors && fgets(line, sizeof(line), errors)) {
        if (!named && strstr(line, name) && ++named)
            printf("knew %d 0 %.6f\n", launched_as(), now());
        fputs(line, stdout);
    }
    if (waitpid(child, &status, 0) < 0)
        return 1;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
        return 77; /* UCX 1.13 does: see kills.c */
    return !named || !WIFEXITED(status) || WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    char *slash;

    if (argc < 4 || !(slash = strrchr(argv[1], '/')))
        return 2;
    victim = atoi(argv[2]);
    command = argv + 3;
    setvbuf(stdout, NULL, _IOLBF, 0);
    *slash = '\0';
    return launched_as() == victim ? be_killed(argv[1], slash + 1) : survive();
}
