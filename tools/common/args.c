/* SPDX-License-Identifier: BSD-3-Clause */
/* Parsing, help, version and shell completion of command lines. */
#include "args.h"
#include "output.h"

#include <ctype.h>
#include <dist/dist.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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

int args_begin(const struct args *args, int argc, char *const argv[], void *values, int words,
               int *rest_p)
{
    char failure[ARGS_FAILURE];
    int action = ARGS_RUN;

    if (args_read(args, argc, argv, values, rest_p, failure) != 0)
        return args_wrong(args, "%s", failure);
    for (int i = 0; i < args->count; i++) { /* all ARGS_ACTION rows of a table share one member */
        if (args->rows[i].kind == ARGS_ACTION)
            action = *(const int *)(const void *)((const char *)values + args->rows[i].offset);
    }
    if (action == ARGS_SHOW_HELP)
        args_help(args, stdout);
    if (action == ARGS_SHOW_VERSION)
        args_version(args);
    if (action == ARGS_SHOW_HELP || action == ARGS_SHOW_VERSION)
        return 0;
    if (argc - *rest_p > words)
        return args_wrong(args, "unknown argument '%s'", argv[*rest_p + words]);
    return -1;
}

int args_begin_bare(struct args *args, int argc, char *const argv[], int words, int *rest_p)
{
    struct words {
        int action;
    } values = {0};
    static const struct args_row rows[] = {ARGS_HELP_ROWS(struct words, 0)};

    args->rows = rows;
    args->count = sizeof(rows) / sizeof(rows[0]);
    return args_begin(args, argc, argv, &values, words, rest_p);
}

/* The help text, generated from the table. */

enum {
    HELP_LEAST = 40, /* minimum and maximum width in columns */
    HELP_MOST = 80,
    HELP_WIDE = 64,   /* output of this width or more has two columns */
    HELP_COLUMN = 32, /* column of the text beside an option */
    HELP_BELOW = 10,  /* column of the text below an option */
    HELP_USAGE = 11,  /* column of the second line of a usage */
};

static int help_width(FILE *to)
{
    const char *text = getenv("COLUMNS");
    int width = text ? atoi(text) : 0;
    struct winsize size;

    if (width <= 0 && isatty(fileno(to)) && ioctl(fileno(to), TIOCGWINSZ, &size) == 0)
        width = size.ws_col;
    if (width <= 0)
        return HELP_MOST;
    return width < HELP_LEAST ? HELP_LEAST : width > HELP_MOST ? HELP_MOST : width;
}

/* Returns the length of the first word of text. A bracketed phrase counts as one word if it is at
 * most `room` long. */
static int help_word(const char *text, int room)
{
    const int plain = (int)strcspn(text, " ");
    int depth = 0, length = 0;

    for (; text[length] && (depth > 0 || text[length] != ' '); length++)
        depth += (text[length] == '[') - (text[length] == ']');
    return length <= room ? length : plain;
}

/* Returns how many bytes of a word to print on this line. A word longer than `room` is split after
 * a "|" or ",", if there is one within `room`. */
static int help_piece(const char *text, int length, int room)
{
    for (int i = room; i > 0 && length > room; i--) {
        if (text[i - 1] == '|' || text[i - 1] == ',')
            return i;
    }
    return length;
}

/*
 * Prints `length` bytes of text, wrapped at `width`. The cursor is at column `at`; lines after the
 * first are indented by `indent`. Returns the new column of the cursor.
 */
static int help_wrap(const char *text, int length, int at, int indent, int width, FILE *to)
{
    const char *end = text + length;

    while (text < end) {
        int blanks = (int)strspn(text, " "), word;

        if (text + blanks >= end)
            break;
        word = help_word(text + blanks, width - indent);
        word = word < end - text - blanks ? word : (int)(end - text) - blanks;
        if (at + blanks + word > width && at > indent) {
            fprintf(to, "\n%*s", indent, "");
            text += blanks;
            at = indent;
            blanks = 0;
        }
        word = help_piece(text + blanks, word, width - at - blanks);
        fprintf(to, "%*s%.*s", blanks, "", word, text + blanks);
        at += blanks + word;
        text += blanks + word;
    }
    return at;
}

