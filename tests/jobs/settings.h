/* SPDX-License-Identifier: BSD-3-Clause */
/* Main function of a test program that runs as a rank of a job, with NAME=VALUE arguments. */
#ifndef TESTS_JOBS_SETTINGS_H
#define TESTS_JOBS_SETTINGS_H

#include <dist/dist.h>

/* A setting; its value is stored in the one pointer that is not NULL. */
struct setting {
    const char *name; /* NULL at the end of a list */
    int *number;
    double *real;
    const char **text;
};

/*
 * The main function: reads the arguments, and exits with 2 for one that is not in the list; joins
 * the job, calls run, and leaves. Returns the exit code: 0 if run returns 0 and leaving succeeded.
 */
int settings_main(int argc, char **argv, const struct setting *list, int (*run)(dist_group *group));

#endif
