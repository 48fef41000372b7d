/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * mpi_worker LIBRARY: the driver of an MPI for dist_bench. It is built once for each MPI and
 * started by its mpirun.
 */
#include "bench/measure.h"

#include <limits.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define TAG 7
#define WORLD MPI_COMM_WORLD

struct mpi {
    struct driver driver;  /* must be the first member */
    int *counts, *offsets; /* counts and offsets by rank, for equal blocks in the v-forms */
    char error[MPI_MAX_ERROR_STRING];
};

/* The arguments of an order in terms of MPI. */
struct arguments {
    MPI_Datatype dtype;
    MPI_Op op;
    int count; /* elements of a block */
    int root;
    bool in_place, is_root;
    const struct order *order;
    const int *counts, *offsets;
};

/* ---- types and operators of MPI ---- */

/* NULL or 0: MPI has no equivalent. */
static const MPI_Datatype mpi_dtypes[DIST_DTYPE_COUNT] = {
    [DIST_FLOAT32] = MPI_FLOAT, [DIST_FLOAT64] = MPI_DOUBLE,  [DIST_INT8] = MPI_INT8_T,
    [DIST_UINT8] = MPI_UINT8_T, [DIST_INT32] = MPI_INT32_T,   [DIST_UINT32] = MPI_UINT32_T,
    [DIST_INT64] = MPI_INT64_T, [DIST_UINT64] = MPI_UINT64_T,
};
static const MPI_Op mpi_ops[DIST_OP_COUNT] = {
    [DIST_SUM] = MPI_SUM, [DIST_PROD] = MPI_PROD, [DIST_MIN] = MPI_MIN, [DIST_MAX] = MPI_MAX};

/* Returns why the call is not supported, or NULL if it is. */
static const char *mpi_refuses(const struct arguments *a, size_t count, int ranks)
{
    size_t blocks = (size_t)operation_blocks(a->order->operation, ranks);

    if (!a->dtype)
        return "MPI has no such type";
    if (a->order->operation->reduces && !a->op)
        return "MPI has no such reduction";
    if (count > (size_t)INT_MAX / blocks)
        return "more elements than an int of MPI can count";
#ifdef MPICH_VERSION
    if (a->order->operation->id == OPERATION_reduce && a->in_place && a->root != 0)
        return "MPICH 4.0 crashes in a reduce in place whose root is not rank 0";
#endif
    return NULL;
}

static dist_status mpi_failed(struct driver *driver, dist_status status, const char *why)
{
    struct mpi *mpi = (struct mpi *)driver;

    snprintf(mpi->error, sizeof(mpi->error), "%s", why);
    return status;
}

static dist_status mpi_status(struct driver *driver, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "unknown MPI error";
    int length;

    if (code == MPI_SUCCESS)
        return DIST_OK;
    MPI_Error_string(code, text, &length);
    return mpi_failed(driver, DIST_ERR_SYSTEM, text);
}

/* ---- messages ---- */

static int mpi_latency(const struct arguments *a, int rank, const void *in, void *out)
{
    int code = MPI_SUCCESS, peer = 1 - rank;

    if (rank == 0)
        code = MPI_Send(in, a->count, a->dtype, peer, TAG, WORLD);
    if (code == MPI_SUCCESS)
        code = MPI_Recv(out, a->count, a->dtype, peer, TAG, WORLD, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS && rank == 1)
        code = MPI_Send(in, a->count, a->dtype, peer, TAG, WORLD);
    return code;
}

/*
 * Sends a window of messages in one or both directions. In one direction, a byte back acknowledges
 * them.
 */
static int mpi_window(const struct arguments *a, int rank, const void *in, void *out)
{
    bool both = a->order->operation->id == OPERATION_bibw;
    bool receives = both || rank == 1, sends = both || rank == 0;
    int peer = 1 - rank, used = 0, code = MPI_SUCCESS;
    MPI_Request requests[2 * ORDER_WINDOW_MAX];
    char byte = 0;

    for (int i = 0; receives && i < a->order->window && code == MPI_SUCCESS; i++)
        code = MPI_Irecv(out, a->count, a->dtype, peer, TAG, WORLD, &requests[used++]);
    for (int i = 0; sends && i < a->order->window && code == MPI_SUCCESS; i++)
        code = MPI_Isend(in, a->count, a->dtype, peer, TAG, WORLD, &requests[used++]);
    if (code == MPI_SUCCESS)
        code = MPI_Waitall(used, requests, MPI_STATUSES_IGNORE);
    if (both || code != MPI_SUCCESS)
        return code;
    return rank == 1 ? MPI_Send(&byte, 1, MPI_BYTE, peer, TAG, WORLD)
                     : MPI_Recv(&byte, 1, MPI_BYTE, peer, TAG, WORLD, MPI_STATUS_IGNORE);
}

/* ---- collectives ---- */

