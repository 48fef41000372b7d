/* SPDX-License-Identifier: BSD-3-Clause */
/* How a call is put to MPI: memory, types, and what is in place. */
#include "backends/mpi/native.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* ---- memory ---- */

/* Do blocks begin where no int can count the bytes? */
static bool native_far(const struct disti_native *native, const struct dist_call *call,
                       const size_t *offsets)
{
    for (int r = 0; r < native->ranks; r++) {
        if (offsets[r] > (size_t)INT_MAX / native->host->dtype_size(call->dtype))
            return true;
    }
    return false;
}

static size_t native_sum(const size_t *counts, int ranks)
{
    size_t sum = 0;

    for (int r = 0; r < ranks; r++)
        sum += counts[r];
    return sum;
}

/*
 * Does MPI write to a stage, and of how many elements? Its own form in place of a reduce-scatter
 * leaves the result at the beginning and spoils the rest; ours leaves it at the rank's block and
 * the rest as it was. And its offsets are ints.
 */
bool disti_native_stages(const struct disti_native *native, const struct dist_call *call,
                         size_t *count_p)
{
    size_t own = (size_t)native->rank;

    switch (call->collective) {
    case DIST_COLL_REDUCE_SCATTER:
        *count_p = call->count;
        return call->out == disti_native_element(native, call, call->in, own * call->count);
    case DIST_COLL_REDUCE_SCATTER_V:
        *count_p = call->in_counts[own];
        return call->out == disti_native_element(native, call, call->in, call->in_offsets[own]);
    case DIST_COLL_ALL_GATHER_V:
        *count_p = native_sum(call->out_counts, native->ranks);
        return native_far(native, call, call->out_offsets);
    default:
        return false;
    }
}

static void native_carve(struct disti_native_call *c, size_t ranks)
{
    MPI_Datatype *types = c->arrays;
    int *numbers = (int *)(types + 2 * ranks);

    c->in = (struct disti_native_blocks){numbers, numbers + ranks, types};
    c->out = (struct disti_native_blocks){numbers + 2 * ranks, numbers + 3 * ranks, types + ranks};
}

dist_status disti_native_make_room(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t ranks = (size_t)native->ranks;
    size_t count = 0;

    if (call->collective == DIST_COLL_ALL_GATHER_V ||
        call->collective == DIST_COLL_REDUCE_SCATTER_V ||
        call->collective == DIST_COLL_ALL_TO_ALL_V) {
        c->arrays = malloc(2 * ranks * (sizeof(MPI_Datatype) + 2 * sizeof(int)));
        if (!c->arrays)
            return native->host->fail(DIST_ERR_NO_MEMORY, "no memory for %d counts", native->ranks);
        native_carve(c, ranks);
    }
    if (disti_native_stages(native, call, &count)) {
        c->stage = malloc(disti_native_bytes(native, call, count) + 1); /* never NULL for nothing */
        if (!c->stage)
            return native->host->fail(DIST_ERR_NO_MEMORY, "no memory for a copy of %zu elements",
                                      count);
    }
    return DIST_OK;
}

void disti_native_unstage(const struct disti_native *native, const struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t count = 0, at = 0;

    if (!c->stage || !call->out)
        return;
    disti_native_stages(native, call, &count);
    if (call->collective != DIST_COLL_ALL_GATHER_V) {
        memcpy(call->out, c->stage, disti_native_bytes(native, call, count));
        return;
    }
    for (int r = 0; r < native->ranks; r++) {
        memcpy(disti_native_element(native, call, call->out, call->out_offsets[r]),
               disti_native_element(native, call, c->stage, at),
               disti_native_bytes(native, call, call->out_counts[r]));
        at += call->out_counts[r];
    }
}

/* ---- starting ---- */

const void *disti_native_in(const void *in, size_t bytes)
{
    static const char nothing;

    return bytes ? in : &nothing;
}

void *disti_native_out(void *out, size_t bytes)
{
    static char nothing;

    return bytes ? out : &nothing;
}

