/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line: getopt_long, driven by the table. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "failure.h"
#include "options_table.h"

enum {
    OPTIONS_MOST = 128,       /* long names */
    OPTIONS_FIRST_ROW = 1000, /* getopt's value of row i is this + i, out of the way of letters */
    OPTIONS_LETTERS = 64
};

/* What getopt_long wants, made from the table. */
struct options_getopt {
    struct option names[OPTIONS_MOST];
    char letters[OPTIONS_LETTERS];
    int rows[256]; /* of each letter */
};

static bool options_takes_value(const struct options_row *row)
{
    return row->kind == OPTIONS_INT || row->kind == OPTIONS_REAL || row->kind == OPTIONS_TEXT;
}

const char *options_name(int i)
{
    for (int row = 0; row < options_count; row++) {
        if (!options_table[row].help)
            continue;
        if (i-- == 0)
            return options_table[row].name;
        if (options_table[row].second && i-- == 0)
            return options_table[row].second;
    }
    return NULL;
}

static void options_make_getopt(struct options_getopt *made)
{
    int names = 0, letters = 0;

    memset(made, 0, sizeof(*made));
    made->letters[letters++] = ':'; /* tell a missing value from an unknown option */
    for (int i = 0; i < options_count; i++) {
        const struct options_row *row = &options_table[i];
        const int value = options_takes_value(row) ? required_argument : no_argument;

        if (!row->help)
            continue;
        made->names[names++] = (struct option){row->name, value, NULL, OPTIONS_FIRST_ROW + i};
        if (row->second)
            made->names[names++] = (struct option){row->second, value, NULL, OPTIONS_FIRST_ROW + i};
        if (row->letter) {
            made->rows[(unsigned char)row->letter] = i;
            made->letters[letters++] = (char)row->letter;
            if (value == required_argument)
                made->letters[letters++] = ':';
        }
    }
}

static int options_set_int(const struct options_row *row, const char *text, int64_t *to)
{
    char *end;
    long long value;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || isspace((unsigned char)text[0]))
        return failure("--%s: '%s' is not a whole number", row->name, text);
    if (errno == ERANGE || (double)value < row->least || (double)value > row->most)
        return failure("--%s: %s is out of range, expected %.0f to %.0f", row->name, text,
                       row->least, row->most);
    *to = value;
    return 0;
}

static int options_set_real(const struct options_row *row, const char *text, double *to)
{
    char *end;
    double value;

    errno = 0;
    value = strtod(text, &end);
    if (end == text || *end != '\0' || isspace((unsigned char)text[0]) || isnan(value))
        return failure("--%s: '%s' is not a number", row->name, text);
    if (errno == ERANGE || value < row->least || value > row->most)
        return failure("--%s: %s is out of range, expected %g to %g", row->name, text, row->least,
                       row->most);
    *to = value;
    return 0;
}

