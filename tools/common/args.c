/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the command line: getopt_long, driven by the table. */
#include "args.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
    ARGS_NAMES = 256,      /* long ones, those with underscores included */
    ARGS_TEXT_MAX = 4096,  /* of all of them */
    ARGS_FIRST_ROW = 1000, /* getopt's value of row i is this + i, out of the way of letters */
};

/* What getopt_long wants, made from the table. */
struct args_getopt {
    struct option longs[ARGS_NAMES + 1];
    char shorts[2 * 64];
    char text[ARGS_TEXT_MAX];
    int count;
    size_t used;
};

/* Where the words go, and what is wrong with them. */
struct args_reading {
    const struct args_row *row;
    char *member;
    char name[48]; /* of the row, the first one */
    char *failure;
};

static int args_reject(const struct args_reading *reading, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int args_reject(const struct args_reading *reading, const char *format, ...)
{
    int length = snprintf(reading->failure, ARGS_FAILURE, "--%s: ", reading->name);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(reading->failure + length, ARGS_FAILURE - (size_t)length, format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- values ---- */

bool args_number(const char *text, bool bytes, double *value_p)
{
    static const char units[] = "KMGT";
    const char *unit;
    char *end;

    errno = 0;
    *value_p = strtod(text, &end);
    if (end == text || isspace((unsigned char)text[0]) || isnan(*value_p))
        return false;
    unit = bytes && *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
    if (unit)
        *value_p = ldexp(*value_p, 10 * (int)(unit - units + 1));
    return !end[unit ? 1 : 0];
}

static int args_set_number(const struct args_reading *reading, const char *text)
{
    const struct args_row *row = reading->row;
    const bool real = row->kind == ARGS_REAL;
    double value;

    if (!args_number(text, row->kind == ARGS_BYTES, &value) ||
        (!real && isfinite(value) && value != floor(value)))
        return args_reject(reading, "'%s' is not a %s", text,
                           real                      ? "number"
                           : row->kind == ARGS_BYTES ? "number of bytes, such as 8, 64K or 2M"
                                                     : "whole number");
    if (!(value >= row->least && value <= row->most))
        return args_reject(reading, "%s is out of range, expected %.16g to %.16g", text, row->least,
                           row->most);
    if (real)
        *(double *)(void *)reading->member = value;
    else
        *(int64_t *)(void *)reading->member = (int64_t)value;
    return 0;
}

/* Whether text is one of choices, "a|b|c". */
static bool args_is_choice(const char *choices, const char *text)
{
    const size_t length = strlen(text);

    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        if (strncmp(at, text, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return true;
    }
    return false;
}

static int args_set_text(const struct args_reading *reading, const char *text)
{
    if (!*text)
        return args_reject(reading, "the value is empty");
    if (reading->row->kind == ARGS_CHOICE && !args_is_choice(reading->row->argument, text))
        return args_reject(reading, "'%s' is none of %s", text, reading->row->argument);
    *(const char **)(void *)reading->member = text;
    return 0;
}

static int args_add_text(const struct args_reading *reading, const char *text)
{
    const char **texts = (const char **)(void *)reading->member;
    int count = 0;

    while (texts[count])
        count++;
    if (!*text)
        return args_reject(reading, "the value is empty");
    if (count == ARGS_TEXTS_ROOM - 1)
        return args_reject(reading, "more than %d of them", count);
    texts[count] = text;
    return 0;
}

static int args_set(const struct args_reading *reading, const char *text)
{
    switch (reading->row->kind) {
    case ARGS_ACTION:
        *(int *)(void *)reading->member = (int)reading->row->least;
        return 0;
    case ARGS_FLAG:
        *(bool *)reading->member = true;
        return 0;
    case ARGS_SWITCH:
        if (text && strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
            return args_reject(reading, "'%s' is neither 0 nor 1", text);
        *(bool *)reading->member = !text || *text == '1';
        return 0;
    case ARGS_TEXTS:
        return args_add_text(reading, text);
    case ARGS_TEXT:
    case ARGS_CHOICE:
        return args_set_text(reading, text);
    default:
        return args_set_number(reading, text);
    }
}

/* ---- getopt's tables ---- */

static int args_needs(const struct args_row *row)
{
    return row->kind == ARGS_FLAG || row->kind == ARGS_ACTION ? no_argument
           : row->kind == ARGS_SWITCH                         ? optional_argument
                                                              : required_argument;
}

/* One long name of row i, of that length; `dash` stands between its words. */
static void args_add_name(struct args_getopt *made, const struct args *args, int i,
                          const char *name, size_t length, char dash)
{
    char *copy = made->text + made->used;

    if (made->count == ARGS_NAMES || made->used + length >= ARGS_TEXT_MAX)
        return;
    memcpy(copy, name, length);
    for (char *c = copy; c < copy + length; c++)
        *c = *c == '-' ? dash : *c;
    made->used += length + 1;
    made->longs[made->count++] =
        (struct option){copy, args_needs(&args->rows[i]), NULL, ARGS_FIRST_ROW + i};
}

static bool args_is_option(const struct args_row *row)
{
    return row->kind != ARGS_GROUP && row->kind != ARGS_WORDS;
}

static void args_make_getopt(const struct args *args, struct args_getopt *made)
{
    char *letter = made->shorts;

    memset(made, 0, sizeof(*made));
    if (args->stops)
        *letter++ = '+';
    *letter++ = ':'; /* tell a missing value from an unknown option */
    for (int i = 0; i < args->count; i++) {
        const struct args_row *row = &args->rows[i];

        for (const char *name = row->names; args_is_option(row) && *name;) {
            const size_t length = strcspn(name, ",");

            args_add_name(made, args, i, name, length, '-');
            if (memchr(name, '-', length))
                args_add_name(made, args, i, name, length, '_');
            name += length + (name[length] == ',');
        }
        if (row->letter)
            *letter++ = (char)row->letter;
        if (row->letter && args_needs(row) == required_argument)
            *letter++ = ':';
    }
}

/* The row that getopt's value stands for. */
static const struct args_row *args_row(const struct args *args, int value)
{
    if (value >= ARGS_FIRST_ROW)
        return &args->rows[value - ARGS_FIRST_ROW];
    for (int i = 0; i < args->count; i++) {
        if (args->rows[i].letter == value)
            return &args->rows[i];
    }
    return NULL;
}

/* What getopt has stopped at. */
static int args_refuse(int value, const char *argument, char failure[ARGS_FAILURE])
{
    if (value == ':')
        snprintf(failure, ARGS_FAILURE, "%s: a value is missing", argument);
    else if (optopt >= ARGS_FIRST_ROW)
        snprintf(failure, ARGS_FAILURE, "%s: takes no value", argument);
    else if (optopt)
        snprintf(failure, ARGS_FAILURE, "-%c: there is no such option", optopt);
    else
        snprintf(failure, ARGS_FAILURE, "%s: there is no such option, or several fit", argument);
    return -1;
}

int args_read(const struct args *args, int argc, char *const argv[], void *values, int *rest_p,
              char failure[ARGS_FAILURE])
{
    static struct args_getopt made; /* too large for a small stack */
    int value, result = 0;

    *rest_p = argc;
    if (argc > 1 && strcmp(argv[argc - 1], "--complete-for-shell") == 0) {
        args_complete(args, argc - 2, argv + 1);
        exit(fflush(stdout) == 0 ? 0 : 1);
    }
    args_make_getopt(args, &made);
    optind = 0; /* start over: a program may read several command lines */
    opterr = 0;
    while (result == 0 && (value = getopt_long(argc, argv, made.shorts, made.longs, NULL)) != -1) {
        struct args_reading reading = {.failure = failure};

        if (value == ':' || value == '?')
            return args_refuse(value, argv[optind - 1], failure);
        reading.row = args_row(args, value);
        reading.member = (char *)values + reading.row->offset;
        snprintf(reading.name, sizeof(reading.name), "%.*s", (int)strcspn(reading.row->names, ","),
                 reading.row->names);
        result = args_set(&reading, optarg);
        if (reading.row->kind == ARGS_ACTION)
            break;
    }
    if (result == 0)
        *rest_p = optind;
    return result;
}
