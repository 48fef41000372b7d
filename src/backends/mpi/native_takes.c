/* SPDX-License-Identifier: BSD-3-Clause */
/* Which calls are MPI's, and what its types and operations are called. */
#include "backends/mpi/native.h"

#include <limits.h>

MPI_Datatype disti_native_type(dist_dtype dtype)
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
    default: /* float16, bfloat16; bool has other rules there */
        return MPI_DATATYPE_NULL;
    }
}

static bool native_is_float(dist_dtype dtype)
{
    return dtype == DIST_FLOAT32 || dtype == DIST_FLOAT64;
}

/*
 * AVG is divided here afterwards, and only where that is one line: for the float types. PREMUL_SUM
 * and USER are left to our plans.
 */
MPI_Op disti_native_op(dist_op op, dist_dtype dtype)
{
    switch (op) {
    case DIST_SUM:
        return MPI_SUM;
    case DIST_AVG:
        return native_is_float(dtype) ? MPI_SUM : MPI_OP_NULL;
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
 * where the CPU has AVX (and wraps elsewhere); minima and maxima of unsigned integers, which MPICH
 * 4.0 compares as signed; minima and maxima of floats, since MPI does not define them for a NaN and
 * for zeros of both signs: they depend on the order of the operands, and with MPICH on the rank.
 */
static bool native_is_wrong(const struct dist_call *call)
{
    bool wide_unsigned = call->dtype == DIST_UINT32 || call->dtype == DIST_UINT64;
    bool compares = call->op == DIST_MIN || call->op == DIST_MAX;

    return call->dtype == DIST_INT8 || call->dtype == DIST_UINT8 ||
           (compares && (wide_unsigned || native_is_float(call->dtype)));
}

/* MPI adds in whatever order it likes. */
static bool native_depends_on_order(const struct dist_call *call)
{
    return native_is_float(call->dtype) &&
           (call->op == DIST_SUM || call->op == DIST_AVG || call->op == DIST_PROD);
}

static bool native_reduces(const struct disti_native *native, const struct dist_call *call)
{
    return disti_native_type(call->dtype) != MPI_DATATYPE_NULL &&
           disti_native_op(call->op, call->dtype) != MPI_OP_NULL && !native_is_wrong(call) &&
           !(native->reproducible && native_depends_on_order(call));
}

/*
 * Do so many bytes fit an int? More elements would, but MPICH 4.0 fails to broadcast more bytes
 * than that, and other versions and collectives have had such faults.
 */
static bool native_fits(const struct disti_native *native, const struct dist_call *call,
                        size_t blocks)
{
    return call->count <= (size_t)INT_MAX / native->host->dtype_size(call->dtype) / blocks;
}

static bool native_all_fit(const struct disti_native *native, const struct dist_call *call,
                           const size_t *counts)
{
    size_t left = (size_t)INT_MAX / native->host->dtype_size(call->dtype);

    for (int r = 0; r < native->ranks; r++) {
        if (counts[r] > left)
            return false;
        left -= counts[r];
    }
    return true;
}

bool disti_native_takes(const struct disti_native *native, const struct dist_call *call)
{
    if (native->ranks == 1) /* ours is a copy, and MPICH 4.0's Iallgatherv forgets the offset */
        return false;
    switch (call->collective) {
    case DIST_COLL_BARRIER:
    case DIST_COLL_ALL_TO_ALL_V:
        return true;
    case DIST_COLL_BROADCAST:
        return native_fits(native, call, 1);
    case DIST_COLL_ALL_GATHER:
    case DIST_COLL_GATHER:
    case DIST_COLL_SCATTER:
    case DIST_COLL_ALL_TO_ALL:
        return native_fits(native, call, (size_t)native->ranks);
    case DIST_COLL_ALL_GATHER_V:
        return native_all_fit(native, call, call->out_counts);
    case DIST_COLL_ALL_REDUCE:
    case DIST_COLL_REDUCE:
        return native_reduces(native, call) && native_fits(native, call, 1);
    case DIST_COLL_REDUCE_SCATTER:
        return native_reduces(native, call) && native_fits(native, call, (size_t)native->ranks);
    case DIST_COLL_REDUCE_SCATTER_V:
        return native_reduces(native, call) && native_all_fit(native, call, call->in_counts);
    default:
        return false;
    }
}
