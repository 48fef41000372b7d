/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the command line by the table. */
#include "options.h"

#include "bench/measure/driver.h"

#include <stdarg.h>
#include <string.h>

static char options_failure[ARGS_FAILURE];

static int options_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int options_wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(options_failure, sizeof(options_failure), format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- what belongs together ---- */

static int options_operations(struct options *options, int argc, char **argv)
{
    for (int a = 0; a < argc; a++) {
        const struct operation *operation = operation_find(argv[a]);

        if (!operation && strcmp(argv[a], "all") != 0)
            return options_wrong("'%s' is nothing to measure: give a collective such as "
                                 "all_reduce, or bw, bibw, latency, barrier, all",
                                 argv[a]);
        for (int k = 0; k < OPERATION_COUNT; k++)
            options->operations[k] =
                options->operations[k] || !operation || operation == &operation_table[k];
    }
    if (argc == 0 && !options->worker)
        return options_wrong("name what to measure: a collective such as all_reduce, or bw, bibw, "
                             "latency, barrier, all");
    return 0;
}

static int options_sizes(struct options *options)
{
    const char *colon = options->sizes ? strchr(options->sizes, ':') : NULL;
    char first[32];
    double value;

    if (colon) {
        snprintf(first, sizeof(first), "%.*s", (int)(colon - options->sizes), options->sizes);
        if (!args_number(first, true, &value) || value < 0 || value > 1e15)
            return options_wrong("-m %s: give [MIN:]MAX, as in 8:64M", options->sizes);
        options->least = (int64_t)value;
    }
    if (options->sizes) {
        if (!args_number(colon ? colon + 1 : options->sizes, true, &value) || value < 0 ||
            value > 1e15)
            return options_wrong("-m %s: give [MIN:]MAX, as in 8:64M", options->sizes);
        options->most = (int64_t)value;
    }
    if (options->least >= 0 && options->most >= 0 && options->least > options->most)
        return options_wrong("the smallest size is above the largest: give [MIN:]MAX, as in 8:64M");
    return 0;
}

static int options_names(struct options *options)
{
    int dtype = operation_dtype(options->dtype_name), op = operation_op(options->op_name);

    if (dtype < 0)
        return options_wrong("--dtype %s: give one such as float32, bfloat16, int64, uint8",
                             options->dtype_name);
    if (op < 0)
        return options_wrong("--op %s: give sum, avg, prod, min, max, band, bor, bxor or "
                             "premul_sum",
                             options->op_name);
    options->dtype = (dist_dtype)dtype;
    options->op = (dist_op)op;
    if (options->device)
        options->memory = options->device;
    if (!libdist_has_memory(options->memory))
        return options_wrong("--mem %s: this build does not support it; give malloc",
                             options->memory);
    return 0;
}

bool options_apart(const struct options *options)
{
    return strcmp(options->timing, "osu") == 0;
}

bool options_compares(const struct options *options)
{
    return options->compare || options->peers || options->peer || options->limit;
}

static int options_fit(struct options *options)
{
    bool compares = options_compares(options);

    if (!options->format)
        options->format = compares ? "table" : "osu";
    if (options_apart(options) && !options->buffers)
        options->buffers = 1;
    if (compares && options->ranks < 0 && !options->worker)
        return options_wrong("several libraries start their own ranks: say how many with -n");
    if (compares && options->window != options_defaults.window)
        return options_wrong("-W works without other libraries only: with them the window is 64");
    if (compares && options->backend)
        return options_wrong("--backend works without other libraries only: name it in --compare");
    if (options->ranks > 0 && options->root >= options->ranks)
        return options_wrong("--root %ld: there are ranks 0 to %ld", (long)options->root,
                             (long)options->ranks - 1);
    return 0;
}

int options_parse(int argc, char **argv, struct options *options_p, const char **failure_p)
{
    struct options options = options_defaults;
    int rest;

    *failure_p = options_failure;
    if (args_read(&options_args, argc, argv, &options, &rest, options_failure) != 0)
        return -1;
    if (options.action == OPTIONS_RUN &&
        (options_operations(&options, argc - rest, argv + rest) != 0 ||
         options_sizes(&options) != 0 || options_names(&options) != 0 ||
         options_fit(&options) != 0))
        return -1;
    *options_p = options;
    return 0;
}
