/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info flight FILE...: the command. */
#include "flight.h"

#include "../common/args.h"

#include <stdio.h>

static int flight_run(char **paths, int count)
{
    struct flight_group *groups = NULL;
    char failure[FLIGHT_FAILURE];
    int code = 0;

    for (int i = 0; i < count && !code; i++) {
        if (flight_read(paths[i], &groups, failure))
            continue;
        fprintf(stderr, "dist_info: %s\n", failure);
        code = 1;
    }
    for (const struct flight_group *group = groups; group && !code; group = group->next)
        flight_say(group);
    if (!groups && !code)
        printf("no group was there when the files were written\n");
    flight_free(groups);
    return code;
}

int flight_main(int argc, char **argv)
{
    struct words {
        int action;
    } words = {0};
    static const struct args_row rows[] = {ARGS_HELP_ROWS(struct words, 0)};
    static const struct args args = {
        .rows = rows,
        .count = sizeof(rows) / sizeof(rows[0]),
        .program = "dist_info flight",
        .usage = "FILE...",
        .about = "Says which rank of a job is behind, or called something else than the other "
                 "ranks. The files are those that the flight recorders of the ranks have written, "
                 "dist-flight.RANK.json, after a time-out or on SIGUSR1.\n"};
    int rest, code = args_begin(&args, argc, argv, &words, argc, &rest);

    if (code >= 0)
        return code;
    if (rest == argc)
        return args_wrong(&args, "name the files to read");
    return flight_run(argv + rest, argc - rest);
}
