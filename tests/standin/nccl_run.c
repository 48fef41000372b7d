/* SPDX-License-Identifier: BSD-3-Clause */
/* Executes a launch: collectives as exchanges between all ranks. */
#include "communicator.h"

#include <stdlib.h>
#include <string.h>

/* Elements that are reduced at a time, which limits the memory used. */
#define RUN_PIECE ((size_t)1 << 18)

/* A call with its resolved memory. */
struct run {
    struct ncclComm *comm;
    const struct nccl_call *call;
    unsigned char *in, *out;
    size_t size; /* of an element */
    struct nccl_move *moves;
    int count;
};

static void run_move(struct run *run, bool sends, int peer, unsigned char *data, size_t bytes)
{
    const struct nccl_call *call = run->call;
    uint64_t label = (uint64_t)call->kind | (uint64_t)call->type << 8 |
                     (uint64_t)(call->op < OP_NumOps ? call->op : OP_NumOps) << 16 |
                     (uint64_t)call->peer << 24;

    if (call->kind == KIND_SEND || call->kind == KIND_RECV)
        label = KIND_SEND;
    run->moves[run->count++] = (struct nccl_move){
        .sends = sends, .peer = peer, .data = data, .bytes = bytes, .label = label};
}

static bool run_moves(struct run *run)
{
    int count = run->count;

    run->count = 0;
    return nccl_exchange(run->comm, run->moves, count);
}

/* ---- reductions: the rank that reduces some elements receives them from all ranks ---- */

/* Copies this rank's factor, which is sent before the data, into `scalar`. */
static void run_scalar(const struct run *run, unsigned char *scalar)
{
    const struct nccl_scalar *own = &run->call->scalar;
    const unsigned char *device = own->device ? standin_alias(own->device, run->size) : NULL;

    memcpy(scalar, own->bytes, sizeof(own->bytes));
    if (device)
        memcpy(scalar, device, run->size);
}

/* Sends pieces[r] to rank r, unless pieces[r] is NULL. If this rank's own piece is not NULL, also
 * stores the pieces received from all ranks in rows. */
static bool run_collect(struct run *run, unsigned char *const *pieces, size_t count,
                        const size_t *counts, unsigned char *rows, unsigned char *scalars)
{
    struct ncclComm *comm = run->comm;
    bool premul = run->call->op >= OP_NumOps;

    run_scalar(run, scalars + (size_t)comm->rank * 8);
    for (int r = 0; r < comm->ranks; r++) {
        if (pieces[r] && premul)
            run_move(run, true, r, scalars + (size_t)comm->rank * 8, r == comm->rank ? 0 : 8);
        if (pieces[r])
            run_move(run, true, r, pieces[r], counts[r] * run->size);
        if (pieces[comm->rank] && premul)
            run_move(run, false, r, scalars + (size_t)r * 8, r == comm->rank ? 0 : 8);
        if (pieces[comm->rank])
            run_move(run, false, r, rows + (size_t)r * count * run->size,
                     counts[comm->rank] * run->size);
    }
    return run_moves(run);
}

/* Sends piece r, with counts[r] elements, to rank r, and reduces the pieces received into out. */
static bool run_reduce_piece(struct run *run, unsigned char *const *pieces, const size_t *counts,
                             unsigned char *out)
{
    const struct nccl_call *call = run->call;
    struct ncclComm *comm = run->comm;
    size_t own = counts[comm->rank];
    unsigned char *rows = malloc(own * run->size * (size_t)comm->ranks + 1);
    unsigned char *scalars = calloc((size_t)comm->ranks, 8);
    bool ok = rows && scalars && run_collect(run, pieces, own, counts, rows, scalars);

    if (ok && pieces[comm->rank])
        nccl_reduce_rows(call->type, call->op, comm->ranks, rows, own * run->size,
                         call->op >= OP_NumOps ? scalars : NULL, own, out);
    free(rows);
    free(scalars);
    return ok;
}

/* A piece of all_reduce: each rank reduces a part and sends the result to all ranks. */
static bool run_all_reduce_piece(struct run *run, unsigned char *in, unsigned char *out,
                                 size_t count, unsigned char **pieces, size_t *counts)
{
    int ranks = run->comm->ranks, rank = run->comm->rank;
    size_t *at = counts + ranks;

    for (int r = 0; r < ranks; r++) {
        at[r] = count * (size_t)r / (size_t)ranks * run->size;
        counts[r] = count * (size_t)(r + 1) / (size_t)ranks - count * (size_t)r / (size_t)ranks;
        pieces[r] = in + at[r];
    }
    if (!run_reduce_piece(run, pieces, counts, out + at[rank]))
        return false;
    for (int r = 0; r < ranks; r++) {
        if (r == rank)
            continue;
        run_move(run, true, r, out + at[rank], counts[rank] * run->size);
        run_move(run, false, r, out + at[r], counts[r] * run->size);
    }
    return run_moves(run);
}

/* A piece of reduce (all elements to the root) or of reduce_scatter (each rank's block to it). */
static bool run_reduce_to(struct run *run, size_t done, size_t count, unsigned char **pieces,
                          size_t *counts)
{
    const struct nccl_call *call = run->call;
    bool scatters = call->kind == KIND_REDUCE_SCATTER;

    for (int r = 0; r < run->comm->ranks; r++) {
        size_t from = (scatters ? (size_t)r * call->count : 0) + done;

        pieces[r] = scatters || r == call->peer ? run->in + from * run->size : NULL;
        counts[r] = pieces[r] ? count : 0;
    }
    return run_reduce_piece(run, pieces, counts, run->out + done * run->size);
}

