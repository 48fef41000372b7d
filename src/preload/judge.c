/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: is a call served, or handed on to MPI? */
#include "preload/serve.h"

/* Is there a negative count? Only where the counts are this rank's to give. */
static bool judge_counts_bad(long long count, struct disti_numbers counts, int ranks)
{
    for (int r = 0; counts.at && r < ranks; r++) {
        if (disti_number(counts, r) < 0)
            return true;
    }
    return !counts.at && count < 0;
}

static bool judge_side_bad(MPI_Datatype type, long long count, struct disti_numbers counts,
                           int ranks)
{
    return type == MPI_DATATYPE_NULL || judge_counts_bad(count, counts, ranks);
}

/* What MPI refuses at once. Only arguments that matter on this rank are looked at. */
static bool judge_bad(const struct disti_args *args, const struct disti_comm *comm)
{
    bool scatters = args->kind == DISTI_SCATTER || args->kind == DISTI_SCATTERV;
    bool gathers = args->kind == DISTI_GATHER || args->kind == DISTI_GATHERV;
    bool at_root = comm->rank == args->root;
    bool sends = scatters ? at_root : true, receives = gathers ? at_root : true;

    if (args->root < 0 || args->root >= comm->ranks)
        return true;
    switch (args->kind) {
    case DISTI_BARRIER:
        return false;
    case DISTI_BCAST:
    case DISTI_ALLREDUCE:
    case DISTI_REDUCE:
    case DISTI_REDUCE_SCATTER:
    case DISTI_REDUCE_SCATTER_BLOCK:
        return judge_side_bad(args->recvtype, args->recvcount, args->recvcounts, comm->ranks);
    default:
        return (sends && args->send != MPI_IN_PLACE &&
                judge_side_bad(args->sendtype, args->sendcount, args->sendcounts, comm->ranks)) ||
               (receives && args->recv != MPI_IN_PLACE &&
                judge_side_bad(args->recvtype, args->recvcount, args->recvcounts, comm->ranks));
    }
}

static enum disti_reason judge_reason(const struct disti_args *args, struct disti_comm **comm_p)
{
    if (!(disti_preload.serves & 1u << args->kind))
        return DISTI_WHY_SWITCHED_OFF;
    if (!disti_preload.active)
        return DISTI_WHY_NO_GROUP;
    if (args->comm == MPI_COMM_NULL)
        return DISTI_WHY_ARGUMENT;
    *comm_p = disti_comm_find(args->comm);
    if (!*comm_p)
        return DISTI_WHY_COMMUNICATOR;
    if (judge_bad(args, *comm_p))
        return DISTI_WHY_ARGUMENT;
    switch (args->kind) {
    case DISTI_ALLREDUCE:
    case DISTI_REDUCE:
    case DISTI_REDUCE_SCATTER:
    case DISTI_REDUCE_SCATTER_BLOCK:
        return disti_reduction_judge(args->recvtype, args->op);
    default:
        return DISTI_WHY_SERVED;
    }
}

struct disti_comm *disti_call_judge(const struct disti_args *args, enum disti_form form)
{
    struct disti_comm *comm = NULL;
    enum disti_reason reason = judge_reason(args, &comm);

    disti_report_count(args->kind, form, reason);
    return reason == DISTI_WHY_SERVED ? comm : NULL;
}
