/* SPDX-License-Identifier: BSD-3-Clause */
/* NAME=VALUE on the command line of a test program. */
#ifndef TESTS_JOBS_SETTINGS_H
#define TESTS_JOBS_SETTINGS_H

/* Where a value goes: one of the three. */
struct setting {
    const char *name; /* NULL: the end of a list */
    int *number;
    double *real;
    const char **text;
};

/* Reads all arguments; ends the program with code 2 at one that is not in the list. */
void settings_read(int argc, char **argv, const struct setting *list);

#endif
