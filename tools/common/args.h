/* SPDX-License-Identifier: BSD-3-Clause */
/* The command line of a program: one table, which the parser and the help read. */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ARGS_TEXTS_ROOM 16

/* What an option has behind it, and the type of its member. */
enum args_kind {
    ARGS_GROUP,  /* no option: the name of those that follow */
    ARGS_WORDS,  /* no option: what words besides options are good for, argument "a|b|c" */
    ARGS_FLAG,   /* nothing; bool */
    ARGS_SWITCH, /* nothing, =0 or =1; bool */
    ARGS_INT,    /* int64_t */
    ARGS_BYTES,  /* the same; K, M, G and T are powers of 1024 */
    ARGS_REAL,   /* double */
    ARGS_TEXT,   /* const char *, into argv; not empty */
    ARGS_TEXTS,  /* const char *[ARGS_TEXTS_ROOM], NULL behind the last; may be given repeatedly */
    ARGS_CHOICE, /* the same; one of argument, "a|b|c" */
    ARGS_ACTION  /* nothing; int, set to `least`: what to do instead. Nothing behind it is read */
};

/* Values of ARGS_ACTION. */
enum { ARGS_RUN, ARGS_SHOW_HELP, ARGS_SHOW_VERSION };

struct args_row {
    const char *names; /* long ones with dashes, separated by commas; of a group: its name */
    int letter;        /* 0: none */
    enum args_kind kind;
    size_t offset;        /* of the member */
    double least, most;   /* of a number */
    const char *argument; /* its name in the help */
    const char *help;     /* NULL: not shown */
};

struct args {
    const struct args_row *rows;
    int count;
    bool stops; /* at the first word that is no option: a program, with arguments of its own */
    const char *program; /* "dist_info env" */
    const char *usage;   /* the words after that; a line for each form */
    const char *about;   /* what it does, as args_text has it */
    const char *after;   /* what follows the options; NULL: nothing */
};

/* The last rows of a table, whose values have the int member `action`. */
#define ARGS_HELP_ROWS(type, version_letter)                                                       \
    {.names = "help",                                                                              \
     .letter = 'h',                                                                                \
     .kind = ARGS_ACTION,                                                                          \
     .offset = offsetof(type, action),                                                             \
     .least = ARGS_SHOW_HELP,                                                                      \
     .help = "print this and exit"},                                                               \
    {                                                                                              \
        .names = "version", .letter = (version_letter), .kind = ARGS_ACTION,                       \
        .offset = offsetof(type, action), .least = ARGS_SHOW_VERSION,                              \
        .help = "print the version and exit"                                                       \
    }

#define ARGS_FAILURE 256

/*
 * Sets the members of *values that the words name; the others stay. argv is put in order: what is
 * no option comes last, from *rest_p on; after a failure that is argc. Long names may be shortened,
 * and written with underscores. -1: failure says what is wrong, with the option's name.
 *
 * If the last word is --complete-for-shell it does not return: it prints what the word before may
 * become, one a line, and ends the program with 0. The name is one that no program run by ours has.
 */
int args_read(const struct args *args, int argc, char *const argv[], void *values, int *rest_p,
              char failure[ARGS_FAILURE]);

/* A number, with K, M, G or T behind it if it is one of bytes; false: it is none. */
bool args_number(const char *text, bool bytes, double *value_p);

/*
 * Reads the command line as args_read does, answers --help and --version, and reports wrong words.
 * Returns -1 if the program is to run, with at most `words` words from *rest_p on; otherwise its
 * exit code.
 */
int args_begin(const struct args *args, int argc, char *const argv[], void *values, int words,
               int *rest_p);

/* The same for a command whose only options are --help and --version: the rows are set here. */
int args_begin_bare(struct args *args, int argc, char *const argv[], int words, int *rest_p);

/* Reports a wrong command line. Returns the exit code, 2. */
int args_wrong(const struct args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the usage, what the program does, and the options. */
void args_help(const struct args *args, FILE *to);

/* Prints "NAME (libdist) VERSION". */
void args_version(const struct args *args);

/*
 * Prints text, whose lines are paragraphs, broken between words. A line that begins with blanks is
 * indented by as many. The width is COLUMNS or the terminal's, from 40 to 80; 80 if none is known.
 */
void args_text(const char *text, FILE *to);

/* Prints a name, and from `column` on what it means; below the name if the output is narrow. */
void args_item(const char *name, int column, const char *text, FILE *to);

#endif
