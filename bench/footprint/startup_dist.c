/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of startup.c, with libdist. */
#include "startup.h"

#include <dist/dist.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static dist_group *group;

static int report_failure(dist_status status)
{
    if (status != DIST_OK)
        fprintf(stderr, "startup: %s\n", dist_last_error());
    return status != DIST_OK;
}

static int spawned(int rank, void *arg)
{
    int (*const *job)(void) = arg;

    (void)rank;
    return (*job)();
}

static int start(int argc, char **argv, int (*job)(void))
{
    int code = 0;

    if (argc != 3 || strcmp(argv[1], "--spawn") != 0)
        return job();
    return report_failure(dist_spawn(atoi(argv[2]), spawned, &job, &code)) || code;
}

static int join(int *rank_p, int *ranks_p)
{
    struct dist_options options = DIST_OPTIONS_INIT;

    if (report_failure(dist_init_process_group(&options, &group)))
        return 1;
    *rank_p = dist_get_rank(group);
    *ranks_p = dist_get_world_size(group);
    return 0;
}

static int all_reduce(void)
{
    double in = 1, out;

    return report_failure(dist_all_reduce(group, &in, &out, 1, DIST_FLOAT64, DIST_SUM));
}

static int all_to_all(int ranks)
{
    double *in = calloc((size_t)ranks, sizeof(*in)), *out = calloc((size_t)ranks, sizeof(*out));
    int failed = !in || !out || report_failure(dist_all_to_all(group, in, out, 1, DIST_FLOAT64));

    free(in);
    free(out);
    return failed;
}

static int barrier(void)
{
    return report_failure(dist_barrier(group));
}

static int leave(void)
{
    return report_failure(dist_destroy_process_group(group));
}

const struct startup startup = {start, join, all_reduce, all_to_all, barrier, leave};
