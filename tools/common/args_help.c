/* SPDX-License-Identifier: BSD-3-Clause */
/* The help, made from the table. */
#include "args.h"

#include <string.h>

enum { HELP_COLUMN = 32, HELP_WIDTH = 80 };

void args_help_text(const char *text, int at, FILE *to)
{
    if (at >= HELP_COLUMN - 1) {
        fputc('\n', to);
        at = 0;
    }
    at += fprintf(to, "%*s", HELP_COLUMN - at, "");
    while (*text) {
        const int word = (int)strcspn(text, " ");

        if (at > HELP_COLUMN && at + 1 + word > HELP_WIDTH)
            at = fprintf(to, "\n%*s", HELP_COLUMN, "") - 1;
        else if (at > HELP_COLUMN)
            at += fprintf(to, " ");
        at += fprintf(to, "%.*s", word, text);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', to);
}

static void help_row(const struct args_row *row, FILE *to)
{
    int at = row->letter ? fprintf(to, "  -%c, ", row->letter) : fprintf(to, "      ");

    for (const char *name = row->names; *name;) {
        const int length = (int)strcspn(name, ",");

        at += fprintf(to, "--%.*s%s", length, name, name[length] ? ", " : "");
        name += length + (name[length] == ',');
    }
    if (row->argument)
        at += fprintf(to, "=%s", row->argument);
    if (row->kind == ARGS_SWITCH)
        at += fprintf(to, "[=0|1]");
    args_help_text(row->help, at, to);
}

void args_help(const struct args *args, FILE *to)
{
    for (int i = 0; i < args->count; i++) {
        if (args->rows[i].kind == ARGS_GROUP)
            fprintf(to, "\n%s:\n", args->rows[i].names);
        else if (args->rows[i].kind != ARGS_WORDS && args->rows[i].help)
            help_row(&args->rows[i], to);
    }
}
