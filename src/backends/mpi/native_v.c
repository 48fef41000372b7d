/* SPDX-License-Identifier: BSD-3-Clause */
/* How the v-forms are put to MPI, whose counts and offsets are ints. */
#include "backends/mpi/native.h"

#include <limits.h>

#define NATIVE_RUN ((size_t)1 << 30) /* bytes of a piece of a block that no int can count */

static int native_all_gather_v(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t own = (size_t)native->rank, at = 0;
    char *out;

    for (int r = 0; r < native->ranks; r++) {
        size_t offset = c->stage ? at : call->out_offsets[r];

        c->out.counts[r] = (int)disti_native_bytes(native, call, call->out_counts[r]);
        c->out.offsets[r] = (int)disti_native_bytes(native, call, offset);
        at += call->out_counts[r];
    }
    out = c->stage ? (char *)c->stage : disti_native_out(call->out, at);
    disti_native_bring(out + c->out.offsets[own], call->in, (size_t)c->out.counts[own]);
    return MPI_Iallgatherv(MPI_IN_PLACE, c->out.counts[own], MPI_BYTE, out, c->out.counts,
                           c->out.offsets, MPI_BYTE, native->comm, &c->request);
}

static int native_reduce_scatter_v(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    void *out = disti_native_out(call->out, call->in_counts[native->rank]);
    size_t all = 0;

    for (int r = 0; r < native->ranks; r++) {
        c->in.counts[r] = (int)call->in_counts[r];
        all += call->in_counts[r];
    }
    return MPI_Ireduce_scatter(disti_native_in(call->in, all), c->stage ? c->stage : out,
                               c->in.counts, disti_native_type(call->dtype),
                               disti_native_op(call->op, call->dtype), native->comm, &c->request);
}

/* A block of any size at any place, as one element of a type. */
static int native_far_type(size_t offset, size_t bytes, MPI_Datatype *type_p)
{
    size_t runs = bytes / NATIVE_RUN, whole = runs * NATIVE_RUN;
    MPI_Datatype run = MPI_DATATYPE_NULL;
    MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
    MPI_Aint places[2] = {(MPI_Aint)offset, (MPI_Aint)(offset + whole)};
    int ones[2] = {1, 1};
    int code = MPI_Type_contiguous((int)NATIVE_RUN, MPI_BYTE, &run);

    if (code == MPI_SUCCESS)
        code = MPI_Type_contiguous((int)runs, run, &parts[0]);
    if (code == MPI_SUCCESS)
        code = MPI_Type_contiguous((int)(bytes - whole), MPI_BYTE, &parts[1]);
    if (code == MPI_SUCCESS)
        code = MPI_Type_create_struct(2, ones, places, parts, type_p);
    if (code == MPI_SUCCESS)
        code = MPI_Type_commit(type_p);
    if (run != MPI_DATATYPE_NULL)
        MPI_Type_free(&run);
    for (int i = 0; i < 2; i++) {
        if (parts[i] != MPI_DATATYPE_NULL)
            MPI_Type_free(&parts[i]);
    }
    return code;
}

/* Sets *first_p to the lowest offset of a block that is not empty. False: all blocks are empty. */
static bool native_first(const size_t *counts, const size_t *offsets, int ranks, size_t *first_p)
{
    bool found = false;

    *first_p = 0;
    for (int r = 0; r < ranks; r++) {
        if (!counts[r] || (found && offsets[r] >= *first_p))
            continue;
        *first_p = offsets[r];
        found = true;
    }
    return found;
}

/* Describes the blocks for MPI, with offsets relative to element `first`. */
static int native_describe(const struct disti_native *native, const struct dist_call *call,
                           const size_t *counts, const size_t *offsets, size_t first,
                           struct disti_native_blocks *blocks)
{
    int code = MPI_SUCCESS;

    for (int r = 0; r < native->ranks && code == MPI_SUCCESS; r++) {
        size_t bytes = disti_native_bytes(native, call, counts[r]);
        size_t offset = bytes ? disti_native_bytes(native, call, offsets[r] - first) : 0;
        bool far = bytes > INT_MAX || offset > INT_MAX;

        blocks->types[r] = MPI_BYTE;
        blocks->counts[r] = far ? 1 : (int)bytes;
        blocks->offsets[r] = far ? 0 : (int)offset;
        if (far)
            code = native_far_type(offset, bytes, &blocks->types[r]);
    }
    return code;
}

static void native_free_far(const struct disti_native_blocks *blocks, int ranks)
{
    for (int r = 0; r < ranks; r++) {
        if (blocks->types[r] != MPI_BYTE && blocks->types[r] != MPI_DATATYPE_NULL)
            MPI_Type_free(&blocks->types[r]);
    }
}

void disti_native_free_types(const struct disti_native *native, struct disti_native_call *c)
{
    if (c->call.collective != DIST_COLL_ALL_TO_ALL_V)
        return;
    native_free_far(&c->in, native->ranks);
    native_free_far(&c->out, native->ranks);
}

/*
 * Only this form takes types by rank, so that a rank with blocks that fit no int can put them all
 * the same: no rank knows the counts of all others, and all must call the same.
 *
 * in and out may have the same address, with the blocks of one in the gaps of the other. To
 * Open MPI equal addresses mean in place. We pass the addresses of the first blocks, which differ.
 */
static int native_all_to_all_v(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t in_first, out_first;
    bool sends = native_first(call->in_counts, call->in_offsets, native->ranks, &in_first);
    bool gets = native_first(call->out_counts, call->out_offsets, native->ranks, &out_first);
    const void *in = disti_native_in(disti_native_element(native, call, call->in, in_first), sends);
    void *out = disti_native_out(disti_native_element(native, call, call->out, out_first), gets);
    int code;

    for (int r = 0; r < native->ranks; r++)
        c->in.types[r] = c->out.types[r] = MPI_DATATYPE_NULL;
    code = native_describe(native, call, call->in_counts, call->in_offsets, in_first, &c->in);
    if (code == MPI_SUCCESS)
        code =
            native_describe(native, call, call->out_counts, call->out_offsets, out_first, &c->out);
    if (code == MPI_SUCCESS)
        code = MPI_Ialltoallw(in, c->in.counts, c->in.offsets, c->in.types, out, c->out.counts,
                              c->out.offsets, c->out.types, native->comm, &c->request);
    return code;
}

int disti_native_start_v(const struct disti_native *native, struct disti_native_call *c)
{
    switch (c->call.collective) {
    case DIST_COLL_ALL_GATHER_V:
        return native_all_gather_v(native, c);
    case DIST_COLL_REDUCE_SCATTER_V:
        return native_reduce_scatter_v(native, c);
    default:
        return native_all_to_all_v(native, c);
    }
}
