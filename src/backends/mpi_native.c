/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's own nonblocking collectives, for DIST_MPI_COLL=native. */
#include "backends/mpi_native.h"

#include <limits.h>
#include <stdlib.h>

struct disti_native_call {
    struct disti_native_call *next;
    struct dist_call call;
    struct dist_ticket *ticket;
    MPI_Request request;
};

/* MPI_DATATYPE_NULL: MPI has no such type (float16, bfloat16), or other rules for it (bool). */
static MPI_Datatype native_type(dist_dtype dtype)
{
    switch (dtype) {
    case DIST_FLOAT32:
        return MPI_FLOAT;
    case DIST_FLOAT64:
        return MPI_DOUBLE;
    case DIST_INT8:
        return MPI_INT8_T;
    case DIST_UINT8:
        return MPI_UINT8_T;
    case DIST_INT32:
        return MPI_INT32_T;
    case DIST_UINT32:
        return MPI_UINT32_T;
    case DIST_INT64:
        return MPI_INT64_T;
    case DIST_UINT64:
        return MPI_UINT64_T;
    default:
        return MPI_DATATYPE_NULL;
    }
}

/*
 * AVG is divided here afterwards, and only where that is one line: for the float types. PREMUL_SUM
 * and USER are left to our plans.
 */
static MPI_Op native_op(dist_op op, dist_dtype dtype)
{
    switch (op) {
    case DIST_SUM:
        return MPI_SUM;
    case DIST_AVG:
        return dtype == DIST_FLOAT32 || dtype == DIST_FLOAT64 ? MPI_SUM : MPI_OP_NULL;
    case DIST_PROD:
        return MPI_PROD;
    case DIST_MIN:
        return MPI_MIN;
    case DIST_MAX:
        return MPI_MAX;
    case DIST_BAND:
        return MPI_BAND;
    case DIST_BOR:
        return MPI_BOR;
    case DIST_BXOR:
        return MPI_BXOR;
    default:
        return MPI_OP_NULL;
    }
}

/*
 * Left to our plans: reductions of 8-bit integers, since Open MPI 4.1 adds them with saturation
 * where the CPU has AVX (and wraps elsewhere); the least and the greatest of unsigned integers,
 * which MPICH 4.0 compares as signed.
 */
static bool native_is_wrong(const struct dist_call *call)
{
    bool wide_unsigned = call->dtype == DIST_UINT32 || call->dtype == DIST_UINT64;
    bool compares = call->op == DIST_MIN || call->op == DIST_MAX;

    return call->dtype == DIST_INT8 || call->dtype == DIST_UINT8 || (wide_unsigned && compares);
}

bool disti_native_takes(const struct disti_native *native, const struct dist_call *call)
{
    size_t bytes = call->count * native->host->dtype_size(call->dtype);

    if (call->collective == DIST_COLL_ALL_REDUCE)
        return call->count <= INT_MAX && !native_is_wrong(call) &&
               native_type(call->dtype) != MPI_DATATYPE_NULL &&
               native_op(call->op, call->dtype) != MPI_OP_NULL;
    if (call->collective != DIST_COLL_BROADCAST && call->collective != DIST_COLL_BARRIER &&
        call->collective != DIST_COLL_ALL_GATHER)
        return false;
    return bytes <= (size_t)INT_MAX / (size_t)native->ranks; /* they move bytes */
}

static int native_start(struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    int count = (int)call->count;
    int bytes = (int)(call->count * native->host->dtype_size(call->dtype));
    const char *block = (const char *)call->out + (size_t)native->rank * (size_t)bytes;

    switch (call->collective) {
    case DIST_COLL_ALL_REDUCE:
        return MPI_Iallreduce(call->in == call->out ? MPI_IN_PLACE : call->in, call->out, count,
                              native_type(call->dtype), native_op(call->op, call->dtype),
                              native->comm, &c->request);
    case DIST_COLL_BROADCAST:
        return MPI_Ibcast(call->out, bytes, MPI_BYTE, call->root, native->comm, &c->request);
    case DIST_COLL_ALL_GATHER:
        return MPI_Iallgather(call->in == block ? MPI_IN_PLACE : call->in, bytes, MPI_BYTE,
                              call->out, bytes, MPI_BYTE, native->comm, &c->request);
    default:
        return MPI_Ibarrier(native->comm, &c->request);
    }
}

dist_status disti_native_post(struct disti_native *native, const struct dist_call *call,
                              struct dist_ticket *ticket)
{
    struct disti_native_call *c = malloc(sizeof(*c));
    dist_status status = DIST_OK;
    int code;

    if (!c)
        return native->host->fail(DIST_ERR_NO_MEMORY, "no memory to start an MPI collective");
    *c = (struct disti_native_call){.call = *call, .ticket = ticket, .next = native->calls};
    if (!disti_mpi_lock()) {
        free(c);
        return disti_mpi_ended(native->host);
    }
    code = native_start(native, c);
    if (code != MPI_SUCCESS)
        status =
            disti_mpi_fail(native->host, native->host->collective_string(call->collective), code);
    disti_mpi_unlock();
    if (status == DIST_OK)
        native->calls = c;
    else
        free(c);
    return status;
}

static void native_average(const struct dist_call *call, int ranks)
{
    if (call->dtype == DIST_FLOAT32) {
        for (size_t i = 0; i < call->count; i++)
            ((float *)call->out)[i] /= (float)ranks;
    } else {
        for (size_t i = 0; i < call->count; i++)
            ((double *)call->out)[i] /= ranks;
    }
}

static int native_move(struct disti_native *native)
{
    int moved = 0;

    for (struct disti_native_call **at = &native->calls; *at;) {
        struct disti_native_call *c = *at;
        int done = 0, code = MPI_Test(&c->request, &done, MPI_STATUS_IGNORE);

        if (code != MPI_SUCCESS)
            return disti_mpi_fail(native->host, "MPI_Test", code);
        if (!done) {
            at = &c->next;
            continue;
        }
        if (c->call.collective == DIST_COLL_ALL_REDUCE && c->call.op == DIST_AVG)
            native_average(&c->call, native->ranks);
        c->ticket->status = DIST_OK;
        *at = c->next;
        free(c);
        moved++;
    }
    return moved;
}

int disti_native_progress(struct disti_native *native)
{
    int moved;

    if (!disti_mpi_lock())
        return disti_mpi_ended(native->host);
    moved = native_move(native);
    disti_mpi_unlock();
    return moved;
}

void disti_native_drop(struct disti_native *native)
{
    while (native->calls) { /* MPI has no way to cancel a collective: its request is left */
        struct disti_native_call *c = native->calls;

        native->calls = c->next;
        free(c);
    }
}
