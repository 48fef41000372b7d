/* SPDX-License-Identifier: BSD-3-Clause */
/* The calls of startup.c, by an MPI. */
#include "startup.h"

#include <mpi.h>
#include <stdlib.h>

int startup_main(int argc, char **argv, int (*job)(void))
{
    (void)argc;
    (void)argv;
    return job();
}

int startup_join(int *rank_p, int *ranks_p)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, rank_p);
    MPI_Comm_size(MPI_COMM_WORLD, ranks_p);
    return 0;
}

int startup_all_reduce(void)
{
    double in = 1, out;

    return MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

int startup_all_to_all(int ranks)
{
    double *in = calloc((size_t)ranks, sizeof(*in)), *out = calloc((size_t)ranks, sizeof(*out));
    int failed = !in || !out || MPI_Alltoall(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, MPI_COMM_WORLD);

    free(in);
    free(out);
    return failed;
}

int startup_barrier(void)
{
    return MPI_Barrier(MPI_COMM_WORLD);
}

int startup_leave(void)
{
    return MPI_Finalize();
}
