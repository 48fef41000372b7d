/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program that creates a group from one of its communicators. */
#include <dist/mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    dist_group *group = NULL;
    MPI_Comm half;
    int rank, sum, code = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half); /* the even ranks, and the odd ranks */
    sum = rank;
    if (dist_init_process_group_comm(half, NULL, &group) != DIST_OK ||
        dist_all_reduce(group, &sum, &sum, 1, DIST_INT32, DIST_SUM) != DIST_OK) {
        fprintf(stderr, "%s\n", dist_last_error());
        code = 1;
    } else {
        printf("MPI rank %d is rank %d of %d: sum %d\n", rank, dist_get_rank(group),
               dist_get_world_size(group), sum);
    }
    if (dist_destroy_process_group(group) != DIST_OK)
        code = 1;
    MPI_Comm_free(&half);
    MPI_Finalize();
    return code;
}
