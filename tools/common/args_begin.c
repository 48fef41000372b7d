/* SPDX-License-Identifier: BSD-3-Clause */
/* The answers to a command line that all programs share: help, version, refusal. */
#include "args.h"

#include <dist/dist.h>
#include <stdarg.h>
#include <string.h>

#include "output.h"

int args_wrong(const struct args *args, const char *format, ...)
{
    va_list arguments;

    fprintf(stderr, "%s: ", args->program);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nTry '%s --help'.\n", args->program);
    return 2;
}

void args_version(const struct args *args)
{
    printf("%.*s (libdist) %s\n", (int)strcspn(args->program, " "), args->program, dist_version());
}

/* The action that was read: all rows of one table have the same member. */
static int begin_action(const struct args *args, const void *values)
{
    for (int i = 0; i < args->count; i++) {
        if (args->rows[i].kind == ARGS_ACTION)
            return *(const int *)(const void *)((const char *)values + args->rows[i].offset);
    }
    return ARGS_RUN;
}

int args_begin(const struct args *args, int argc, char *const argv[], void *values, int words,
               int *rest_p)
{
    char failure[ARGS_FAILURE];

    if (args_read(args, argc, argv, values, rest_p, failure) != 0)
        return args_wrong(args, "%s", failure);
    switch (begin_action(args, values)) {
    case ARGS_SHOW_HELP:
        args_help(args, stdout);
        return 0;
    case ARGS_SHOW_VERSION:
        args_version(args);
        return 0;
    default:
        break;
    }
    if (argc - *rest_p > words)
        return args_wrong(args, "unknown argument '%s'", argv[*rest_p + words]);
    return -1;
}
