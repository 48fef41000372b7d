/* SPDX-License-Identifier: BSD-3-Clause */
/* Finds the program, before anything is started: what is missing is told once, not by each rank. */
#include "base/settings/env.h"
#include "launch/options/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool command_is_file(const char *path)
{
    struct stat entry;

    return stat(path, &entry) == 0 && S_ISREG(entry.st_mode);
}

/* As a shell looks for it. */
static bool command_search(const char *name, char path[PATH_MAX])
{
    const char *folders = disti_env("PATH");

    for (const char *at = folders ? folders : "/usr/bin:/bin"; at;) {
        const int length = (int)strcspn(at, ":");
        const int written =
            snprintf(path, PATH_MAX, "%.*s%s%s", length, at, length ? "/" : "", name);

        if (written < PATH_MAX && command_is_file(path) && access(path, X_OK) == 0)
            return true;
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}

static bool command_missing(const char *name)
{
    if (!strchr(name, '/') && command_is_file(name))
        fprintf(stderr,
                "distrun: there is no program '%s' in PATH: for the one in this folder give ./%s\n",
                name, name);
    else if (!strchr(name, '/'))
        fprintf(stderr, "distrun: there is no program '%s' in PATH: give its path\n", name);
    else
        fprintf(stderr, "distrun: cannot run '%s': %s: give the path of a program\n", name,
                errno ? strerror(errno) : "it is no file");
    return false;
}

/* Into path, by which execve finds it. */
static bool command_find(const char *name, char path[PATH_MAX])
{
    if (!strchr(name, '/'))
        return command_search(name, path) || command_missing(name);
    errno = 0;
    if (!command_is_file(name))
        return command_missing(name);
    if (access(name, X_OK) != 0) {
        fprintf(stderr, "distrun: '%s' is not executable: chmod +x %s\n", name, name);
        return false;
    }
    snprintf(path, PATH_MAX, "%s", name);
    return true;
}

static bool command_is_script(const char *name)
{
    const size_t length = strlen(name);

    return length > 3 && strcmp(name + length - 3, ".py") == 0;
}

/* Behind the interpreter, as torchrun calls it. */
static char **command_for_python(const char *interpreter, char *words[], bool module)
{
    static char unbuffered[] = "-u", is_module[] = "-m";
    static char **command; /* valid until the next one is made */
    int count = 0, used = 0;

    while (words[count])
        count++;
    free(command);
    command = calloc((size_t)count + 4, sizeof(*command));
    if (!command)
        return NULL;
    command[used++] = (char *)(uintptr_t)interpreter;
    command[used++] = unbuffered;
    if (module)
        command[used++] = is_module;
    memcpy(command + used, words, (size_t)count * sizeof(*words));
    return command;
}

static bool command_is_here(const struct disti_run_options *options)
{
    for (int h = 0; h < options->hosts.count; h++) {
        if (!disti_run_host_is_here(options, h))
            return false;
    }
    return true;
}

/* The first word of the remote shell, where one is needed. */
static bool command_remote(const struct disti_run_options *options, char path[PATH_MAX])
{
    const char *shell = options->remote_shell;
    char *copy = strdup(shell ? shell : DISTI_HOSTS_AGENT), *rest = NULL;
    const char *name = copy ? strtok_r(copy, " \t", &rest) : NULL;
    bool found = command_is_here(options) || command_find(name ? name : "", path);

    free(copy);
    return found;
}

bool disti_run_command(char *words[], struct disti_run_options *options)
{
    static char path[PATH_MAX];
    const char *interpreter = disti_env("PYTHON_EXEC");

    options->program = words[0];
    options->command = words;
    if (options->hosts.count > 0)
        return command_remote(options, path);
    options->python = options->module || (command_is_script(words[0]) && !options->no_python);
    if (!interpreter)
        interpreter = "python3";
    errno = ENOENT;
    if (options->python && !options->module && !command_is_file(words[0]))
        return command_missing(words[0]);
    if (!command_find(options->python ? interpreter : words[0], path))
        return false;
    options->path = path;
    if (options->python)
        options->command = command_for_python(path, words, options->module);
    return options->command || command_missing(words[0]);
}
