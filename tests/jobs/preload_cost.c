/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program: rank 0 makes short calls, some time after the other, but before that sleeps. Rank
 * 0 runs under callgrind. */
#include "preload_program.h"

#include <time.h>

#define COST_LATE_NS (50 * 1000)

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