/* Whether text is one of choices, "a|b|c". */
static bool options_is_choice(const char *choices, const char *text)
{
    const size_t length = strlen(text);

    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        if (strncmp(at, text, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return true;
    }
    return false;
}

static int options_set_text(const struct options_row *row, const char *text, const char **to)
{
    if (text[0] == '\0')
        return failure("--%s: the value is empty", row->name);
    if (strchr(row->argument, '|') && !options_is_choice(row->argument, text))
        return failure("--%s: '%s' is none of %s", row->name, text, row->argument);
    *to = text;
    return 0;
}

static int options_set(const struct options_row *row, const char *text, struct options *options)
{
    char *member = (char *)options + row->offset;

    switch (row->kind) {
    case OPTIONS_INT:
        return options_set_int(row, text, (int64_t *)(void *)member);
    case OPTIONS_REAL:
        return options_set_real(row, text, (double *)(void *)member);
    case OPTIONS_TEXT:
        return options_set_text(row, text, (const char **)(void *)member);
    case OPTIONS_FLAG:
        *(bool *)member = true;
        return 0;
    case OPTIONS_ACTION:
        options->action = (enum options_action)row->offset;
        return 0;
    }
    return -1;
}

/* Turns the underscores in the name of a long option into dashes; leaves values alone. */
static void options_normalise(char *argument)
{
    if (strncmp(argument, "--", 2) != 0)
        return;
    for (char *c = argument + 2; *c != '\0' && *c != '='; c++) {
        if (*c == '_')
            *c = '-';
    }
}

/* Whether the argument is this row's option, without a value. */
static bool options_is_row(const struct options_row *row, const char *argument)
{
    if (!row->help || argument[0] != '-')
        return false;
    if (argument[1] != '-')
        return row->letter && argument[1] == row->letter && argument[2] == '\0';
    return strcmp(argument + 2, row->name) == 0 ||
           (row->second && strcmp(argument + 2, row->second) == 0);
}

/* Whether the argument is an option whose value is the next argument. */
static bool options_wants_next(const char *argument)
{
    for (int i = 0; i < options_count; i++) {
        if (options_takes_value(&options_table[i]) && options_is_row(&options_table[i], argument))
            return true;
    }
    return false;
}

/* A copy of argv that may be changed. */
static int options_copy_arguments(int argc, char *const argv[], struct options *options)
{
    bool value = false, over = false;

    options->arguments = calloc((size_t)argc + 1, sizeof(*options->arguments));
    if (!options->arguments)
        return failure("out of memory for the command line");
    for (int i = 0; i < argc; i++) {
        char *copy = strdup(argv[i]);

        if (!copy)
            return failure("out of memory for the command line");
        over = over || (!value && strcmp(copy, "--") == 0);
        if (!over && !value)
            options_normalise(copy);
        value = !value && options_wants_next(copy);
        options->arguments[i] = copy;
    }
    return 0;
}

static int options_read(int argc, struct options *options)
{
    struct options_getopt made;
    int value;

    options_make_getopt(&made);
    optind = 0; /* start over: a test parses many command lines */
    opterr = 0;
    while ((value = getopt_long(argc, options->arguments, made.letters, made.names, NULL)) != -1) {
        const char *argument = options->arguments[optind - 1];

        if (value == ':')
            return failure("%s: a value is missing", argument);
        if (value == '?' && optopt > 0 && optopt < 256)
            return failure("-%c: there is no such option", optopt);
        if (value == '?')
            return failure("%s: %s", argument,
                           optopt ? "takes no value" : "there is no such option, or several fit");
        value = value < OPTIONS_FIRST_ROW ? made.rows[value] : value - OPTIONS_FIRST_ROW;
        if (options_set(&options_table[value], optarg, options) < 0)
            return -1;
        if (options->action != OPTIONS_RUN)
            return 0;
    }
    if (optind < argc)
        return failure("'%s': unexpected argument; a folder of data is given with --data",
                       options->arguments[optind]);
    return 0;
}

/* What no option can say by itself. */
static int options_check(const struct options *options)
{
    if (options->data && options->dummy)
        return failure("--data and --dummy exclude each other");
    if (options->dist_url && (options->addr || options->port >= 0))
        return failure("--dist-url and --addr/--port exclude each other: both say where to meet");
    if (options->rank >= 0 && options->spawn)
        return failure("--rank has no meaning with --multiprocessing-distributed, which starts all "
                       "ranks (--rank and --world-size count processes, not nodes)");
    if (options->rank >= 0 && options->world_size >= 0 && options->rank >= options->world_size)
        return failure("--rank: %" PRId64 " is out of range: with --world-size %" PRId64
                       " the ranks are 0 to %" PRId64,
                       options->rank, options->world_size, options->world_size - 1);
    if (options->evaluate && options->dry_run)
        return failure("--evaluate and --dry-run exclude each other");
    return 0;
}

int options_parse(int argc, char *const argv[], struct options *options)
{
    struct options read = options_defaults;

    if (options_copy_arguments(argc, argv, &read) < 0 || options_read(argc, &read) < 0 ||
        (read.action == OPTIONS_RUN && options_check(&read) < 0)) {
        options_free(&read);
        return -1;
    }
    if (read.lr < 0.0)
        read.lr = strcmp(read.optimizer, "sgd") == 0 ? 0.01 : 1.0;
    *options = read;
    return 0;
}

void options_free(struct options *options)
{
    for (char **argument = options->arguments; argument && *argument; argument++)
        free(*argument);
    free(options->arguments);
    options->arguments = NULL;
}