void args_text(const char *text, FILE *to)
{
    const int width = help_width(to);

    while (*text) {
        const int length = (int)strcspn(text, "\n"), blanks = (int)strspn(text, " ");

        help_wrap(text, length, 0, blanks ? blanks + 4 : 0, width, to);
        fputc('\n', to);
        text += length + (text[length] == '\n');
    }
}

/* Prints text starting at `column`, after a name that ends at column `at`. */
static void help_beside(const char *text, int at, int column, FILE *to)
{
    const int width = help_width(to);

    if (!*text) {
        fputc('\n', to);
        return;
    }
    if (width < HELP_WIDE && column > HELP_BELOW)
        column = HELP_BELOW;
    if (at >= column - 1) {
        fputc('\n', to);
        at = 0;
    }
    fprintf(to, "%*s", column - at, "");
    help_wrap(text, (int)strlen(text), column, column, width, to);
    fputc('\n', to);
}

void args_item(const char *name, int column, const char *text, FILE *to)
{
    help_beside(text, fprintf(to, "  %s", name), column, to);
}

void args_help(const struct args *args, FILE *to)
{
    const int width = help_width(to);
    const char *line = args->usage;

    for (const char *before = "usage: "; before; before = *line ? "       " : NULL) {
        const int length = (int)strcspn(line, "\n");
        const int at = fprintf(to, "%s%s", before, args->program);
        char words[1024];

        snprintf(words, sizeof(words), " %.*s", length, line);
        help_wrap(words, (int)strlen(words), at, HELP_USAGE, width, to);
        fputc('\n', to);
        line += length + (line[length] == '\n');
    }
    args_text(args->about, to);
    for (int i = 0; i < args->count; i++) {
        if (args->rows[i].kind == ARGS_GROUP) {
            char heading[128];

            snprintf(heading, sizeof(heading), "\n%s:\n", args->rows[i].names);
            args_text(heading, to);
        } else if (args->rows[i].kind != ARGS_WORDS && args->rows[i].help) {
            char names[256];
            int used = 0, at;

            for (const char *name = args->rows[i].names; *name && used < (int)sizeof(names);) {
                const int length = (int)strcspn(name, ",");

                used += snprintf(names + used, sizeof(names) - (size_t)used, "--%.*s%s", length,
                                 name, name[length] ? ", " : "");
                name += length + (name[length] == ',');
            }
            if (args->rows[i].argument && used < (int)sizeof(names))
                used += snprintf(names + used, sizeof(names) - (size_t)used, "=%s",
                                 args->rows[i].argument);
            if (args->rows[i].kind == ARGS_SWITCH && used < (int)sizeof(names))
                snprintf(names + used, sizeof(names) - (size_t)used, "[=0|1]");
            at = args->rows[i].letter ? fprintf(to, "  -%c, ", args->rows[i].letter)
                                      : fprintf(to, "      ");
            at = help_wrap(names, (int)strlen(names), at, at, help_width(to), to);
            help_beside(args->rows[i].help, at, HELP_COLUMN, to);
        }
    }
    if (args->after)
        args_text(args->after, to);
}

/* Completion of command lines for the shell, generated from the table. */

/* Prints prefix and item for each item of `list` that completes `partial`. */
static void complete_list(const char *partial, const char *prefix, const char *list, char separator)
{
    const size_t typed = strlen(partial), begin = strlen(prefix);

    while (*list) {
        const size_t length = (size_t)(strchrnul(list, separator) - list);

        if (typed <= begin + length &&
            strncmp(partial, prefix, typed < begin ? typed : begin) == 0 &&
            (typed <= begin || strncmp(partial + begin, list, typed - begin) == 0))
            printf("%s%.*s\n", prefix, (int)length, list);
        list += length + (list[length] == separator);
    }
}

