/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: a blocking call that is like the last of its collective, but for where its memory is. */
#include "preload/serve.h"

#include <stdint.h>

/*
 * To find out what a short call is takes longer than the call. So each thread remembers, for each
 * collective, the last one for which libdist was given the program's own memory: a call with the
 * same arguments is that one again, in other memory.
 *
 * What is remembered stays true: a communicator has its record as long as no record has gone, and
 * the types are MPI's own, which nobody frees.
 */
static DISTI_THREAD_LOCAL struct again_call {
    bool known;
    bool sends, receives; /* the program's words for this side are heeded */
    bool gives, takes;    /* libdist is given its memory */
    unsigned gone;
    MPI_Comm comm;
    MPI_Op op;
    MPI_Datatype sendtype, recvtype;
    long long sendcount, recvcount;
    int root;
    size_t in_bytes, out_bytes;
    struct disti_comparison *comparison; /* NULL: none */
    struct disti_call call;
} again_calls[DISTI_KINDS];

/* ---- the same once more ---- */

static bool again_is_known(const struct again_call *last, const struct disti_args *args)
{
    return last->known && last->comm == args->comm && last->root == args->root &&
           last->op == args->op && last->gone == disti_comms_gone() &&
           (!last->sends ||
            (last->sendcount == args->sendcount && last->sendtype == args->sendtype)) &&
           (!last->receives || (last->recvcount == args->recvcount &&
                                last->recvtype == args->recvtype && args->recv != MPI_IN_PLACE));
}

static bool again_are_apart(const struct again_call *last, const void *in, const void *out)
{
    return !last->gives || !last->takes ||
           ((uintptr_t)out - (uintptr_t)in >= last->in_bytes &&
            (uintptr_t)in - (uintptr_t)out >= last->out_bytes);
}

/* False: it is to be looked at more closely where its memory is. */
static bool again_place(struct again_call *last, const struct disti_args *args)
{
    const void *in = args->send;

    if (in == MPI_IN_PLACE && args->kind == DISTI_ALLREDUCE)
        in = args->recv;
    else if (in == MPI_IN_PLACE || !again_are_apart(last, in, args->recv))
        return false;
    last->call.in = last->gives ? in : NULL;
    last->call.out = last->takes ? args->recv : NULL;
    return true;
}

bool disti_again(struct disti_args *args, int *code_p)
{
    struct again_call *last = &again_calls[args->kind];

    if (!again_is_known(last, args) || !again_place(last, args))
        return false;
    if (last->comparison && disti_compare(args, last->comparison) != DISTI_WHY_SERVED) {
        args->comparison = NULL; /* who hands it on compares too */
        return false;
    }
    last->call.comm->calls++;
    disti_report_count(args->kind, DISTI_BLOCKING, DISTI_WHY_SERVED);
    *code_p = disti_call_run(&last->call, NULL);
    return true;
}

/* ---- the first time ---- */

static bool again_reduces(enum disti_kind kind)
{
    return kind == DISTI_ALLREDUCE || kind == DISTI_REDUCE || kind == DISTI_REDUCE_SCATTER ||
           kind == DISTI_REDUCE_SCATTER_BLOCK;
}

static void again_remember_reduction(struct again_call *last, const struct disti_call *call)
{
    size_t bytes = call->count * dist_dtype_size(call->reduction.dtype);
    bool scatters = call->kind == DISTI_REDUCE_SCATTER_BLOCK;

    last->receives = true; /* what both sides have is said there */
    last->gives = true;
    last->takes = call->out;
    last->in_bytes = scatters ? bytes * (size_t)call->comm->ranks : bytes;
    last->out_bytes = bytes;
    last->known = true;
}

static void again_remember_mover(struct again_call *last, const struct disti_call *call,
                                 const struct disti_args *args)
{
    const struct disti_layout *send = &call->send, *recv = &call->recv;

    last->sends = last->gives = send->blocks > 0;
    last->receives = last->takes = recv->blocks > 0;
    last->in_bytes = disti_layout_span(send);
    last->out_bytes = disti_layout_span(recv);
    last->known = args->send != MPI_IN_PLACE && args->recv != MPI_IN_PLACE &&
                  (!last->sends || disti_type_stays(args->sendtype)) &&
                  (!last->receives || disti_type_stays(args->recvtype));
}

void disti_again_remember(const struct disti_args *args, const struct disti_call *call)
{
    struct again_call *last = &again_calls[args->kind];

    last->known = last->sends = last->receives = last->gives = last->takes = false;
    if (call->spare || call->counts || disti_layout_owns(&call->send) ||
        disti_layout_owns(&call->recv))
        return;
    last->comm = args->comm;
    last->op = args->op;
    last->root = args->root;
    last->sendtype = args->sendtype;
    last->recvtype = args->recvtype;
    last->sendcount = args->sendcount;
    last->recvcount = args->recvcount;
    last->call = *call;
    last->gone = disti_comms_gone();
    last->comparison = disti_comparison_find(args, call->comm);
    if (again_reduces(args->kind))
        again_remember_reduction(last, call);
    else
        again_remember_mover(last, call, args);
}
