/* SPDX-License-Identifier: BSD-3-Clause */
/* Where a variable comes from: /proc keeps the environment that each process was started with. */
#include "tools/env.h"
#include "tools/common/args.h"
#include "tools/common/text.h"

#include <dist/backend.h>
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

/*
 * Writes who has set it to text[size]: "bash (1234)" for the closest ancestor that was itself
 * started with another value or none; "the environment" where no ancestor that can be looked at
 * was.
 */
static void origin_of(const char *name, const char *value, char *text, size_t size)
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

/* dist_info env: every variable, its value, who has set it, and what it is for. */

/* A line of dist_list_variables, taken apart. */
struct env_line {
    const char *kind, *name, *note, *meaning;
    const char *value; /* NULL: unset */
    char from[64];
};

static bool env_take(char *text, struct env_line *line)
{
    char *fields[4];

    for (int i = 0; i < 4; i++) {
        fields[i] = strsep(&text, "\t");
        if (!fields[i])
            return false;
    }
    *line = (struct env_line){fields[0], fields[1], fields[2], fields[3], getenv(fields[1]), ""};
    if (line->value)
        origin_of(line->name, line->value, line->from, sizeof(line->from));
    return true;
}

/* The heading of each kind in the table. */
static void env_head(const char *kind)
{
    if (strcmp(kind, "own") == 0)
        printf("Variables of libdist\n");
    else if (strcmp(kind, "foreign") == 0)
        printf("\nVariables of launchers and others\n");
    else if (strcmp(kind, "wrong") == 0)
        printf("\nVariables with a value that every job refuses\n");
    else
        printf("\nVariables that nobody reads\n");
}

static void env_row(const struct env_line *line)
{
    printf("  %-28s ", line->name);
    if (line->value)
        printf("%s  [set by %s]\n", *line->value ? line->value : "(empty)", line->from);
    else if (strcmp(line->kind, "own") == 0 && *line->note)
        printf("-  [default: %s]\n", line->note);
    else
        printf("-\n");
    if (strcmp(line->kind, "foreign") == 0)
        printf("      %s: %s\n", line->note, line->meaning);
    else if (strcmp(line->kind, "own") == 0 || strcmp(line->kind, "wrong") == 0)
        printf("      %s\n", line->meaning);
    else if (*line->note)
        printf("      did you mean %s, %s?\n", line->note, line->meaning);
    else
        printf("      no variable has a name like it\n");
}

static void env_object(const struct env_line *line, bool first)
{
    static const char *const notes[][2] = {
        {"own", "default"}, {"foreign", "owner"}, {"unknown", "meant"}};

    printf("%s\n  {", first ? "" : ",");
    json_member("name", line->name, true, stdout);
    json_member("kind", line->kind, false, stdout);
    if (line->value) {
        json_member("value", line->value, false, stdout);
        json_member("from", line->from, false, stdout);
    } else {
        printf(", \"value\": null, \"from\": null");
    }
    for (size_t i = 0; i < sizeof(notes) / sizeof(notes[0]); i++) {
        if (strcmp(notes[i][0], line->kind) == 0)
            json_member(notes[i][1], line->note, false, stdout);
    }
    json_member("meaning", line->meaning, false, stdout);
    printf("}");
}

static void env_print(char *text, bool json)
{
    const char *kind = "";
    bool first = true;
    char *item;

    printf("%s", json ? "[" : "");
    while ((item = strsep(&text, "\n"))) {
        struct env_line line;

        if (!env_take(item, &line))
            continue;
        if (!json && strcmp(kind, line.kind) != 0)
            env_head(line.kind);
        kind = line.kind;
        if (json)
            env_object(&line, first);
        else
            env_row(&line);
        first = false;
    }
    printf("%s", json ? "\n]\n" : "");
}

int env_main(int argc, char **argv)
{
    struct words {
        const char *format;
        int action;
    } words = {0};
    static const struct args_row rows[] = {
        {"format", 0, ARGS_CHOICE, offsetof(struct words, format), 0, 0, "table|json",
         "for people (the default), or for programs"},
        ARGS_HELP_ROWS(struct words, 0),
    };
    static const struct args args = {
        .rows = rows,
        .count = sizeof(rows) / sizeof(rows[0]),
        .program = "dist_info env",
        .usage = "[--format table|json]",
        .about = "Prints every environment variable that libdist reads: its value, which process "
                 "has set it, its default, and what it is for.\n"};
    size_t size = dist_list_variables(NULL, 0) + 1;
    char *text;
    int rest, code = args_begin(&args, argc, argv, &words, 0, &rest);

    if (code >= 0)
        return code;
    text = malloc(size);
    if (!text) {
        fprintf(stderr, "dist_info: out of memory\n");
        return 1;
    }
    dist_list_variables(text, size);
    env_print(text, words.format && strcmp(words.format, "json") == 0);
    free(text);
    return 0;
}
