/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: persistent collectives, and the requests that stand for them. */
#include "preload/serve.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/*
 * Ranks may start persistent operations in another order than they made them, so each has a channel
 * of its own. The request is a persistent receive of nothing from this process, which MPI starts,
 * waits for and frees as any other; when the operation has ended, requests.c sends the message.
 */

/* Every MPI has tags up to this. */
#define PERSISTENT_TAGS 32767

static pthread_mutex_t persistent_lock = PTHREAD_MUTEX_INITIALIZER;
static struct disti_pending *persistent_made;
static atomic_int persistent_count; /* programs start persistent messages too: most have none */
static int persistent_tag;

static bool persistent_has_tag(int tag)
{
    const struct disti_pending *pending = persistent_made;

    while (pending && pending->tag != tag)
        pending = pending->next_made;
    return pending;
}

/* One that no other request has, nor pack.c. MPI says the greatest on MPI_COMM_WORLD alone. Lock
 * held. */
static int persistent_next_tag(void)
{
    static bool wrapped;
    int *most = NULL, there = 0;

    PMPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &there);
    do {
        if (persistent_tag == (there ? *most : PERSISTENT_TAGS)) {
            persistent_tag = 0;
            wrapped = true;
        }
        persistent_tag++;
    } while (wrapped && persistent_has_tag(persistent_tag));
    return persistent_tag;
}

static void persistent_free(struct disti_pending *pending)
{
    if (pending->kept)
        dist_work_free(pending->work);
    disti_call_close(&pending->call);
    disti_channel_give(pending->call.channel);
    free(pending);
}

/* An all-reduce is made once and for all; libdist makes the others anew each time. */
static int persistent_keep(struct disti_pending *pending)
{
    struct disti_call *call = &pending->call;

    if (call->kind != DISTI_ALLREDUCE)
        return MPI_SUCCESS;
    if (dist_all_reduce_init(call->channel->group, call->in, call->out, call->count,
                             call->reduction.dtype, call->reduction.op, &pending->work) != DIST_OK)
        return disti_call_fail(call);
    pending->kept = true;
    return MPI_SUCCESS;
}

static int persistent_open(struct disti_pending *pending, struct disti_args *args,
                           struct disti_comm *comm)
{
    int code = disti_call_open(&pending->call, args, comm);

    if (code == MPI_SUCCESS)
        code = persistent_keep(pending);
    if (code != MPI_SUCCESS)
        return code;
    disti_imports_renew(); /* who starts it has to come here */
    pthread_mutex_lock(&persistent_lock);
    pending->persistent = true;
    pending->tag = persistent_next_tag();
    code =
        PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, pending->tag, disti_preload.self, &pending->request);
    if (code == MPI_SUCCESS) {
        disti_comm_hold(comm);
        pending->next_made = persistent_made;
        persistent_made = pending;
        atomic_fetch_add(&persistent_count, 1);
    }
    pthread_mutex_unlock(&persistent_lock);
    return code;
}

