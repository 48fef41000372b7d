/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: a call of MPI made ready for libdist, and started. */
#include "preload/serve.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reductions ---- */

static int call_no_memory(const struct disti_call *call)
{
    fprintf(stderr, "libdist: rank %d: no memory for a collective of MPI\n", disti_preload.rank);
    PMPI_Comm_call_errhandler(call->comm->comm, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

/*
 * Do in and out share memory? Only in place may they, by MPI and libdist alike, but a program that
 * breaks the rule is served as well: its rank would be alone with a refusal.
 */
static bool call_shares(const void *in, size_t in_bytes, const void *out, size_t out_bytes)
{
    return in_bytes && out_bytes && (uintptr_t)in < (uintptr_t)out + out_bytes &&
           (uintptr_t)out < (uintptr_t)in + in_bytes;
}

/* The result goes elsewhere first. */
static int call_spare(struct disti_call *call, size_t bytes)
{
    call->spare_bytes = bytes;
    call->spare_goes = call->out;
    call->spare = malloc(bytes ? bytes : 1);
    call->out = call->spare;
    return call->spare ? MPI_SUCCESS : call_no_memory(call);
}

/* Elements that the ranks get together, and this one. */
static int call_open_counts(struct disti_call *call, const struct disti_args *args, size_t *all_p,
                            size_t *own_p)
{
    int ranks = call->comm->ranks;

    *all_p = call->count * (size_t)ranks;
    *own_p = call->count;
    if (args->kind == DISTI_REDUCE_SCATTER_BLOCK)
        return MPI_SUCCESS;
    call->counts = calloc((size_t)ranks, sizeof(*call->counts));
    if (!call->counts)
        return call_no_memory(call);
    *all_p = 0;
    for (int r = 0; r < ranks; r++) {
        call->counts[r] = (size_t)disti_number(args->recvcounts, r) * call->reduction.parts;
        *all_p += call->counts[r];
    }
    *own_p = call->counts[call->comm->rank];
    return MPI_SUCCESS;
}

/*
 * MPI's reduce-scatter in place brings the result to the beginning of the buffer, libdist's to this
 * rank's block of it.
 */
static int call_open_reduction(struct disti_call *call, const struct disti_args *args)
{
    bool scatters = args->kind == DISTI_REDUCE_SCATTER || args->kind == DISTI_REDUCE_SCATTER_BLOCK;
    size_t element, in, out;
    int code = MPI_SUCCESS;

    if (disti_reduction_find(args->recvtype, args->op, &call->reduction) != DIST_OK)
        return disti_comm_fail(args->comm);
    element = dist_dtype_size(call->reduction.dtype);
    call->in = args->send == MPI_IN_PLACE ? args->recv : args->send;
    call->out = args->recv;
    call->count = in = (size_t)args->recvcount * call->reduction.parts;
    out = call->out ? in : 0;
    if (scatters)
        code = call_open_counts(call, args, &in, &out);
    if (code == MPI_SUCCESS && (scatters || call->in != call->out) &&
        call_shares(call->in, in * element, call->out, out * element))
        code = call_spare(call, out * element);
    return code;
}

/* ---- movers of data ---- */

/* How many blocks each side has, at root and elsewhere; ALL: one for each rank. */
#define ALL (-1)
static const struct call_shape {
    int send_root, send_other, recv_root, recv_other;
} call_shapes[DISTI_KINDS] = {
    [DISTI_BCAST] = {0, 0, 1, 1},
    [DISTI_ALLGATHER] = {1, 1, ALL, ALL},
    [DISTI_ALLGATHERV] = {1, 1, ALL, ALL},
    [DISTI_ALLTOALL] = {ALL, ALL, ALL, ALL},
    [DISTI_ALLTOALLV] = {ALL, ALL, ALL, ALL},
    [DISTI_GATHER] = {1, 1, ALL, 0},
    [DISTI_GATHERV] = {1, 1, ALL, 0},
    [DISTI_SCATTER] = {ALL, 0, 1, 1},
    [DISTI_SCATTERV] = {ALL, 0, 1, 1},
};

static int call_blocks(const struct disti_call *call, int at_root, int other)
{
    int blocks = call->comm->rank == call->root ? at_root : other;

    return blocks == ALL ? call->comm->ranks : blocks;
}

/* May what arrives be put where data to be sent stand? Not if one side is a copy. */
static bool call_layouts_share(const struct disti_call *call)
{
    const struct disti_layout *send = &call->send, *recv = &call->recv;

    return send->blocks && recv->blocks && send->contiguous && recv->contiguous &&
           call_shares(send->bytes, disti_layout_span(send), recv->bytes, disti_layout_span(recv));
}

static int call_open_layouts(struct disti_call *call, const struct disti_args *args)
{
    const struct call_shape *shape = &call_shapes[args->kind];
    const struct disti_buffer recv = disti_args_recv(args), send = disti_args_send(args);
    bool exchange = args->kind == DISTI_ALLTOALL || args->kind == DISTI_ALLTOALLV;
    bool send_in_place = args->send == MPI_IN_PLACE, recv_in_place = args->recv == MPI_IN_PLACE;
    int send_blocks = call_blocks(call, shape->send_root, shape->send_other);
    int recv_blocks = call_blocks(call, shape->recv_root, shape->recv_other);
    int code = MPI_SUCCESS;

    if (send_blocks && exchange && send_in_place) /* it all goes: from a copy */
        code = disti_layout_open(&call->send, &recv, send_blocks, true);
    else if (send_blocks && !send_in_place)
        code = disti_layout_open(&call->send, &send, send_blocks, false);
    if (recv_blocks && !recv_in_place && code == MPI_SUCCESS)
        code = disti_layout_open(&call->recv, &recv, recv_blocks, false);
    if (code == MPI_SUCCESS && call_layouts_share(call)) {
        disti_layout_close(&call->send);
        code = disti_layout_open(&call->send, &send, send_blocks, true);
    }
    if (code != MPI_SUCCESS)
        PMPI_Comm_call_errhandler(args->comm, code);
    return code;
}

/* Bytes of what this rank gives or gets: the one block of a side, or its own of many. */
static size_t call_block(const struct disti_layout *send, const struct disti_layout *recv, int rank)
{
    if (send->blocks == 1 || recv->blocks == 1)
        return disti_layout_size(send->blocks == 1 ? send : recv, 0);
    return disti_layout_size(send->blocks ? send : recv, rank);
}

/* What libdist is told. A side that is not there is in place, in this rank's block of the other. */
static int call_open_mover(struct disti_call *call, const struct disti_args *args)
{
    struct disti_layout *send = &call->send, *recv = &call->recv;
    int rank = call->comm->rank, code = call_open_layouts(call, args);

    if (code != MPI_SUCCESS)
        return code;
    if (send->blocks)
        call->in = send->bytes;
    else if (args->send == MPI_IN_PLACE)
        call->in = recv->bytes + disti_layout_offset(recv, rank);
    if (recv->blocks)
        call->out = recv->bytes;
    else if (args->recv == MPI_IN_PLACE)
        call->out = send->bytes + disti_layout_offset(send, rank);
    call->count = call_block(send, recv, rank);
    call->loads_own = !send->blocks && args->send == MPI_IN_PLACE;
    call->loads_recv = args->kind == DISTI_BCAST && rank == args->root;
    return MPI_SUCCESS;
}

/* ---- open, start, finish ---- */

static int call_open(struct disti_call *call, const struct disti_args *args)
{
    switch (args->kind) {
    case DISTI_BARRIER:
        return MPI_SUCCESS;
    case DISTI_ALLREDUCE:
    case DISTI_REDUCE:
    case DISTI_REDUCE_SCATTER:
    case DISTI_REDUCE_SCATTER_BLOCK:
        return call_open_reduction(call, args);
    default:
        return call_open_mover(call, args);
    }
}

/* Field by field, as in disti_layout_clear. */
static void call_fill(struct disti_call *call, const struct disti_args *args,
                      struct disti_comm *comm)
{
    call->kind = args->kind;
    call->comm = comm;
    call->channel = args->channel;
    call->root = args->root;
    disti_layout_clear(&call->send);
    disti_layout_clear(&call->recv);
    call->in = NULL;
    call->out = NULL;
    call->count = 0;
    call->counts = NULL;
    call->spare = NULL;
    call->loads_own = false;
    call->loads_recv = false;
}

int disti_call_open(struct disti_call *call, const struct disti_args *args, struct disti_comm *comm)
{
    int code;

    call_fill(call, args, comm);
    code = call_open(call, args);
    if (code != MPI_SUCCESS)
        call->channel->broken = true; /* the others begin it without this rank */
    return code;
}

void disti_call_close(struct disti_call *call)
{
    if (disti_layout_owns(&call->send))
        disti_layout_close(&call->send);
    if (disti_layout_owns(&call->recv))
        disti_layout_close(&call->recv);
    if (!call->counts && !call->spare)
        return;
    free(call->counts);
    free(call->spare);
    call->counts = NULL;
    call->spare = NULL;
}

/* The program's data, as bytes. */
static int call_load(const struct disti_call *call)
{
    int code = disti_layout_load(&call->send, 0, call->send.blocks);

    if (code == MPI_SUCCESS && (call->loads_own || call->loads_recv))
        code = disti_layout_load(&call->recv, call->loads_own ? call->comm->rank : 0, 1);
    return code;
}

/* The operation, started, or to its end if work_p is NULL. */
#define CALL_RUN(name, ...)                                                                        \
    (work_p ? dist_##name##_async(__VA_ARGS__, work_p) : dist_##name(__VA_ARGS__))

static dist_status call_reduce(struct disti_call *call, dist_work **work_p)
{
    dist_group *group = call->channel->group;
    const struct disti_reduction *how = &call->reduction;

    switch (call->kind) {
    case DISTI_ALLREDUCE:
        return CALL_RUN(all_reduce, group, call->in, call->out, call->count, how->dtype, how->op);
    case DISTI_REDUCE:
        return CALL_RUN(reduce, group, call->in, call->out, call->count, how->dtype, how->op,
                        call->root);
    case DISTI_REDUCE_SCATTER:
        return CALL_RUN(reduce_scatter_v, group, call->in, call->out, call->counts, how->dtype,
                        how->op);
    default:
        return CALL_RUN(reduce_scatter, group, call->in, call->out, call->count, how->dtype,
                        how->op);
    }
}

static dist_status call_move(struct disti_call *call, dist_work **work_p)
{
    const struct disti_layout *send = &call->send, *recv = &call->recv;
    dist_group *group = call->channel->group;
    const dist_dtype byte = DIST_UINT8;

    switch (call->kind) {
    case DISTI_BARRIER:
        return work_p ? dist_barrier_async(group, work_p) : dist_barrier(group);
    case DISTI_BCAST:
        return CALL_RUN(broadcast, group, call->out, call->count, byte, call->root);
    case DISTI_ALLGATHER:
        return CALL_RUN(all_gather, group, call->in, call->out, call->count, byte);
    case DISTI_ALLGATHERV:
        return CALL_RUN(all_gather_v, group, call->in, call->out, recv->sizes, recv->offsets, byte);
    case DISTI_ALLTOALL:
        return CALL_RUN(all_to_all, group, call->in, call->out, call->count, byte);
    case DISTI_ALLTOALLV:
        return CALL_RUN(all_to_all_v, group, call->in, send->sizes, send->offsets, call->out,
                        recv->sizes, recv->offsets, byte);
    case DISTI_GATHER:
        return CALL_RUN(gather, group, call->in, call->out, call->count, byte, call->root);
    case DISTI_GATHERV:
        return CALL_RUN(gather_v, group, call->in, call->count, call->out, recv->sizes,
                        recv->offsets, byte, call->root);
    case DISTI_SCATTER:
        return CALL_RUN(scatter, group, call->in, call->out, call->count, byte, call->root);
    case DISTI_SCATTERV:
        return CALL_RUN(scatter_v, group, call->in, send->sizes, send->offsets, call->out,
                        call->count, byte, call->root);
    default:
        return call_reduce(call, work_p);
    }
}

int disti_call_fail(const struct disti_call *call)
{
    call->channel->broken = true;
    return disti_comm_fail(call->comm->comm);
}

int disti_call_run(struct disti_call *call, dist_work **work_p)
{
    return call_move(call, work_p) == DIST_OK ? MPI_SUCCESS : disti_call_fail(call);
}

int disti_call_start(struct disti_call *call, dist_work **work_p)
{
    int code = call_load(call);

    if (code != MPI_SUCCESS) {
        call->channel->broken = true; /* the others begin it */
        PMPI_Comm_call_errhandler(call->comm->comm, code);
        return code;
    }
    return disti_call_run(call, work_p);
}

int disti_call_finish(const struct disti_call *call)
{
    if (call->spare && call->spare_bytes)
        memcpy(call->spare_goes, call->spare, call->spare_bytes);
    return call->loads_recv ? MPI_SUCCESS : disti_layout_store(&call->recv, 0, call->recv.blocks);
}
