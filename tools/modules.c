/* SPDX-License-Identifier: BSD-3-Clause */
/* Takes apart what dist_probe_name writes of each module. */
#include "modules.h"

#include <dist/backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is said under one name: two lines, each with a reason. */
#define MODULES_TEXT 2400

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
    bool added = true;

    dist_probe_name(name, text, sizeof(text));
    for (char *line = strtok_r(text, "\n", &rest); line && added;
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