/* True if `name`, written with dashes or underscores, is one of the row's long names. */
static bool complete_has_name(const struct args_row *row, const char *name)
{
    const size_t length = strlen(name);

    for (const char *at = row->names; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t i = 0;

        while (i < length && (at[i] == name[i] || (at[i] == '-' && name[i] == '_')))
            i++;
        if (i == length && (at[i] == ',' || at[i] == '\0'))
            return true;
    }
    return false;
}

/* True if `option` is an option of the row: "--name", "-n", "-nVALUE" or, with one dash, "-name".
 */
static bool complete_is(const struct args_row *row, const char *option)
{
    if (row->kind == ARGS_GROUP || row->kind == ARGS_WORDS)
        return false;
    if (option[1] == '-')
        return complete_has_name(row, option + 2);
    return row->letter == option[1] || complete_has_name(row, option + 1);
}

static const struct args_row *complete_row(const struct args *args, const char *option)
{
    if (option[0] != '-' || !option[1])
        return NULL;
    for (int i = 0; i < args->count; i++) {
        if (complete_is(&args->rows[i], option))
            return &args->rows[i];
    }
    return NULL;
}

/* True if the option's value is the next word, or the word after '=' if `equals`. */
static bool complete_takes_value(const struct args *args, const char *option, bool equals)
{
    const struct args_row *row = complete_row(args, option);

    if (!row || row->kind == ARGS_FLAG || row->kind == ARGS_ACTION)
        return false;
    if (row->kind == ARGS_SWITCH)
        return equals;
    return option[1] == '-' || !option[2] || complete_has_name(row, option + 1);
}

/* True if a word before the last one names a program to run. */
static bool complete_is_after_program(const struct args *args, int count, char *const *words)
{
    for (int w = 0; args->stops && w < count - 1; w++) {
        const bool equals = strcmp(words[w + 1], "=") == 0;

        if (words[w][0] != '-' || strcmp(words[w], "--") == 0)
            return true;
        if (equals || complete_takes_value(args, words[w], false))
            w += 1 + equals;
    }
    return false;
}

/*
 * Prints the completions of the last word: names of options, an option's choices, or words of the
 * ARGS_WORDS row. Prints nothing if any text is valid there, or if the word is an argument of a
 * program to run: the shell then offers files.
 */
static void args_complete(const struct args *args, int count, char *const *words)
{
    /* bash passes an option's '=' as a separate word. */
    const char *partial = count > 0 ? words[count - 1] : "";
    bool equals = strcmp(partial, "=") == 0;
    int option = count - 2; /* index of the option whose value the last word may be */

    if (equals)
        partial = "";
    else if (count > 2 && strcmp(words[count - 2], "=") == 0)
        equals = true, option--;
    if (complete_is_after_program(args, count, words))
        return;
    if (option >= 0 && complete_takes_value(args, words[option], equals)) {
        const struct args_row *row = complete_row(args, words[option]);

        if (row->kind == ARGS_CHOICE || row->kind == ARGS_SWITCH)
            complete_list(partial, "", row->kind == ARGS_SWITCH ? "0|1" : row->argument, '|');
        return;
    }
    for (int i = 0; i < args->count; i++) {
        const struct args_row *row = &args->rows[i];

        if (row->kind == ARGS_WORDS && partial[0] != '-')
            complete_list(partial, "", row->argument, '|');
        else if (row->kind != ARGS_GROUP && row->kind != ARGS_WORDS && partial[0] == '-')
            complete_list(partial, "--", row->names, ',');
    }
}

/* Parsing: getopt_long, driven by the table. */

enum {
    ARGS_NAMES = 256,      /* maximum number of long names, including those with underscores */
    ARGS_TEXT_MAX = 4096,  /* total length of the long names */
    ARGS_FIRST_ROW = 1000, /* getopt's value of row i is ARGS_FIRST_ROW + i, above all letters */
};

