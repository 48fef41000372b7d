/* SPDX-License-Identifier: BSD-3-Clause */
/* Command lines: one table of options serves the parser, the help and the shell's completion. */
#ifndef TOOLS_ARGS_H
#define TOOLS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define ARGS_TEXTS_MAX 16

/* The kind of a row: the value that the option takes, and the type of the member that stores it. */
enum args_kind {
    ARGS_GROUP,  /* not an option: the heading of the following rows */
    ARGS_WORDS,  /* not an option: `argument` lists the other words that are valid, "a|b|c" */
    ARGS_FLAG,   /* no value; bool */
    ARGS_SWITCH, /* no value, =0 or =1; bool */
    ARGS_INT,    /* a whole number; int64_t */
    ARGS_BYTES,  /* a number of bytes, with K, M, G or T for powers of 1024; int64_t */
    ARGS_REAL,   /* a number; double */
    ARGS_TEXT,   /* not empty; const char *, points into argv */
    ARGS_TEXTS,  /* repeatable, not empty; const char *[ARGS_TEXTS_MAX], NULL-terminated */
    ARGS_CHOICE, /* one of `argument`, "a|b|c"; const char *, points into argv */
    ARGS_ACTION  /* no value; int, set to `least`. Parsing stops after this option */
};

/* Values of ARGS_ACTION. */
enum { ARGS_RUN, ARGS_SHOW_HELP, ARGS_SHOW_VERSION };

struct args_row {
    const char *names; /* long names with dashes, separated by commas; ARGS_GROUP: the heading */
    int letter;        /* one-letter name; 0: none */
    enum args_kind kind;
    size_t offset;        /* of the member in *values */
    double least, most;   /* valid range of a number */
    const char *argument; /* the value's name in the help */
    const char *help;     /* NULL: not shown */
};

struct args {
    const struct args_row *rows;
    int count;
    bool stops; /* parsing stops at the first word that is not an option (a program to run) */
    const char *program; /* "dist_info env" */
    const char *usage;   /* printed after the program's name; one line for each form */
    const char *about;   /* description, in the format of args_text */
    const char *after;   /* text after the options, in the format of args_text, or NULL */
};

/* The last two rows of a table: --help and --version. `type` has the int member `action`. */
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
 * Sets the members of *values for the options that are given and leaves the other members as they
 * are. Reorders argv: words that are no options come last, starting at *rest_p (argc after an
 * error). Long names may be abbreviated, and written with underscores. Returns 0, or -1 with a
 * message in `failure` that names the option.
 *
 * If the last word is --complete-for-shell, prints the completions of the word before it, one per
 * line, and exits with 0. The name is unusual so that no program that we start uses it.
 */
int args_read(const struct args *args, int argc, char *const argv[], void *values, int *rest_p,
              char failure[ARGS_FAILURE]);

/* Parses a number. If `bytes`, a suffix K, M, G or T is accepted. Returns false if invalid. */
bool args_number(const char *text, bool bytes, double *value_p);

/*
 * Parses the command line as args_read does, handles --help and --version, and reports errors.
 * Returns -1 if the program is to run, with at most `words` words from argv[*rest_p] on; otherwise
 * the program's exit code.
 */
int args_begin(const struct args *args, int argc, char *const argv[], void *values, int words,
               int *rest_p);

/* args_begin for a command whose only options are --help and --version; sets args->rows. */
int args_begin_bare(struct args *args, int argc, char *const argv[], int words, int *rest_p);

/* Prints an error about the command line to stderr. Returns the exit code, 2. */
int args_wrong(const struct args *args, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Prints the usage, the description and the options. */
void args_help(const struct args *args, FILE *to);

/* Prints "NAME (libdist) VERSION". */
void args_version(const struct args *args);

/*
 * Prints text with each line wrapped between words. The continuation of a line that begins with
 * blanks is indented by 4 columns. The width is COLUMNS or the terminal's, limited to 40 to 80; 80
 * if neither is known.
 */
void args_text(const char *text, FILE *to);

/* Prints a name, and its meaning from `column` on. In narrow output the meaning may start further
 * left, on the next line. */
void args_item(const char *name, int column, const char *text, FILE *to);

#endif
