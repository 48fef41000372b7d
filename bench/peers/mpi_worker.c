/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_worker CONTESTANT: an MPI's own calls, measured by dist_bench. Built once for each MPI, and
 * started by its mpirun.
 */
#include "peer.h"

#include "../protocol.h"

#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TAG 7

static MPI_Datatype mpi_dtype(enum peer_dtype dtype)
{
    switch (dtype) {
    case PEER_FLOAT32:
        return MPI_FLOAT;
    case PEER_FLOAT64:
        return MPI_DOUBLE;
    case PEER_INT8:
        return MPI_INT8_T;
    case PEER_UINT8:
        return MPI_UINT8_T;
    case PEER_INT32:
        return MPI_INT32_T;
    case PEER_UINT32:
        return MPI_UINT32_T;
    case PEER_INT64:
        return MPI_INT64_T;
    default:
        return MPI_UINT64_T;
    }
}

static MPI_Op mpi_operation(enum peer_operation operation)
{
    switch (operation) {
    case PEER_PROD:
        return MPI_PROD;
    case PEER_MIN:
        return MPI_MIN;
    case PEER_MAX:
        return MPI_MAX;
    default:
        return MPI_SUM;
    }
}

/* NULL if the call went well. */
static const char *mpi_error(int code)
{
    static char text[MPI_MAX_ERROR_STRING];
    int length;

    if (code == MPI_SUCCESS)
        return NULL;
    if (MPI_Error_string(code, text, &length) != MPI_SUCCESS)
        return "an error of MPI without a text";
    text[strcspn(text, "\n")] = '\0';
    return text;
}

static const char *worker_refuse(struct peer_library *library, const struct peer_run *run)
{
    (void)library;
    if (run->count > INT_MAX)
        return "MPI counts with int";
#ifdef MPICH_VERSION
    if (run->collective == PEER_REDUCE && run->in_place && run->root != 0)
        return "MPICH 4.0 crashes in a reduce in place whose root is not rank 0";
#endif
    return NULL;
}

static const char *worker_barrier(struct peer_library *library)
{
    (void)library;
    return mpi_error(MPI_Barrier(MPI_COMM_WORLD));
}

static int call_reduce(const struct peer_run *run, const struct peer_set *set, int rank)
{
    MPI_Datatype dtype = mpi_dtype(run->dtype);
    MPI_Op operation = mpi_operation(run->operation);
    const void *in = set->in == set->out ? MPI_IN_PLACE : set->in;
    int count = (int)run->count;

    switch (run->collective) {
    case PEER_ALL_REDUCE:
        return MPI_Allreduce(in, set->out, count, dtype, operation, MPI_COMM_WORLD);
    case PEER_REDUCE_SCATTER:
        return MPI_Reduce_scatter_block(in, set->out, count, dtype, operation, MPI_COMM_WORLD);
    default:
        if (rank != run->root)
            in = set->in;
        return MPI_Reduce(in, rank == run->root ? set->out : NULL, count, dtype, operation,
                          run->root, MPI_COMM_WORLD);
    }
}

static int call_move(const struct peer_run *run, const struct peer_set *set)
{
    MPI_Datatype dtype = mpi_dtype(run->dtype);
    const void *in = run->in_place ? MPI_IN_PLACE : set->in;
    int count = (int)run->count;

    switch (run->collective) {
    case PEER_BROADCAST:
        return MPI_Bcast(set->out, count, dtype, run->root, MPI_COMM_WORLD);
    case PEER_ALL_GATHER:
        return MPI_Allgather(in, count, dtype, set->out, count, dtype, MPI_COMM_WORLD);
    case PEER_GATHER:
        return MPI_Gather(set->in, count, dtype, set->out, count, dtype, run->root, MPI_COMM_WORLD);
    case PEER_SCATTER:
        return MPI_Scatter(set->in, count, dtype, set->out, count, dtype, run->root,
                           MPI_COMM_WORLD);
    case PEER_ALL_TO_ALL:
        return MPI_Alltoall(in, count, dtype, set->out, count, dtype, MPI_COMM_WORLD);
    default:
        return MPI_Barrier(MPI_COMM_WORLD);
    }
}

