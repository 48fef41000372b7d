/* SPDX-License-Identifier: BSD-3-Clause */
/* The help text, made from the table. */
#include <string.h>

#include "options_table.h"

enum { HELP_COLUMN = 32, HELP_WIDTH = 80 };

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
    char names[128];
    int length = 0;

    if (row->letter)
        length += snprintf(names, sizeof(names), "  -%c, ", row->letter);
    else
        length += snprintf(names, sizeof(names), "      ");
    if (row->second)
        length += snprintf(names + length, sizeof(names) - (size_t)length, "--%s, ", row->second);
    length += snprintf(names + length, sizeof(names) - (size_t)length, "--%s", row->name);
    if (row->argument)
        length += snprintf(names + length, sizeof(names) - (size_t)length, "=%s", row->argument);
    fputs(names, to);
    help_wrap(to, row->help, length);
}

void options_help(FILE *to)
{
    fputs("Usage: train_mnist [OPTION]...\n"
          "Trains a digit classifier on MNIST with as many processes as were started.\n",
          to);
    for (int i = 0; i < options_count; i++) {
        if (options_table[i].help)
            help_row(to, &options_table[i]);
        else
            fprintf(to, "\n%s:\n", options_table[i].name);
    }
    fputs("\n"
          "A dash and an underscore in a long name are the same. Ways to start 8 processes:\n"
          "  mpirun -np 8 train_mnist\n"
          "  train_mnist --multiprocessing-distributed --world-size 8\n"
          "  for r in 0 1 2 3 4 5 6 7; do\n"
          "    train_mnist --addr 127.0.0.1 --port 29500 --world-size 8 --rank $r &\n"
          "  done; wait\n"
          "\n"
          "Exit status: 0 success, 1 failure, 2 wrong usage.\n",
          to);
}
