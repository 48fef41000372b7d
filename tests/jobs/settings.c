/* SPDX-License-Identifier: BSD-3-Clause */
/* NAME=VALUE on the command line of a test program. */
#include "settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void settings_one(const char *text, const struct setting *list)
{
    const size_t length = strcspn(text, "=");

    while (list->name && (strncmp(text, list->name, length) != 0 || list->name[length] != '\0'))
        list++;
    if (!list->name || text[length] != '=') {
        fprintf(stderr, "%s: no such setting\n", text);
        exit(2);
    }
    if (list->number)
        *list->number = atoi(text + length + 1);
    else if (list->real)
        *list->real = atof(text + length + 1);
    else
        *list->text = text + length + 1;
}

void settings_read(int argc, char **argv, const struct setting *list)
{
    for (int i = 1; i < argc; i++)
        settings_one(argv[i], list);
}
