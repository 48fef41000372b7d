/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of startup.c, with an MPI. */
#include "startup.h"

#include <mpi.h>
#include <stdlib.h>

static int start(int argc, char **argv, int (*job)(void))
{
    (void)argc;
    (void)argv;
    return job();
}

static int join(int *rank_p, int *ranks_p)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, rank_p);
    MPI_Comm_size(MPI_COMM_WORLD, ranks_p);
    return 0;
}

static int all_reduce(void)
{
    double in = 1, out;

    return MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static int all_to_all(int ranks)
{
    double *in = calloc((size_t)ranks, sizeof(*in)), *out = calloc((size_t)ranks, sizeof(*out));
    int failed = !in || !out || MPI_Alltoall(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, MPI_COMM_WORLD);

    free(in);
    free(out);
    return failed;
}

static int barrier(void)
{
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int leave(void)
{
    return MPI_Finalize();
}

const struct startup startup = {start, join, all_reduce, all_to_all, barrier, leave};
