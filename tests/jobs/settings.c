/* SPDX-License-Identifier: BSD-3-Clause */
/* Main function of a test program that runs as a rank of a job, with NAME=VALUE arguments. */
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

int settings_main(int argc, char **argv, const struct setting *list, int (*run)(dist_group *group))
{
    dist_group *group = NULL;
    int result = 1;

    for (int i = 1; i < argc; i++)
        settings_one(argv[i], list);
    if (dist_init_process_group(NULL, &group) == DIST_OK)
        result = run(group);
    else
        fprintf(stderr, "%s: join: %s\n", argv[0], dist_last_error());
    if (dist_destroy_process_group(group) != DIST_OK && result == 0) {
        fprintf(stderr, "%s: leave: %s\n", argv[0], dist_last_error());
        result = 1;
    }
    return result;
}