/* The arguments of getopt_long, generated from the table. */
struct args_getopt {
    struct option longs[ARGS_NAMES + 1];
    char shorts[2 * 64];
    char text[ARGS_TEXT_MAX];
    int count;
    size_t used;
};

/* One option that is being parsed. */
struct args_reading {
    const struct args_row *row;
    char *member;
    char name[48]; /* the first name of the row */
    char *failure; /* receives the error message */
};

__attribute__((format(printf, 2, 3))) static int args_reject(const struct args_reading *reading,
                                                             const char *format, ...)
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

/* True if text is one of choices, "a|b|c". */
static bool args_is_choice(const char *choices, const char *text)
{
    const size_t length = strlen(text);

    for (const char *at = choices; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        if (strncmp(at, text, length) == 0 && (at[length] == '|' || at[length] == '\0'))
            return true;
    }
    return false;
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
    case ARGS_TEXTS: {
        const char **texts = (const char **)(void *)reading->member;
        int count = 0;

        while (texts[count])
            count++;
        if (!*text)
            return args_reject(reading, "the value is empty");
        if (count == ARGS_TEXTS_MAX - 1)
            return args_reject(reading, "given more than %d times", count);
        texts[count] = text;
        return 0;
    }
    case ARGS_TEXT:
    case ARGS_CHOICE:
        if (!*text)
            return args_reject(reading, "the value is empty");
        if (reading->row->kind == ARGS_CHOICE && !args_is_choice(reading->row->argument, text))
            return args_reject(reading, "'%s' is not one of %s", text, reading->row->argument);
        *(const char **)(void *)reading->member = text;
        return 0;
    default:
        break;
    }
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

/* ---- getopt's tables ---- */

static int args_needs(const struct args_row *row)
{
    return row->kind == ARGS_FLAG || row->kind == ARGS_ACTION ? no_argument
           : row->kind == ARGS_SWITCH                         ? optional_argument
                                                              : required_argument;
}

/* Adds a long name of row i, with `dash` in place of each '-'. */
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

/* Returns the row for a return value of getopt_long, or NULL. */
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
    char *letter = made.shorts;

    memset(&made, 0, sizeof(made));
    if (args->stops)
        *letter++ = '+';
    *letter++ = ':'; /* getopt_long returns ':' for a missing value, '?' for an unknown option */
    for (int i = 0; i < args->count; i++) {
        const struct args_row *row = &args->rows[i];

        for (const char *name = row->names;
             row->kind != ARGS_GROUP && row->kind != ARGS_WORDS && *name;) {
            const size_t length = strcspn(name, ",");

            args_add_name(&made, args, i, name, length, '-');
            if (memchr(name, '-', length))
                args_add_name(&made, args, i, name, length, '_');
            name += length + (name[length] == ',');
        }
        if (row->letter)
            *letter++ = (char)row->letter;
        if (row->letter && args_needs(row) == required_argument)
            *letter++ = ':';
    }
    optind = 0; /* reset getopt: a program may parse several command lines */
    opterr = 0;
    while (result == 0 && (value = getopt_long(argc, argv, made.shorts, made.longs, NULL)) != -1) {
        struct args_reading reading = {.failure = failure};

        if (value == ':' || value == '?') {
            const char *argument = argv[optind - 1]; /* the word that getopt rejected */

            if (value == ':')
                snprintf(failure, ARGS_FAILURE, "%s: a value is missing", argument);
            else if (optopt >= ARGS_FIRST_ROW)
                snprintf(failure, ARGS_FAILURE, "%s: takes no value", argument);
            else if (optopt)
                snprintf(failure, ARGS_FAILURE, "unknown option -%c", optopt);
            else
                snprintf(failure, ARGS_FAILURE, "unknown or ambiguous option %s", argument);
            return -1;
        }
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
