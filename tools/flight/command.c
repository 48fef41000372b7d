/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_info flight FILE...: the command. */
#include "flight.h"

#include "../common/args.h"

#include <stdio.h>

static int flight_usage(FILE *to, int code)
{
    fprintf(to, "usage: dist_info flight FILE...\nSays which rank of a job is behind, or called "
                "something else than the others, by the\nfiles that the flight recorders of its "
                "ranks have written: dist-flight.HOST.PID.json,\nafter a time-out, or when a "
                "process gets SIGUSR1.\n");
    return code;
}

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
    static const struct args_row rows[] = {
        {.names = "help", .letter = 'h', .kind = ARGS_ACTION, .least = 1}};
    static const struct args args = {.rows = rows, .count = 1};
    char failure[ARGS_FAILURE];
    int action = 0, rest;

    if (args_read(&args, argc, argv, &action, &rest, failure) != 0) {
        fprintf(stderr, "dist_info: %s\n", failure);
        return flight_usage(stderr, 2);
    }
    if (action)
        return flight_usage(stdout, 0);
    if (rest == argc) {
        fprintf(stderr, "dist_info: flight needs the files to read\n");
        return flight_usage(stderr, 2);
    }
    return flight_run(argv + rest, argc - rest);
}
