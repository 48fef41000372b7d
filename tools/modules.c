/* SPDX-License-Identifier: BSD-3-Clause */
/* Modules of others run in whoever loads them, and may crash there: here that is a child. */
#include "modules.h"

#include <dist/backend.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A probe never blocks; a slow one looks for a device. */
#define MODULES_SECONDS 5
/* What is said under one name: two lines, each with a reason. */
#define MODULES_TEXT 2400

/* ---- the child ---- */

static void modules_child(const char *name, int fd) __attribute__((noreturn));
static void modules_child(const char *name, int fd)
{
    const struct rlimit none = {0, 0};
    char text[MODULES_TEXT];
    size_t length;

    setrlimit(RLIMIT_CORE, &none);
    dist_probe_name(name, text, sizeof(text));
    length = strlen(text);
    _exit(write(fd, text, length) == (ssize_t)length ? 0 : 1);
}

static int modules_left_ms(const struct timespec *end)
{
    struct timespec now;
    long long left;

    clock_gettime(CLOCK_MONOTONIC, &now);
    left = (end->tv_sec - now.tv_sec) * 1000LL + (end->tv_nsec - now.tv_nsec) / 1000000;
    return left > 0 ? (int)left : 0;
}

/* Reads what comes until the child ends, or the time has passed: then false. */
static bool modules_read(int fd, char *text, size_t size)
{
    struct timespec end;
    size_t used = 0;

    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += MODULES_SECONDS;
    for (;;) {
        struct pollfd look = {.fd = fd, .events = POLLIN};
        int ready = poll(&look, 1, modules_left_ms(&end));
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

/* ---- what is said of it ---- */

/* The file that was loaded: the first of that name, in the folders' order. */
static void modules_path(const char *name, char *path, size_t size)
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

/* Instead of what a child would have said that did not come to its end. */
static void modules_blame(const char *name, int how, bool late, char *text, size_t size)
{
    char path[1024], what[128];

    modules_path(name, path, sizeof(path));
    if (late)
        snprintf(what, sizeof(what), "did not come back within %d s", MODULES_SECONDS);
    else if (WIFSIGNALED(how))
        snprintf(what, sizeof(what), "crashed (%s)", strsignal(WTERMSIG(how)));
    else
        snprintf(what, sizeof(what), "ended the process (exit code %d)", WEXITSTATUS(how));
    snprintf(text, size,
             "lost %s no module %s %s when it was loaded or in its probe: a job that asks for "
             "it would do the same\n",
             name, path, what);
}

static void modules_parent(const char *name, pid_t child, int fd, char *text, size_t size)
{
    bool late = !modules_read(fd, text, size);
    int how = 0;

    if (late)
        kill(child, SIGKILL);
    while (waitpid(child, &how, 0) < 0 && errno == EINTR) {
    }
    if (late || !WIFEXITED(how) || WEXITSTATUS(how) != 0)
        modules_blame(name, how, late, text, size);
}

/* False: there are no processes to be had. */
static bool modules_probe(const char *name, char *text, size_t size)
{
    int ends[2];
    pid_t child;

    text[0] = '\0';
    if (pipe(ends) < 0)
        return false;
    fflush(NULL); /* else the child's end could print it again */
    child = fork();
    if (child == 0)
        modules_child(name, ends[1]);
    close(ends[1]);
    if (child > 0)
        modules_parent(name, child, ends[0], text, size);
    close(ends[0]);
    return child > 0;
}

/* ---- lists ---- */

static bool modules_add(struct modules_list *list, const char *text)
{
    struct modules_line line = {.text = ""}, *lines;
    char kind[16], runs[8];
    int at = 0;

    if (sscanf(text, "%15s %63s %7s %n", kind, line.name, runs, &at) < 3)
        return true; /* a module's reason with a line of its own */
    line.backend = strcmp(kind, "transport") != 0;
    line.lost = strcmp(kind, "lost") == 0;
    line.usable = strcmp(runs, "yes") == 0;
    snprintf(line.text, sizeof(line.text), "%s", text + at);
    lines = realloc(list->lines, (size_t)(list->count + 1) * sizeof(*lines));
    if (!lines)
        return false;
    list->lines = lines;
    list->lines[list->count++] = line;
    return true;
}

static bool modules_ask_one(const char *name, struct modules_list *list)
{
    char text[MODULES_TEXT], *rest;
    bool added = modules_probe(name, text, sizeof(text));

    for (char *line = added ? strtok_r(text, "\n", &rest) : NULL; line && added;
         line = strtok_r(NULL, "\n", &rest))
        added = modules_add(list, line);
    return added;
}

bool modules_ask(const char *name, struct modules_list *list_p)
{
    *list_p = (struct modules_list){0};
    return modules_ask_one(name, list_p);
}

bool modules_ask_all(struct modules_list *list_p)
{
    size_t size = dist_list_names(NULL, 0) + 1;
    char *names = malloc(size), *rest;
    bool asked = names != NULL;

    *list_p = (struct modules_list){0};
    if (names)
        dist_list_names(names, size);
    for (char *name = names ? strtok_r(names, "\n", &rest) : NULL; name && asked;
         name = strtok_r(NULL, "\n", &rest))
        asked = modules_ask_one(name, list_p);
    free(names);
    return asked;
}