static const char *worker_call(struct peer_library *library, const struct peer_run *run, size_t s)
{
    const struct peer_set *set = &run->sets[s];

    switch (run->collective) {
    case PEER_ALL_REDUCE:
    case PEER_REDUCE:
    case PEER_REDUCE_SCATTER:
        return mpi_error(call_reduce(run, set, library->rank));
    default:
        return mpi_error(call_move(run, set));
    }
}

/* n times there and back. */
static int ping_pong(const struct peer_run *run, const struct peer_set *set, int rank, int n)
{
    MPI_Datatype dtype = mpi_dtype(run->dtype);
    int count = (int)run->count, peer = 1 - rank, code = MPI_SUCCESS;

    for (int i = 0; i < 2 * n && code == MPI_SUCCESS; i++)
        code = i % 2 == rank
                   ? MPI_Send(set->in, count, dtype, peer, TAG, MPI_COMM_WORLD)
                   : MPI_Recv(set->out, count, dtype, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return code;
}

/* A window of messages one way or both, and a byte that says that they are there. */
static int window(const struct peer_run *run, size_t first, int rank)
{
    MPI_Datatype dtype = mpi_dtype(run->dtype);
    int count = (int)run->count, peer = 1 - rank, used = 0, code = MPI_SUCCESS;
    int both = run->collective == PEER_BIBW, gets = both || rank == 1, sends = both || rank == 0;
    MPI_Request requests[2 * BENCH_WINDOW];
    char byte = 0, answer;

    for (size_t i = 0; i < BENCH_WINDOW && code == MPI_SUCCESS; i++) {
        const struct peer_set *set = &run->sets[(first + i) % run->set_count];

        if (gets)
            code = MPI_Irecv(set->out, count, dtype, peer, TAG, MPI_COMM_WORLD, &requests[used++]);
        if (code == MPI_SUCCESS && sends)
            code = MPI_Isend(set->in, count, dtype, peer, TAG, MPI_COMM_WORLD, &requests[used++]);
    }
    if (code == MPI_SUCCESS)
        code = MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
    if (code == MPI_SUCCESS && gets)
        code = MPI_Send(&byte, 1, MPI_BYTE, peer, TAG + 1, MPI_COMM_WORLD);
    if (code == MPI_SUCCESS && sends)
        code = MPI_Recv(&answer, 1, MPI_BYTE, peer, TAG + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return code;
}

static const char *worker_messages(struct peer_library *library, const struct peer_run *run,
                                   size_t s, int n)
{
    int code = MPI_SUCCESS;

    if (run->collective == PEER_LATENCY)
        return mpi_error(ping_pong(run, &run->sets[s], library->rank, n));
    for (int i = 0; i < n && code == MPI_SUCCESS; i++)
        code = window(run, s + (size_t)i * BENCH_WINDOW, library->rank);
    return mpi_error(code);
}

/* "Open MPI v4.1.4, package: ...", "MPICH Version:      4.0.2\n...": the name and the version. */
static void name_library(char text[MPI_MAX_LIBRARY_VERSION_STRING])
{
    static const char label[] = "Version:";
    char *version;
    int length = 0;

    MPI_Get_library_version(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    version = strstr(text, label);
    if (version != NULL) {
        char *rest = version + strlen(label);

        rest += strspn(rest, " \t");
        memmove(version, rest, strlen(rest) + 1);
    }
}

int main(int argc, char **argv)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    struct peer_library library = {
        .contestant = argc > 1 ? argv[1] : "mpi",
        .text = text,
        .refuse = worker_refuse,
        .call = worker_call,
        .messages = worker_messages,
        .barrier = worker_barrier,
    };
    int status;

    name_library(text);
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        puts(text);
        return 0;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &library.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &library.ranks);
    status = peer_serve(&library);
    if (status != 0)
        MPI_Abort(MPI_COMM_WORLD, status);
    MPI_Finalize();
    return status;
}
