/* SPDX-License-Identifier: BSD-3-Clause */
/* The help, made from the table. */
#include "args.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    HELP_LEAST = 40, /* columns */
    HELP_MOST = 80,
    HELP_WIDE = 64,   /* from this width on there are two columns */
    HELP_COLUMN = 32, /* of the text beside an option */
    HELP_BELOW = 10,  /* of the text below it */
    HELP_USAGE = 11,  /* of a usage's second line */
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

/* Returns the length of text's first word. A pair of brackets is one word, if it fits. */
static int help_word(const char *text, int room)
{
    const int plain = (int)strcspn(text, " ");
    int depth = 0, length = 0;

    for (; text[length] && (depth > 0 || text[length] != ' '); length++)
        depth += (text[length] == '[') - (text[length] == ']');
    return length <= room ? length : plain;
}

/* Returns how much of a word to print at once: of one longer than `room`, up to a "|" or ",". */
static int help_piece(const char *text, int length, int room)
{
    for (int i = room; i > 0 && length > room; i--) {
        if (text[i - 1] == '|' || text[i - 1] == ',')
            return i;
    }
    return length;
}

/*
 * Prints `length` bytes of text. The cursor is at column `at`; lines after the first begin at
 * `indent`. Returns where the cursor is then.
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

/* Prints text from `column` on; the cursor is at `at`, after a name. */
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

static void help_row(const struct args_row *row, FILE *to)
{
    char names[256];
    int used = 0, at;

    for (const char *name = row->names; *name && used < (int)sizeof(names);) {
        const int length = (int)strcspn(name, ",");

        used += snprintf(names + used, sizeof(names) - (size_t)used, "--%.*s%s", length, name,
                         name[length] ? ", " : "");
        name += length + (name[length] == ',');
    }
    if (row->argument && used < (int)sizeof(names))
        used += snprintf(names + used, sizeof(names) - (size_t)used, "=%s", row->argument);
    if (row->kind == ARGS_SWITCH && used < (int)sizeof(names))
        snprintf(names + used, sizeof(names) - (size_t)used, "[=0|1]");
    at = row->letter ? fprintf(to, "  -%c, ", row->letter) : fprintf(to, "      ");
    at = help_wrap(names, (int)strlen(names), at, at, help_width(to), to);
    help_beside(row->help, at, HELP_COLUMN, to);
}

static void help_usage(const struct args *args, FILE *to)
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
}

static void help_group(const char *name, FILE *to)
{
    char heading[128];

    snprintf(heading, sizeof(heading), "\n%s:\n", name);
    args_text(heading, to);
}

void args_help(const struct args *args, FILE *to)
{
    help_usage(args, to);
    args_text(args->about, to);
    for (int i = 0; i < args->count; i++) {
        if (args->rows[i].kind == ARGS_GROUP)
            help_group(args->rows[i].names, to);
        else if (args->rows[i].kind != ARGS_WORDS && args->rows[i].help)
            help_row(&args->rows[i], to);
    }
    if (args->after)
        args_text(args->after, to);
}
