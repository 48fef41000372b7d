/* SPDX-License-Identifier: BSD-3-Clause */
/* A test program that is a rank of a job, with NAME=VALUE on its command line. */
#ifndef TESTS_JOBS_SETTINGS_H
#define TESTS_JOBS_SETTINGS_H

#include <dist/dist.h>

/* Where a value goes: one of the three. */
struct setting {
    const char *name; /* NULL: the end of a list */
    int *number;
    double *real;
    const char **text;
};

/*
 * The whole program: reads the arguments, and ends with code 2 at one that is not in the list;
 * joins the job, calls run, and leaves. Returns the exit code: 0 if run returns 0 and all went
 * well.
 */
int settings_main(int argc, char **argv, const struct setting *list, int (*run)(dist_group *group));

#endif
