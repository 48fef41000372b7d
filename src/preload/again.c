/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: a blocking call that is like the last of its collective, but for where its memory is. */
#include "preload/serve.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Calls with counts are looked at closely each time if there are more ranks. */
#define AGAIN_RANKS 16

/*
 * To find out what a short call is takes longer than the call. So each thread remembers, for each
 * collective, the last one for which libdist was given the program's own memory: a call with the
 * same arguments is that one again, in other memory. Counts and displacements are compared one by
 * one, for a program may write others to the same place.
 *
 * What is remembered stays true: a communicator has its record as long as no record has gone, and
 * the types are MPI's own, which nobody frees.
 */
struct again_call {
    bool known;
    bool sends, receives; /* the program's words for this side are heeded */
    bool gives, takes;    /* libdist is given its memory */
    bool counted;         /* there are counts */
    unsigned gone;
    MPI_Comm comm;
    MPI_Op op;
    MPI_Datatype sendtype, recvtype;
    long long sendcount, recvcount;
    int root;
    uintptr_t in_begins, out_begins; /* from the program's buffer; wraps around if it is before */
    size_t in_bytes, out_bytes;
    struct disti_comparison *comparison; /* NULL: none */
    struct disti_call call;
    struct disti_numbers sendcounts, senddispls, recvcounts, recvdispls; /* in `given` */
    long long given[4][AGAIN_RANKS];                                     /* of any width */
    size_t told[4][AGAIN_RANKS]; /* what libdist is told instead */
};

/* ---- a thread's calls ---- */

static DISTI_THREAD_LOCAL struct again_call *again_calls; /* by kind; NULL: none yet */
static pthread_key_t again_key;
static bool again_has_key;

static void again_free(void *calls)
{
    again_calls = NULL;
    free(calls);
}

static void again_open(void)
{
    again_has_key = pthread_key_create(&again_key, again_free) == 0;
}

/* NULL: no memory, and nothing is remembered. */
static struct again_call *again_make(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct again_call *calls;

    pthread_once(&once, again_open);
    calls = again_has_key ? calloc(DISTI_KINDS, sizeof(*calls)) : NULL;
    if (calls && pthread_setspecific(again_key, calls) == 0)
        return again_calls = calls;
    free(calls);
    return NULL;
}

/* ---- the same once more ---- */

static bool again_same(struct disti_numbers last, struct disti_numbers now, int ranks)
{
    if (!last.array || !now.array)
        return last.array == now.array;
    return last.bytes == now.bytes && memcmp(last.array, now.array, (size_t)ranks * now.bytes) == 0;
}

static bool again_counts_are_known(const struct again_call *last, const struct disti_args *args)
{
    int ranks = last->call.comm->ranks;

    return (!last->sends || (again_same(last->sendcounts, args->sendcounts, ranks) &&
                             again_same(last->senddispls, args->senddispls, ranks))) &&
           (!last->receives || (again_same(last->recvcounts, args->recvcounts, ranks) &&
                                again_same(last->recvdispls, args->recvdispls, ranks)));
}

static bool again_is_known(const struct again_call *last, const struct disti_args *args)
{
    return last->known && last->comm == args->comm && last->root == args->root &&
           last->op == args->op && last->gone == disti_comms_gone() &&
           (!last->sends ||
            (last->sendcount == args->sendcount && last->sendtype == args->sendtype)) &&
           (!last->receives || (last->recvcount == args->recvcount &&
                                last->recvtype == args->recvtype && args->recv != MPI_IN_PLACE)) &&
           (!last->counted || again_counts_are_known(last, args));
}

static bool again_are_apart(const struct again_call *last, uintptr_t in, uintptr_t out)
{
    return !last->gives || !last->takes ||
           (out - in >= last->in_bytes && in - out >= last->out_bytes);
}

/* False: it is to be looked at more closely where its memory is. */
static bool again_place(struct again_call *last, const struct disti_args *args)
{
    uintptr_t out = (uintptr_t)args->recv + last->out_begins, in = out;

    if (args->send != MPI_IN_PLACE)
        in = (uintptr_t)args->send + last->in_begins;
    if (args->send == MPI_IN_PLACE ? args->kind != DISTI_ALLREDUCE
                                   : !again_are_apart(last, in, out))
        return false;
    last->call.in = last->gives ? (const void *)in : NULL;
    last->call.out = last->takes ? (void *)out : NULL;
    return true;
}

