/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that MPI's own collectives work on: from the post to the end. */
#include "backends/mpi/native.h"

#include "base/kernels/environment.h"

#include <stdlib.h>

static void native_free(struct disti_native_call *c)
{
    free(c->arrays);
    free(c->stage);
    free(c);
}

static dist_status native_start(const struct disti_native *native, struct disti_native_call *c)
{
    dist_status status = DIST_OK;
    int code;

    if (!disti_mpi_lock())
        return disti_mpi_ended(native->host);
    code = disti_native_start(native, c);
    if (code != MPI_SUCCESS) {
        status =
            disti_mpi_fail(native->host, native->host->collective_string(c->call.collective), code);
        disti_native_free_types(native, c);
    }
    disti_mpi_unlock();
    return status;
}

dist_status disti_native_post(struct disti_native *native, const struct dist_call *call,
                              struct dist_ticket *ticket)
{
    struct disti_native_call *c = calloc(1, sizeof(*c));
    dist_status status;

    if (!c)
        return native->host->fail(DIST_ERR_NO_MEMORY, "no memory to start an MPI collective");
    c->call = *call;
    c->ticket = ticket;
    status = disti_native_make_room(native, c);
    if (status == DIST_OK)
        status = native_start(native, c);
    if (status != DIST_OK) {
        native_free(c);
        return status;
    }
    c->next = native->calls;
    native->calls = c;
    return DIST_OK;
}

/* How many elements of the result this rank has. */
static size_t native_result_count(const struct disti_native *native, const struct dist_call *call)
{
    if (call->collective == DIST_COLL_REDUCE_SCATTER_V)
        return call->in_counts[native->rank];
    return call->collective == DIST_COLL_REDUCE && native->rank != call->root ? 0 : call->count;
}

static void native_average(const struct disti_native *native, const struct dist_call *call)
{
    size_t count = native_result_count(native, call);
    const disti_environment saved = disti_environment_enter();

    if (call->dtype == DIST_FLOAT32) {
        for (size_t i = 0; i < count; i++)
            ((float *)call->out)[i] /= (float)native->ranks;
    } else {
        for (size_t i = 0; i < count; i++)
            ((double *)call->out)[i] /= native->ranks;
    }
    disti_environment_leave(saved);
}

static bool native_reduces(dist_collective collective)
{
    return collective == DIST_COLL_ALL_REDUCE || collective == DIST_COLL_REDUCE ||
           collective == DIST_COLL_REDUCE_SCATTER || collective == DIST_COLL_REDUCE_SCATTER_V;
}

static void native_end(const struct disti_native *native, struct disti_native_call *c)
{
    disti_native_unstage(native, c);
    if (native_reduces(c->call.collective) && c->call.op == DIST_AVG)
        native_average(native, &c->call);
    c->ticket->status = DIST_OK;
    native_free(c);
}

/* 1: MPI has done it, 0: not yet, negative: it has failed. */
static int native_test(const struct disti_native *native, struct disti_native_call *c)
{
    int done = 0, code;

    if (!disti_mpi_lock())
        return disti_mpi_ended(native->host);
    code = MPI_Test(&c->request, &done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS)
        done = disti_mpi_fail(native->host, "MPI_Test", code);
    else if (done)
        disti_native_free_types(native, c);
    disti_mpi_unlock();
    return done;
}

int disti_native_progress(struct disti_native *native)
{
    int moved = 0;

    for (struct disti_native_call **at = &native->calls; *at;) {
        struct disti_native_call *c = *at;
        int done = native_test(native, c);

        if (done < 0)
            return done;
        if (!done) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        native_end(native, c);
        moved++;
    }
    return moved;
}

/* MPI has no way to cancel a collective: its request is left, and the memory that MPI uses. */
void disti_native_drop(struct disti_native *native)
{
    while (native->calls) {
        struct disti_native_call *c = native->calls;

        native->calls = c->next;
        free(c);
    }
}
