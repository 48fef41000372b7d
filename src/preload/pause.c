/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: waiting, in which MPI's messages and libdist's operations both move. */
#include "preload/serve.h"

#include <sched.h>
#include <time.h>

/* Polls before the first yield, and before the first nap: some microseconds, some milliseconds. */
#define PAUSE_SPINS 64
#define PAUSE_YIELDS 4096
#define PAUSE_NAP_NS (50 * 1000)

void disti_pause(struct disti_pause *pause)
{
    static const struct timespec nap = {0, PAUSE_NAP_NS};

    if (pause->rounds < PAUSE_SPINS + PAUSE_YIELDS)
        pause->rounds++;
    if (pause->rounds < PAUSE_SPINS)
        return;
    if (pause->rounds < PAUSE_SPINS + PAUSE_YIELDS)
        sched_yield();
    else
        nanosleep(&nap, NULL);
}

/*
 * Looks for a message that nobody sends: MPI must go through what has come. (MPICH does not for a
 * communicator of one rank.)
 */
void disti_poll_mpi(void)
{
    int there;

    PMPI_Iprobe(MPI_ANY_SOURCE, 0, disti_preload.silent, &there, MPI_STATUS_IGNORE);
}
