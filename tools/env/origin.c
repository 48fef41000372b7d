/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a variable comes from: /proc keeps the environment that each process was started with. */
#include "origin.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ORIGIN_MOST = 1 << 20 }; /* of an environment; Linux takes little more by default */

static char *origin_read(int pid, const char *what, size_t *length_p)
{
    char path[64], *text = malloc(ORIGIN_MOST);
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
    file = fopen(path, "re");
    *length_p = file && text ? fread(text, 1, ORIGIN_MOST - 1, file) : 0;
    if (file)
        fclose(file);
    if (text)
        text[*length_p] = '\0';
    return text;
}

/* 1: it was started with that value; 0: it was not; -1: that cannot be read. */
static int origin_started_with(int pid, const char *name, const char *value)
{
    const size_t name_length = strlen(name);
    size_t length;
    char *text = origin_read(pid, "environ", &length);
    int found = length ? 0 : -1;

    for (size_t at = 0; at < length; at += strlen(text + at) + 1) {
        if (strncmp(text + at, name, name_length) == 0 && text[at + name_length] == '=')
            found = strcmp(text + at + name_length + 1, value) == 0;
    }
    free(text);
    return found;
}

/* "PID (NAME) STATE PARENT ..."; the name may have blanks and brackets in it. */
static int origin_parent(int pid, char name[32])
{
    size_t length;
    char *text = origin_read(pid, "stat", &length), *begin, *end;
    int parent = 0;

    begin = text ? strchr(text, '(') : NULL;
    end = text ? strrchr(text, ')') : NULL;
    if (begin && end && sscanf(end + 1, " %*c %d", &parent) == 1)
        snprintf(name, 32, "%.*s", (int)(end - begin - 1), begin + 1);
    free(text);
    return parent;
}

/* /proc may be that of another PID namespace, in which our pids are other processes. */
static bool origin_is_own(void)
{
    char pid[16] = "";

    return readlink("/proc/self", pid, sizeof(pid) - 1) > 0 && atoi(pid) == getpid();
}

void origin_of(const char *name, const char *value, char *text, size_t size)
{
    char process[32];
    int pid = getppid();

    snprintf(text, size, "the environment");
    while (pid > 0 && origin_is_own()) {
        int with = origin_started_with(pid, name, value), parent = origin_parent(pid, process);

        if (with < 0)
            return;
        if (with == 0) {
            snprintf(text, size, "%s (%d)", process, pid);
            return;
        }
        pid = parent;
    }
}