bool disti_again(struct disti_args *args, int *code_p)
{
    struct again_call *last = again_calls ? &again_calls[args->kind] : NULL;

    if (!last || !again_is_known(last, args) || !again_place(last, args))
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

static void again_keep_given(struct disti_numbers *numbers, long long *given, int ranks)
{
    if (!numbers->array)
        return;
    memcpy(given, numbers->array, (size_t)ranks * numbers->bytes);
    numbers->array = given;
}

static void again_keep_told(size_t **list, size_t *told, int ranks)
{
    if (!*list)
        return;
    memcpy(told, *list, (size_t)ranks * sizeof(*told));
    *list = told;
}

static void again_keep_counts(struct again_call *last, const struct disti_args *args, int ranks)
{
    struct disti_call *call = &last->call;

    last->sendcounts = args->sendcounts;
    last->senddispls = args->senddispls;
    last->recvcounts = args->recvcounts;
    last->recvdispls = args->recvdispls;
    again_keep_given(&last->sendcounts, last->given[0], ranks);
    again_keep_given(&last->senddispls, last->given[1], ranks);
    again_keep_given(&last->recvcounts, last->given[2], ranks);
    again_keep_given(&last->recvdispls, last->given[3], ranks);
    again_keep_told(&call->send.sizes, last->told[0], ranks);
    again_keep_told(&call->send.offsets, last->told[1], ranks);
    again_keep_told(&call->recv.sizes, last->told[2], ranks);
    again_keep_told(&call->recv.offsets, last->told[3], ranks);
    again_keep_told(&call->counts, last->told[0], ranks); /* a reduction, which has no layout */
    call->send.displacements = call->recv.displacements = NULL;
}

static bool again_reduces(enum disti_kind kind)
{
    return kind == DISTI_ALLREDUCE || kind == DISTI_REDUCE || kind == DISTI_REDUCE_SCATTER ||
           kind == DISTI_REDUCE_SCATTER_BLOCK;
}

static void again_remember_reduction(struct again_call *last, const struct disti_call *call)
{
    size_t element = dist_dtype_size(call->reduction.dtype), in = call->count, out = call->count;

    if (call->kind == DISTI_REDUCE_SCATTER_BLOCK)
        in *= (size_t)call->comm->ranks;
    for (int r = 0; call->counts && r < call->comm->ranks; r++)
        in += call->counts[r];
    if (call->counts)
        out = call->counts[call->comm->rank];
    last->receives = true; /* what both sides have is said there */
    last->gives = true;
    last->takes = call->out;
    last->in_begins = last->out_begins = 0;
    last->in_bytes = in * element;
    last->out_bytes = out * element;
    last->known = true;
}

/* From the program's buffer to where libdist's begins. */
static uintptr_t again_begins(const struct disti_layout *layout)
{
    return layout->blocks ? (uintptr_t)layout->bytes - (uintptr_t)layout->memory : 0;
}

static void again_remember_mover(struct again_call *last, const struct disti_call *call,
                                 const struct disti_args *args)
{
    const struct disti_layout *send = &call->send, *recv = &call->recv;

    last->sends = last->gives = send->blocks > 0;
    last->receives = last->takes = recv->blocks > 0;
    last->in_begins = again_begins(send);
    last->out_begins = again_begins(recv);
    last->in_bytes = disti_layout_span(send);
    last->out_bytes = disti_layout_span(recv);
    last->known = args->send != MPI_IN_PLACE && args->recv != MPI_IN_PLACE &&
                  (!last->sends || disti_type_stays(args->sendtype)) &&
                  (!last->receives || disti_type_stays(args->recvtype));
}

/* May its memory be the program's the next time? And its counts be kept? */
static bool again_may_remember(const struct disti_call *call, bool counted)
{
    return !call->spare && call->send.contiguous && call->recv.contiguous &&
           (!counted || call->comm->ranks <= AGAIN_RANKS);
}

void disti_again_remember(const struct disti_args *args, const struct disti_call *call)
{
    struct again_call *last = again_calls ? again_calls : again_make();
    bool counted = call->counts || call->send.sizes || call->recv.sizes;

    if (!last)
        return;
    last += args->kind;
    last->known = last->sends = last->receives = last->gives = last->takes = false;
    if (!again_may_remember(call, counted))
        return;
    last->comm = args->comm;
    last->op = args->op;
    last->root = args->root;
    last->sendtype = args->sendtype;
    last->recvtype = args->recvtype;
    last->sendcount = args->sendcount;
    last->recvcount = args->recvcount;
    last->call = *call;
    last->counted = counted;
    last->gone = disti_comms_gone();
    last->comparison = disti_comparison_find(args, call->comm);
    if (again_reduces(args->kind))
        again_remember_reduction(last, call);
    else
        again_remember_mover(last, call, args);
    if (counted)
        again_keep_counts(last, args, call->comm->ranks);
}
