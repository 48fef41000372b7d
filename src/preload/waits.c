/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: waits and tests for requests of any kind, ours and MPI's. */
#include "preload/serve.h"

/*
 * Our requests are MPI's to complete, so that a wait is a test again and again while operations of
 * ours are under way, and MPI's own wait as soon as there are none.
 */
#define WAITS_POLL(test, done)                                                                     \
    do {                                                                                           \
        struct disti_pause pause = {0};                                                            \
                                                                                                   \
        while (disti_move()) {                                                                     \
            int code = (test);                                                                     \
                                                                                                   \
            if (code != MPI_SUCCESS || (done))                                                     \
                return code;                                                                       \
            disti_pause(&pause);                                                                   \
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

/* ---- waits for messages, in which our operations must move if no thread moves them ---- */

static bool waits_move(void)
{
    return !disti_preload.background && disti_move();
}

/* Begun, and waited for as above. */
#define WAITS_MESSAGE(name, parameters, begin, call)                                               \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        MPI_Request request;                                                                       \
        int code;                                                                                  \
                                                                                                   \
        if (!waits_move())                                                                         \
            return PMPI_##name call;                                                               \
        code = begin;                                                                              \
        return code == MPI_SUCCESS ? MPI_Wait(&request, WAITS_STATUS) : code;                      \
    }

#define WAITS_STATUS MPI_STATUS_IGNORE
WAITS_MESSAGE(Send,
              (const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm),
              PMPI_Isend(buffer, count, type, to, tag, comm, &request),
              (buffer, count, type, to, tag, comm))
WAITS_MESSAGE(Ssend,
              (const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm),
              PMPI_Issend(buffer, count, type, to, tag, comm, &request),
              (buffer, count, type, to, tag, comm))
WAITS_MESSAGE(Rsend,
              (const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm),
              PMPI_Irsend(buffer, count, type, to, tag, comm, &request),
              (buffer, count, type, to, tag, comm))
#undef WAITS_STATUS
#define WAITS_STATUS status
WAITS_MESSAGE(Recv,
              (void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
               MPI_Status *status),
              PMPI_Irecv(buffer, count, type, from, tag, comm, &request),
              (buffer, count, type, from, tag, comm, status))
WAITS_MESSAGE(
    Mrecv, (void *buffer, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status),
    PMPI_Imrecv(buffer, count, type, message, &request), (buffer, count, type, message, status))

int MPI_Sendrecv(const void *out, int out_count, MPI_Datatype out_type, int to, int out_tag,
                 void *in, int in_count, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm,
                 MPI_Status *status)
{
    MPI_Request requests[2];
    int code;

    if (!waits_move())
        return PMPI_Sendrecv(out, out_count, out_type, to, out_tag, in, in_count, in_type, from,
                             in_tag, comm, status);
    code = PMPI_Irecv(in, in_count, in_type, from, in_tag, comm, &requests[0]);
    if (code == MPI_SUCCESS)
        code = PMPI_Isend(out, out_count, out_type, to, out_tag, comm, &requests[1]);
    if (code == MPI_SUCCESS)
        code = MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    return code == MPI_SUCCESS ? MPI_Wait(&requests[0], status) : code;
}

int MPI_Probe(int from, int tag, MPI_Comm comm, MPI_Status *status)
{
    int there = 0;

    if (!disti_preload.background)
        WAITS_POLL(PMPI_Iprobe(from, tag, comm, &there, status), there);
    return PMPI_Probe(from, tag, comm, status);
}

int MPI_Mprobe(int from, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status)
{
    int there = 0;

    if (!disti_preload.background)
        WAITS_POLL(PMPI_Improbe(from, tag, comm, &there, message, status), there);
    return PMPI_Mprobe(from, tag, comm, message, status);
}

int MPI_Iprobe(int from, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    disti_move();
    return PMPI_Iprobe(from, tag, comm, flag, status);
}

int MPI_Improbe(int from, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                MPI_Status *status)
{
    disti_move();
    return PMPI_Improbe(from, tag, comm, flag, message, status);
}