static bool run_reduction(struct run *run)
{
    const struct nccl_call *call = run->call;
    size_t ranks = (size_t)run->comm->ranks;
    unsigned char **pieces = calloc(ranks, sizeof(unsigned char *));
    size_t *counts = calloc(2 * ranks, sizeof(*counts));
    bool ok = pieces && counts;

    for (size_t done = 0; done < call->count && ok; done += RUN_PIECE) {
        size_t count = call->count - done < RUN_PIECE ? call->count - done : RUN_PIECE;

        if (call->kind == KIND_ALL_REDUCE)
            ok = run_all_reduce_piece(run, run->in + done * run->size, run->out + done * run->size,
                                      count, pieces, counts);
        else
            ok = run_reduce_to(run, done, count, pieces, counts);
    }
    free(pieces);
    free(counts);
    return ok;
}

/* ---- copies ---- */

static bool run_broadcast(struct run *run)
{
    const struct nccl_call *call = run->call;
    size_t bytes = call->count * run->size;

    if (run->comm->rank != call->peer)
        run_move(run, false, call->peer, run->out, bytes);
    for (int r = 0; r < run->comm->ranks && run->comm->rank == call->peer; r++) {
        if (r != call->peer)
            run_move(run, true, r, run->in, bytes);
    }
    if (run->comm->rank == call->peer && run->out != run->in)
        memmove(run->out, run->in, bytes);
    return run_moves(run);
}

static bool run_all_gather(struct run *run)
{
    size_t bytes = run->call->count * run->size;
    unsigned char *own = run->out + (size_t)run->comm->rank * bytes;

    for (int r = 0; r < run->comm->ranks; r++) {
        if (r == run->comm->rank)
            continue;
        run_move(run, true, r, run->in, bytes);
        run_move(run, false, r, run->out + (size_t)r * bytes, bytes);
    }
    if (own != run->in)
        memmove(own, run->in, bytes);
    return run_moves(run);
}

/* ---- whole calls ---- */

/* Returns how many elements of the input and of the output the call uses. */
static void run_extent(const struct ncclComm *comm, const struct nccl_call *call, size_t *in_p,
                       size_t *out_p)
{
    size_t all = call->count * (size_t)comm->ranks;
    bool root = comm->rank == call->peer;

    *in_p = *out_p = call->count;
    if (call->kind == KIND_REDUCE_SCATTER)
        *in_p = all;
    if (call->kind == KIND_ALL_GATHER)
        *out_p = all;
    if (call->kind == KIND_RECV || (call->kind == KIND_BROADCAST && !root))
        *in_p = 0;
    if (call->kind == KIND_SEND || (call->kind == KIND_REDUCE && !root))
        *out_p = 0;
}

bool nccl_find_memory(const struct ncclComm *comm, const struct nccl_call *call,
                      unsigned char **in_p, unsigned char **out_p)
{
    size_t in, out, size = nccl_type_size(call->type);

    run_extent(comm, call, &in, &out);
    *in_p = in ? standin_alias(call->in, in * size) : NULL;
    *out_p = out ? standin_alias(call->out, out * size) : NULL;
    return (*in_p || !in) && (*out_p || !out);
}

static bool run_find(struct run *run)
{
    run->size = nccl_type_size(run->call->type);
    if (nccl_find_memory(run->comm, run->call, &run->in, &run->out))
        return true;
    nccl_fail_async(run->comm, nccl_fail(RESULT_UnhandledCudaError,
                                         "an illegal memory access was encountered"));
    nccl_hang(run->comm);
    return false;
}

static bool run_collective(struct run *run)
{
    if (!run_find(run))
        return false;
    switch (run->call->kind) {
    case KIND_ALL_REDUCE:
    case KIND_REDUCE:
    case KIND_REDUCE_SCATTER:
        return run_reduction(run);
    case KIND_BROADCAST:
        return run_broadcast(run);
    case KIND_ALL_GATHER:
        return run_all_gather(run);
    case KIND_SEND:
    case KIND_RECV:
        break;
    }
    return true;
}

bool nccl_run(struct ncclComm *comm, const struct nccl_call *calls, int count)
{
    size_t room = (size_t)(4 * comm->ranks > count ? 4 * comm->ranks : count);
    struct run run = {.comm = comm, .moves = calloc(room, sizeof(*run.moves))};
    bool ok = run.moves != NULL;

    for (int i = 0; i < count && ok; i++) {
        run.call = &calls[i];
        if (run.call->kind != KIND_SEND && run.call->kind != KIND_RECV)
            ok = run_collective(&run);
    }
    for (int i = 0; i < count && ok; i++) {
        bool sends = calls[i].kind == KIND_SEND;

        run.call = &calls[i];
        if (!sends && calls[i].kind != KIND_RECV)
            continue;
        ok = run_find(&run);
        if (ok)
            run_move(&run, sends, calls[i].peer, sends ? run.in : run.out,
                     calls[i].count * run.size);
    }
    ok = ok && run_moves(&run);
    free(run.moves);
    return ok;
}
