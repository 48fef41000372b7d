/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: is a call served, or handed on to MPI? */
#include "preload/serve.h"

/* ---- what MPI says of the arguments ---- */

/* Clears the arguments that mean nothing on this rank, which may be anything. */
static void eligible_strip(struct disti_args *args, int rank)
{
    if (rank == args->root)
        return;
    if (args->kind == DISTI_SCATTER || args->kind == DISTI_SCATTERV) {
        args->send = NULL;
        args->sendcount = 0;
        args->sendcounts = args->senddispls = (struct disti_numbers){NULL, 0};
        args->sendtype = MPI_DATATYPE_NULL;
    }
    if (args->kind == DISTI_GATHER || args->kind == DISTI_GATHERV) {
        args->recv = NULL;
        args->recvcount = 0;
        args->recvcounts = args->recvdispls = (struct disti_numbers){NULL, 0};
        args->recvtype = MPI_DATATYPE_NULL;
    }
    if (args->kind == DISTI_REDUCE)
        args->recv = NULL;
}

/* Numbers that the call has, but the program does not give. */
static bool eligible_are_missing(struct disti_numbers numbers)
{
    return numbers.bytes && !numbers.array;
}

static bool eligible_counts_bad(long long count, struct disti_numbers counts, int ranks)
{
    for (int r = 0; counts.array && r < ranks; r++) {
        if (disti_number(counts, r) < 0)
            return true;
    }
    return !counts.array && count < 0;
}

static int eligible_layout(const struct disti_buffer *buffer, int ranks)
{
    if (buffer->type == MPI_DATATYPE_NULL || !disti_type_is_committed(buffer->type))
        return MPI_ERR_TYPE;
    if (eligible_are_missing(buffer->counts) || eligible_are_missing(buffer->displs))
        return MPI_ERR_ARG;
    return eligible_counts_bad(buffer->count, buffer->counts, ranks) ? MPI_ERR_COUNT : MPI_SUCCESS;
}

/* What each MPI says itself of a buffer that may not be in place, and of no room for a request. */
#ifdef OPEN_MPI
#define ELIGIBLE_ERR_IN_PLACE MPI_ERR_ARG
#define ELIGIBLE_ERR_NO_REQUEST MPI_ERR_REQUEST
#else
#define ELIGIBLE_ERR_IN_PLACE MPI_ERR_BUFFER
#define ELIGIBLE_ERR_NO_REQUEST MPI_ERR_ARG
#endif

/* Only one side may be in place, and at a root only that of its own block. */
static bool eligible_in_place_is_bad(const struct disti_args *args, int rank)
{
    bool at_root = rank == args->root;

    switch (args->kind) {
    case DISTI_SCATTER:
    case DISTI_SCATTERV:
        return args->send == MPI_IN_PLACE || (args->recv == MPI_IN_PLACE && !at_root);
    case DISTI_REDUCE:
    case DISTI_GATHER:
    case DISTI_GATHERV:
        return args->recv == MPI_IN_PLACE || (args->send == MPI_IN_PLACE && !at_root);
    default:
        return args->recv == MPI_IN_PLACE;
    }
}

/* A side that is not heeded, or in place, has nothing that could be wrong. */
static int eligible_movers_layouts(const struct disti_args *args, const struct disti_comm *comm)
{
    bool at_root = comm->rank == args->root;
    bool scatters = args->kind == DISTI_SCATTER || args->kind == DISTI_SCATTERV;
    bool gathers = args->kind == DISTI_GATHER || args->kind == DISTI_GATHERV;
    bool sends = (at_root || !scatters) && args->send != MPI_IN_PLACE;
    bool receives = (at_root || !gathers) && args->recv != MPI_IN_PLACE;
    const struct disti_buffer send = disti_args_send(args), recv = disti_args_recv(args);
    int code = MPI_SUCCESS;

    if (sends)
        code = eligible_layout(&send, comm->ranks);
    if (receives && code == MPI_SUCCESS)
        code = eligible_layout(&recv, comm->ranks);
    return code;
}

