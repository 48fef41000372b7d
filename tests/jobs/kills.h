/* SPDX-License-Identifier: BSD-3-Clause */
/* Shared by the programs in which a rank is killed. */
#ifndef TESTS_JOBS_KILLS_H
#define TESTS_JOBS_KILLS_H

#include <stdlib.h>
#include <time.h>

/* Returns the time of a clock that all ranks of a machine share. */
static inline double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Returns this process's rank from the launcher's variables. */
static inline int launched_as(void)
{
    static const char *const names[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    }
    return -1;
}

#endif
