/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: waits and tests for requests of any kind, ours and MPI's. */
#include "base/backoff.h"
#include "preload/serve.h"

/*
 * Our requests are MPI's to complete, so that a wait is a test again and again while operations of
 * ours are under way, and MPI's own wait as soon as there are none.
 */
#define WAITS_POLL(test, done)                                                                     \
    do {                                                                                           \
        struct disti_backoff backoff = {0};                                                        \
                                                                                                   \
        while (disti_move()) {                                                                     \
            int code = (test);                                                                     \
                                                                                                   \
            if (code != MPI_SUCCESS || (done))                                                     \
                return code;                                                                       \
            disti_backoff(&backoff);                                                               \
        }                                                                                          \
    } while (0)

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    int done = 0;

    WAITS_POLL(PMPI_Test(request, &done, status), done);
    return PMPI_Wait(request, status);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    int done = 0;

    WAITS_POLL(PMPI_Testall(count, requests, &done, statuses), done);
    return PMPI_Waitall(count, requests, statuses);
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    int done = 0;

    WAITS_POLL(PMPI_Testany(count, requests, index, &done, status), done);
    return PMPI_Waitany(count, requests, index, status);
}

/* MPI_UNDEFINED, when none is active, is not 0 either. */
int MPI_Waitsome(int count, MPI_Request requests[], int *outcount, int indices[],
                 MPI_Status statuses[])
{
    if (!outcount) /* which MPI refuses */
        return PMPI_Waitsome(count, requests, outcount, indices, statuses);
    *outcount = 0;
    WAITS_POLL(PMPI_Testsome(count, requests, outcount, indices, statuses), *outcount != 0);
    return PMPI_Waitsome(count, requests, outcount, indices, statuses);
}

int MPI_Test(MPI_Request *request, int *flag, MPI_Status *status)
{
    disti_move();
    return PMPI_Test(request, flag, status);
}

int MPI_Testall(int count, MPI_Request requests[], int *flag, MPI_Status statuses[])
{
    disti_move();
    return PMPI_Testall(count, requests, flag, statuses);
}

int MPI_Testany(int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status)
{
    disti_move();
    return PMPI_Testany(count, requests, index, flag, status);
}

int MPI_Testsome(int count, MPI_Request requests[], int *outcount, int indices[],
                 MPI_Status statuses[])
{
    disti_move();
    return PMPI_Testsome(count, requests, outcount, indices, statuses);
}

int MPI_Request_get_status(MPI_Request request, int *flag, MPI_Status *status)
{
    disti_move();
    return PMPI_Request_get_status(request, flag, status);
}