bool disti_native_brings(const struct disti_native *native, const struct dist_call *call)
{
    size_t own = (size_t)native->rank;

    switch (call->collective) {
    case DIST_COLL_ALL_REDUCE:
        return call->in != call->out;
    case DIST_COLL_ALL_GATHER:
        return call->in != disti_native_element(native, call, call->out, own * call->count);
    case DIST_COLL_ALL_GATHER_V:
        return call->in != disti_native_element(native, call, call->out, call->out_offsets[own]);
    default:
        return false;
    }
}

void disti_native_bring(void *to, const void *from, size_t bytes)
{
    if (to != from && bytes)
        memcpy(to, from, bytes);
}

static int native_start_reduction(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    MPI_Datatype type = disti_native_type(call->dtype);
    MPI_Op op = disti_native_op(call->op, call->dtype);
    size_t bytes = disti_native_bytes(native, call, call->count);
    int count = (int)call->count;
    bool root = native->rank == call->root, in_place = root && bytes && call->in == call->out;
    const void *in = disti_native_in(call->in, bytes);
    void *out = disti_native_out(call->out, bytes);

    switch (call->collective) {
    case DIST_COLL_ALL_REDUCE:
        disti_native_bring(out, call->in, bytes);
        return MPI_Iallreduce(MPI_IN_PLACE, out, count, type, op, native->comm, &c->request);
    case DIST_COLL_REDUCE:
        out = root ? out : disti_native_out(NULL, 0);
        return MPI_Ireduce(in_place ? MPI_IN_PLACE : in, out, count, type, op, call->root,
                           native->comm, &c->request);
    default:
        return MPI_Ireduce_scatter_block(in, c->stage ? c->stage : out, count, type, op,
                                         native->comm, &c->request);
    }
}

static int native_start_move(const struct disti_native *native, struct disti_native_call *c)
{
    const struct dist_call *call = &c->call;
    size_t bytes = disti_native_bytes(native, call, call->count), own = native->rank * bytes;
    const char *in = disti_native_in(call->in, bytes);
    char *out = disti_native_out(call->out, bytes);
    int n = (int)bytes;
    bool root = native->rank == call->root;

    switch (call->collective) {
    case DIST_COLL_BROADCAST:
        return MPI_Ibcast(out, n, MPI_BYTE, call->root, native->comm, &c->request);
    case DIST_COLL_ALL_GATHER:
        disti_native_bring(out + own, in, bytes);
        return MPI_Iallgather(MPI_IN_PLACE, n, MPI_BYTE, out, n, MPI_BYTE, native->comm,
                              &c->request);
    case DIST_COLL_GATHER:
        out = root ? out : disti_native_out(NULL, 0);
        return MPI_Igather(root && in == out + own ? MPI_IN_PLACE : in, n, MPI_BYTE, out, n,
                           MPI_BYTE, call->root, native->comm, &c->request);
    case DIST_COLL_SCATTER:
        in = root ? in : disti_native_in(NULL, 0);
        return MPI_Iscatter(in, n, MPI_BYTE, root && out == in + own ? MPI_IN_PLACE : out, n,
                            MPI_BYTE, call->root, native->comm, &c->request);
    default:
        return MPI_Ialltoall(in, n, MPI_BYTE, out, n, MPI_BYTE, native->comm, &c->request);
    }
}

int disti_native_start(const struct disti_native *native, struct disti_native_call *c)
{
    switch (c->call.collective) {
    case DIST_COLL_BARRIER:
        return MPI_Ibarrier(native->comm, &c->request);
    case DIST_COLL_ALL_REDUCE:
    case DIST_COLL_REDUCE:
    case DIST_COLL_REDUCE_SCATTER:
        return native_start_reduction(native, c);
    case DIST_COLL_REDUCE_SCATTER_V:
    case DIST_COLL_ALL_GATHER_V:
    case DIST_COLL_ALL_TO_ALL_V:
        return disti_native_start_v(native, c);
    default:
        return native_start_move(native, c);
    }
}