int disti_serve_persistent(struct disti_args *args, struct disti_comm *comm, MPI_Request *request_p)
{
    struct disti_pending *pending;
    int code;

    if (args->refused != MPI_SUCCESS)
        return disti_call_refuse(args);
    pending = calloc(1, sizeof(*pending));
    if (!pending) {
        args->channel->broken = true;
        disti_channel_give(args->channel);
        PMPI_Comm_call_errhandler(args->comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
    code = persistent_open(pending, args, comm);
    if (code == MPI_SUCCESS) {
        *request_p = disti_request_made = pending->request;
        return code;
    }
    args->channel->broken = true;
    persistent_free(pending);
    return code;
}

/* A message that is too long is an error of the receive. */
void disti_persistent_complete(const struct disti_pending *pending, int code)
{
    static const char nothing[1];

    PMPI_Send(nothing, code == MPI_SUCCESS ? 0 : 1, MPI_BYTE, 0, pending->tag, disti_preload.self);
}

/* `becomes`: what the entry is found by from now on. */
static struct disti_pending *persistent_exchange(MPI_Request request, MPI_Request becomes)
{
    struct disti_pending *pending;

    if (!atomic_load(&persistent_count) || request == MPI_REQUEST_NULL)
        return NULL;
    pthread_mutex_lock(&persistent_lock);
    pending = persistent_made;
    while (pending && pending->request != request)
        pending = pending->next_made;
    if (pending)
        pending->request = becomes;
    pthread_mutex_unlock(&persistent_lock);
    return pending;
}

/* NULL: it is none of ours, or there is none, which MPI refuses. */
static struct disti_pending *persistent_find(const MPI_Request *request)
{
    return request ? persistent_exchange(*request, *request) : NULL;
}

static int persistent_start(struct disti_pending *pending, MPI_Request *request)
{
    int code = PMPI_Start(request);

    if (code != MPI_SUCCESS)
        return code;
    pending->code = MPI_SUCCESS;
    if (!pending->kept)
        code = disti_call_start(&pending->call, &pending->work);
    else if (dist_start(pending->work) != DIST_OK)
        code = disti_call_fail(&pending->call);
    if (code != MPI_SUCCESS) { /* the request is not to be waited for in vain */
        disti_persistent_complete(pending, code);
        return code;
    }
    disti_pending_add(pending);
    disti_move();
    return MPI_SUCCESS;
}

void disti_persistent_drop(struct disti_pending *pending)
{
    struct disti_pending **entry = &persistent_made;

    pthread_mutex_lock(&persistent_lock);
    while (*entry && *entry != pending)
        entry = &(*entry)->next_made;
    if (*entry) {
        *entry = pending->next_made;
        atomic_fetch_sub(&persistent_count, 1);
    }
    pthread_mutex_unlock(&persistent_lock);
    disti_comm_let_go(pending->call.comm);
    persistent_free(pending);
}

/* The program may still free the requests, which are MPI's alone from here on. */
void disti_persistent_close(void)
{
    while (persistent_made) {
        struct disti_pending *pending = persistent_made;

        persistent_made = pending->next_made;
        atomic_fetch_sub(&persistent_count, 1);
        if (disti_pending_release(pending))
            disti_persistent_drop(pending);
    }
}

/* ---- what the program calls ---- */

static int persistent_start_any(MPI_Request *request)
{
    struct disti_pending *pending = persistent_find(request);

    return pending ? persistent_start(pending, request) : PMPI_Start(request);
}

int MPI_Start(MPI_Request *request)
{
    return persistent_start_any(request);
}

int MPI_Startall(int count, MPI_Request requests[])
{
    int code = MPI_SUCCESS;
    bool own = false;

    for (int i = 0; i < count && requests && !own; i++)
        own = persistent_find(&requests[i]) != NULL;
    if (!own)
        return PMPI_Startall(count, requests);
    for (int i = 0; i < count && code == MPI_SUCCESS; i++)
        code = persistent_start_any(&requests[i]);
    return code;
}

/* Once freed, the handle may be another thread's: the entry is found by it no more before that. */
int MPI_Request_free(MPI_Request *request)
{
    const MPI_Request freed = request ? *request : MPI_REQUEST_NULL;
    struct disti_pending *pending = persistent_exchange(freed, MPI_REQUEST_NULL);
    int code;

    disti_move();
    code = PMPI_Request_free(request);
    if (pending && code != MPI_SUCCESS) {
        pthread_mutex_lock(&persistent_lock);
        pending->request = freed;
        pthread_mutex_unlock(&persistent_lock);
    } else if (pending && disti_pending_release(pending)) {
        disti_persistent_drop(pending);
    }
    return code;
}

/* MPI has no way to cancel a collective; a cancelled placeholder would end without it. */
int MPI_Cancel(MPI_Request *request)
{
    struct disti_pending *pending = persistent_find(request);

    if (!pending)
        return PMPI_Cancel(request);
    PMPI_Comm_call_errhandler(pending->call.comm->comm, MPI_ERR_REQUEST);
    return MPI_ERR_REQUEST;
}
