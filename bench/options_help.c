/* SPDX-License-Identifier: BSD-3-Clause */
/* The help text, made from the table. */
#include <string.h>

#include "options_table.h"

enum { HELP_COLUMN = 34, HELP_WIDTH = 90 };

/* Prints text from HELP_COLUMN on, broken between words; at is where the cursor stands. */
static void help_wrap(FILE *to, const char *text, int at)
{
    if (at >= HELP_COLUMN - 1) {
        fputc('\n', to);
        at = 0;
    }
    at += fprintf(to, "%*s", HELP_COLUMN - at, "");
    while (*text != '\0') {
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

static void help_row(FILE *to, const struct options_row *row)
{
    const char *name = row->names;
    int at;

    at = row->letter ? fprintf(to, "  -%c, ", row->letter) : fprintf(to, "      ");
    while (*name) {
        const int length = (int)strcspn(name, ",");

        at += fprintf(to, "--%.*s%s", length, name, name[length] ? ", " : "");
        name += length + (name[length] == ',');
    }
    if (row->argument)
        at += fprintf(to, " %s", row->argument);
    if (row->kind == OPTIONS_FLAG_01)
        at += fprintf(to, "[=0|1]");
    help_wrap(to, row->help, at);
}

void options_help(FILE *to)
{
    fputs("Usage: dist_bench [OPTION]... WHAT...\n"
          "Measures collective communication. WHAT is all, or some of:\n",
          to);
    help_wrap(to,
#define HELP_NAME(name, ...) #name " "
              KIND_MAP(HELP_NAME)
#undef HELP_NAME
                  ,
              0);
    for (int i = 0; i < options_count; i++) {
        if (!options_table[i].names[0])
            fprintf(to, "\n%s:\n", options_table[i].help);
        else if (options_table[i].help)
            help_row(to, &options_table[i]);
    }
    fputs("\n"
          "  dist_bench -n 8 all_reduce                    8 processes of this machine\n"
          "  mpirun -np 8 dist_bench -f all_reduce bw      those of a launcher\n"
          "  dist_bench -n 8 --compare gloo,gloo/dist,mpi --limit all_reduce\n"
          "\n"
          "Exit status: 0 success, 1 failure or a wrong result, 2 wrong usage, 3 slower than the\n"
          "baseline.\n",
          to);
}