/* Runs the collective. Returns the code of MPI, or -1 if MPI has no such collective. */
static int mpi_collective(const struct arguments *a, int rank, const void *in, void *out)
{
    const void *from = a->in_place ? MPI_IN_PLACE : in;
    void *to = a->in_place ? MPI_IN_PLACE : out;
    MPI_Datatype dtype = a->dtype;
    int count = a->count;

    switch (a->order->operation->id) {
    case OPERATION_all_reduce:
        return MPI_Allreduce(from, out, count, dtype, a->op, WORLD);
    case OPERATION_reduce:
        return MPI_Reduce(a->is_root ? from : in, a->is_root ? out : NULL, count, dtype, a->op,
                          a->root, WORLD);
    case OPERATION_reduce_scatter:
        return MPI_Reduce_scatter_block(from, out, count, dtype, a->op, WORLD);
    case OPERATION_broadcast:
        return MPI_Bcast(out, count, dtype, a->root, WORLD);
    case OPERATION_all_gather:
        return MPI_Allgather(from, count, dtype, out, count, dtype, WORLD);
    case OPERATION_gather:
        return MPI_Gather(a->is_root ? from : in, count, dtype, out, count, dtype, a->root, WORLD);
    case OPERATION_scatter:
        return MPI_Scatter(in, count, dtype, a->is_root ? to : out, count, dtype, a->root, WORLD);
    case OPERATION_all_to_all:
        return MPI_Alltoall(in, count, dtype, out, count, dtype, WORLD);
    case OPERATION_barrier:
        return MPI_Barrier(WORLD);
    case OPERATION_latency:
        return rank > 1 ? MPI_SUCCESS : mpi_latency(a, rank, in, out);
    case OPERATION_bw:
    case OPERATION_bibw:
        return rank > 1 ? MPI_SUCCESS : mpi_window(a, rank, in, out);
    case OPERATION_all_gather_v:
        return MPI_Allgatherv(from, count, dtype, out, a->counts, a->offsets, dtype, WORLD);
    case OPERATION_reduce_scatter_v:
        return MPI_Reduce_scatter(from, out, a->counts, dtype, a->op, WORLD);
    case OPERATION_gather_v:
        return MPI_Gatherv(a->is_root ? from : in, count, dtype, out, a->counts, a->offsets, dtype,
                           a->root, WORLD);
    case OPERATION_scatter_v:
        return MPI_Scatterv(in, a->counts, a->offsets, dtype, a->is_root ? to : out, count, dtype,
                            a->root, WORLD);
    case OPERATION_all_to_all_v:
        return MPI_Alltoallv(in, a->counts, a->offsets, dtype, out, a->counts, a->offsets, dtype,
                             WORLD);
    default:
        return -1;
    }
}

/* ---- driver functions ---- */

static dist_status mpi_prepare(struct driver *driver, const struct order *order,
                               const struct buffers *buffers)
{
    struct mpi *mpi = (struct mpi *)driver;
    size_t count = order_count(order, driver->ranks);

    (void)buffers;
    if (count > (size_t)(INT_MAX / driver->ranks)) /* mpi_call reports this error */
        count = 0;
    for (int r = 0; r < driver->ranks; r++) {
        mpi->counts[r] = (int)count;
        mpi->offsets[r] = r * (int)count;
    }
    return DIST_OK;
}

static dist_status mpi_call(struct driver *driver, const struct order *order, const void *in,
                            void *out)
{
    const struct mpi *mpi = (const struct mpi *)driver;
    size_t count = order_count(order, driver->ranks);
    struct arguments a = {.dtype = mpi_dtypes[order->dtype],
                          .op = mpi_ops[order->op],
                          .count = (int)count,
                          .root = order->root,
                          .in_place = buffers_in_place(order),
                          .is_root = driver->rank == order->root,
                          .order = order,
                          .counts = mpi->counts,
                          .offsets = mpi->offsets};
    const char *refusal = mpi_refuses(&a, count, driver->ranks);
    int code;

    if (refusal)
        return mpi_failed(driver, DIST_ERR_UNSUPPORTED, refusal);
    code = mpi_collective(&a, driver->rank, in, out);
    if (code < 0)
        return mpi_failed(driver, DIST_ERR_UNSUPPORTED, "MPI has no such collective");
    return mpi_status(driver, code);
}

static dist_status mpi_barrier(struct driver *driver)
{
    return mpi_status(driver, MPI_Barrier(WORLD));
}

static const char *mpi_error(struct driver *driver)
{
    return ((struct mpi *)driver)->error;
}

int main(int argc, char **argv)
{
    char release[MPI_MAX_LIBRARY_VERSION_STRING];
    struct mpi mpi = {.driver = {.block_in_front = true,
                                 .prepare = mpi_prepare,
                                 .barrier = mpi_barrier,
                                 .call = mpi_call,
                                 .error = mpi_error}};
    int status;

    /*
     * Reduce "Open MPI v4.1.4, package: ..." and "MPICH Version:      4.0.2\n..." to name and
     * version.
     */
    static const char label[] = "Version:";
    char *version;
    int length = 0;

    MPI_Get_library_version(release, &length);
    release[strcspn(release, ",\n")] = '\0';
    version = strstr(release, label);
    if (version) {
        char *rest = version + strlen(label);

        rest += strspn(rest, " \t");
        memmove(version, rest, strlen(rest) + 1);
    }
    if (argc > 1 && strcmp(argv[1], "--version") == 0) {
        puts(release);
        return 0;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* so that no process remains if the launcher is killed */
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(WORLD, &mpi.driver.rank);
    MPI_Comm_size(WORLD, &mpi.driver.ranks);
    mpi.counts = calloc((size_t)mpi.driver.ranks, sizeof(int));
    mpi.offsets = calloc((size_t)mpi.driver.ranks, sizeof(int));
    status =
        mpi.counts && mpi.offsets ? serve(&mpi.driver, argc > 1 ? argv[1] : "mpi", release) : -1;
    free(mpi.counts);
    free(mpi.offsets);
    if (status != 0)
        MPI_Abort(WORLD, 1);
    MPI_Finalize();
    return 0;
}