/* Is there something in the heeded arguments that MPI refuses? MPI_SUCCESS, or its error code. */
static int eligible_check(const struct disti_args *args, enum disti_form form,
                          const struct disti_comm *comm)
{
    const struct disti_buffer recv = disti_args_recv(args);

    if (form != DISTI_BLOCKING && !args->request)
        return ELIGIBLE_ERR_NO_REQUEST;
    if (args->root < 0 || args->root >= comm->ranks)
        return MPI_ERR_ROOT;
    if (eligible_in_place_is_bad(args, comm->rank))
        return ELIGIBLE_ERR_IN_PLACE;
    switch (args->kind) {
    case DISTI_BARRIER:
        return MPI_SUCCESS;
    case DISTI_ALLREDUCE:
    case DISTI_REDUCE:
    case DISTI_REDUCE_SCATTER:
    case DISTI_REDUCE_SCATTER_BLOCK:
        if (args->op == MPI_OP_NULL)
            return MPI_ERR_OP;
        /* fallthrough */
    case DISTI_BCAST:
        return eligible_layout(&recv, comm->ranks);
    default:
        return eligible_movers_layouts(args, comm);
    }
}

int disti_call_refuse(const struct disti_args *args)
{
    PMPI_Comm_call_errhandler(args->comm, args->refused);
    return args->refused;
}

static bool eligible_is_of_arguments(int code)
{
    static const int classes[] = {MPI_ERR_ARG,     MPI_ERR_BUFFER, MPI_ERR_COMM,
                                  MPI_ERR_COUNT,   MPI_ERR_OP,     MPI_ERR_RANK,
                                  MPI_ERR_REQUEST, MPI_ERR_ROOT,   MPI_ERR_TYPE};
    int class = MPI_SUCCESS;

    PMPI_Error_class(code, &class);
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        if (classes[i] == class)
            return true;
    }
    return false;
}

int disti_call_handed_on(struct disti_args *args, int code)
{
    if (code == MPI_SUCCESS || !args->counted || !eligible_is_of_arguments(code))
        return code;
    args->counted->calls--;
    args->comparison = NULL;
    return code;
}

/* ---- served or handed on ---- */

/*
 * Whatever the communicator's state, and the same on all its ranks. What does not block must move
 * while the program computes, or waits in whatever call of MPI for a peer that needs it: so by a
 * thread, or by MPI.
 */
static enum disti_why eligible_call(const struct disti_args *args, enum disti_form form)
{
    if (form != DISTI_BLOCKING && !disti_preload.background)
        return DISTI_WHY_NO_THREAD;
    switch (args->kind) {
    case DISTI_ALLREDUCE:
    case DISTI_REDUCE:
    case DISTI_REDUCE_SCATTER:
    case DISTI_REDUCE_SCATTER_BLOCK:
        return disti_reduction_is_eligible(args->recvtype, args->op);
    default:
        return DISTI_WHY_SERVED;
    }
}

/* All that is counted here must be the same on all ranks: a refused call leaves it as it was. */
static enum disti_why eligible_reason(struct disti_args *args, enum disti_form form,
                                      struct disti_comm **comm_p)
{
    struct disti_comparison *comparison;
    struct disti_comm *comm;
    enum disti_why reason;

    if (!(disti_preload.serves & 1u << args->kind))
        return DISTI_WHY_SWITCHED_OFF;
    if (!disti_preload.active)
        return DISTI_WHY_NO_GROUP;
    if (args->comm == MPI_COMM_NULL)
        return DISTI_WHY_NO_COMMUNICATOR;
    *comm_p = comm = disti_comm_find(args->comm);
    if (!comm || comm->foreign)
        return DISTI_WHY_COMMUNICATOR;
    eligible_strip(args, comm->rank);
    args->refused = eligible_check(args, form, comm);
    if (args->refused != MPI_SUCCESS)
        return DISTI_WHY_SERVED;
    comm->calls++;
    args->counted = comm;
    reason = eligible_call(args, form);
    if (reason != DISTI_WHY_SERVED)
        return reason;
    args->channel = disti_comm_channel(comm, form);
    if (!args->channel)
        return DISTI_WHY_COMMUNICATOR;
    comparison = form == DISTI_BLOCKING ? disti_comparison_find(args, comm) : NULL;
    return comparison ? disti_compare(args, comparison) : DISTI_WHY_SERVED;
}

struct disti_comm *disti_call_is_eligible(struct disti_args *args, enum disti_form form)
{
    struct disti_comm *comm = NULL;
    enum disti_why reason = eligible_reason(args, form, &comm);

    if (args->refused == MPI_SUCCESS)
        disti_report_count(args->kind, form, reason);
    return reason == DISTI_WHY_SERVED ? comm : NULL;
}
