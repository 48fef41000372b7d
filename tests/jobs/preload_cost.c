/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program, of which rank 0 runs under callgrind. */
#include "preload_program.h"

#include <time.h>

#define COST_LATE_NS (50 * 1000)

/* Rank 0 makes short calls, some time after the other, but before that sleeps. */
void program_cost(int calls)
{
    const struct timespec late = {.tv_nsec = COST_LATE_NS};
    struct place place = {.name = "cost", .comm = MPI_COMM_WORLD};

    MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &place.ranks);
    for (int n = 0; n < calls; n++) {
        int in[2] = {n, 1}, out[2] = {0, 0};

        if (place.rank == 0)
            nanosleep(&late, NULL);
        MPI_Allreduce(in, out, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (out[0] != n * place.ranks || out[1] != place.ranks)
            program_wrong(&place, "allreduce %d: %d, %d", n, out[0], out[1]);
    }
}

/* After so many messages MPI has set up all that it has for a peer. */
#define COST_MESSAGES 64

static void cost_exchange(int rank)
{
    MPI_Request requests[2];
    int in, out = rank;

    MPI_Irecv(&in, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&out, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* Named, for callgrind: nothing but the program's own tests. */
void program_tests(MPI_Request *request, int calls);
__attribute__((noinline)) void program_tests(MPI_Request *request, int calls)
{
    int done;

    for (int n = 0; n < calls; n++)
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
}

/* Rank 0 asks again and again for a message that the other sends when that is over. */
void program_polls(int calls)
{
    MPI_Request request;
    int rank, number = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int n = 0; n < COST_MESSAGES; n++)
        cost_exchange(rank);
    if (rank == 0) {
        MPI_Irecv(&number, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, &request);
        program_tests(&request, calls);
        MPI_Send(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&number, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
    }
}
