/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the command line by the table. */
#include "options.h"

#include "options_table.h"
#include "subject.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS_LONG = 1000, OPTIONS_NAMES_MAX = 128 };

static char options_failure[256];

static int options_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int options_wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(options_failure, sizeof(options_failure), format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- values ---- */

static int options_number(const char *text, bool bytes, double *value_p)
{
    static const char units[] = "KMGT";
    char *end;
    const char *unit;

    errno = 0;
    *value_p = strtod(text, &end);
    if (end == text || errno)
        return -1;
    unit = bytes && *end ? strchr(units, *end & ~0x20) : NULL;
    for (const char *u = units; unit && u <= unit; u++)
        *value_p *= 1024;
    end += unit != NULL;
    return *end ? -1 : 0;
}

static bool options_is_choice(const char *choices, const char *text)
{
    size_t length = strlen(text);

    for (const char *at = choices; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (length && strncmp(at, text, length) == 0 && (at[length] == '|' || !at[length]))
            return true;
    }
    return false;
}

static int options_set_number(const struct options_row *row, const char *name, const char *text,
                              void *member)
{
    double value;

    if (options_number(text, row->kind == OPTIONS_BYTES, &value) != 0 || !(value >= row->least) ||
        value > row->most || (row->kind != OPTIONS_REAL && value != (double)(int64_t)value))
        return options_wrong("--%s %s: give a %snumber from %.10g to %.10g", name, text,
                             row->kind == OPTIONS_REAL ? "" : "whole ", row->least, row->most);
    if (row->kind == OPTIONS_REAL)
        *(double *)member = value;
    else
        *(int64_t *)member = (int64_t)value;
    return 0;
}

static int options_set(struct options *options, const struct options_row *row, const char *text)
{
    void *member = (char *)options + row->offset;
    char name[32];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(row->names, ","), row->names);
    switch (row->kind) {
    case OPTIONS_ACTION:
        options->action = (enum options_action)row->offset;
        return 0;
    case OPTIONS_FLAG:
        *(bool *)member = true;
        return 0;
    case OPTIONS_FLAG_01:
        if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return options_wrong("--%s=%s: give 0 or 1, or nothing", name, text);
        *(bool *)member = !text || *text == '1';
        return 0;
    case OPTIONS_CHOICE:
        if (!options_is_choice(row->argument, text))
            return options_wrong("--%s %s: give one of %s", name, text, row->argument);
        /* fall through */
    case OPTIONS_TEXT:
        *(const char **)member = text;
        return 0;
    default:
        return options_set_number(row, name, text, member);
    }
}

/* ---- getopt's tables ---- */

static int options_needs(const struct options_row *row)
{
    return row->kind == OPTIONS_FLAG || row->kind == OPTIONS_ACTION ? no_argument
           : row->kind == OPTIONS_FLAG_01                           ? optional_argument
                                                                    : required_argument;
}

/* Fills both tables; the names are cut out of a copy of the table's. */
static void options_tables(struct option *longs, char *shorts, char *names, size_t room)
{
    *shorts++ = ':';
    for (int i = 0; i < options_count; i++) {
        const struct options_row *row = &options_table[i];
        size_t length = strlen(row->names) + 1;

        if (length == 1 || length > room)
            continue;
        memcpy(names, row->names, length);
        for (char *name = strtok(names, ","); name; name = strtok(NULL, ","))
            *longs++ = (struct option){name, options_needs(row), NULL, OPTIONS_LONG + i};
        names += length;
        room -= length;
        if (!row->letter)
            continue;
        *shorts++ = (char)row->letter;
        if (options_needs(row) == required_argument)
            *shorts++ = ':';
    }
    *shorts = '\0';
}

static const struct options_row *options_row(int code)
{
    if (code >= OPTIONS_LONG)
        return &options_table[code - OPTIONS_LONG];
    for (int i = 0; i < options_count; i++) {
        if (options_table[i].letter == code)
            return &options_table[i];
    }
    return NULL;
}

/* ---- what belongs together ---- */

static int options_kinds(struct options *options, int argc, char **argv)
{
    for (int a = 0; a < argc; a++) {
        const struct kind *kind = kind_find(argv[a]);

        if (!kind && strcmp(argv[a], "all") != 0)
            return options_wrong("'%s' is nothing to measure: give a collective such as "
                                 "all_reduce, or bw, bibw, latency, barrier, all",
                                 argv[a]);
        for (int k = 0; k < KIND_COUNT; k++)
            options->kinds[k] = options->kinds[k] || !kind || kind == &kind_table[k];
    }
    if (argc == 0 && !options->worker)
        return options_wrong("say what to measure: a collective such as all_reduce, or bw, "
                             "bibw, latency, barrier, all");
    return 0;
}

static int options_sizes(struct options *options)
{
    const char *colon = options->sizes ? strchr(options->sizes, ':') : NULL;
    char first[32];
    double value;

    if (colon) {
        snprintf(first, sizeof(first), "%.*s", (int)(colon - options->sizes), options->sizes);
        if (options_number(first, true, &value) != 0 || value < 0 || value > 1e15)
            return options_wrong("-m %s: give [MIN:]MAX, as in 8:64M", options->sizes);
        options->least = (int64_t)value;
    }
    if (options->sizes) {
        if (options_number(colon ? colon + 1 : options->sizes, true, &value) != 0 || value < 0 ||
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
    int dtype = kind_dtype(options->dtype_name), op = kind_op(options->op_name);

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
    if (!ours_has_memory(options->memory))
        return options_wrong("--mem %s: this build has none of it; give malloc", options->memory);
    return 0;
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
    if (compares && options->ranks < 0 && !options->worker)
        return options_wrong("several contestants start their own ranks: say how many with -n");
    if (compares && options->window != options_defaults.window)
        return options_wrong("-W goes without other contestants: all of them have a window of 64");
    if (compares && options->backend)
        return options_wrong("--backend goes without other contestants: name it in --compare");
    if (options->ranks > 0 && options->root >= options->ranks)
        return options_wrong("--root %ld: there are ranks 0 to %ld", (long)options->root,
                             (long)options->ranks - 1);
    return 0;
}

static int options_read(struct options *options, int argc, char **argv, const struct option *longs,
                        const char *shorts)
{
    int code;

    opterr = 0;
    optind = 1;
    while ((code = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const struct options_row *row = options_row(code);

        if (code == ':')
            return options_wrong("%s wants a value", argv[optind - 1]);
        if (code == '?' || !row)
            return options_wrong("there is no option %s", argv[optind - 1]);
        if (options_set(options, row, optarg) != 0)
            return -1;
        if (row->kind == OPTIONS_ACTION)
            return 0;
    }
    return options_kinds(options, argc - optind, argv + optind);
}

int options_parse(int argc, char **argv, struct options *options_p, const char **failure_p)
{
    struct option longs[OPTIONS_NAMES_MAX] = {{0}};
    char shorts[2 * OPTIONS_NAMES_MAX], names[2048];
    struct options options = options_defaults;

    *failure_p = options_failure;
    options_tables(longs, shorts, names, sizeof(names));
    if (options_read(&options, argc, argv, longs, shorts) != 0 ||
        (options.action == OPTIONS_RUN &&
         (options_sizes(&options) != 0 || options_names(&options) != 0 ||
          options_fit(&options) != 0)))
        return -1;
    *options_p = options;
    return 0;
}
