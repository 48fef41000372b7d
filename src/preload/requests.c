/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: operations that are under way, and the requests that stand for them. */
#include "preload/serve.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/*
 * The program gets a request that MPI knows and completes by itself in every kind of wait and test,
 * beside its other requests: a generalized request, or, for a persistent operation, a receive from
 * this very process. All that is to be done is to tell MPI when the operation has ended.
 */

/* Guards the lists. Held by whoever moves operations along, never while waiting for anybody. */
static pthread_mutex_t requests_lock = PTHREAD_MUTEX_INITIALIZER;
static struct disti_channel *requests_channels;
atomic_int disti_requests_pending;
DISTI_THREAD_LOCAL MPI_Request disti_request_made;

/* ---- the end of an operation ---- */

static void requests_end(struct disti_pending *pending)
{
    pending->running = false;
    if (!pending->kept)
        pending->work = NULL;
    if (pending->persistent) {
        disti_persistent_complete(pending, pending->code);
        if (pending->abandoned)
            disti_persistent_drop(pending);
        return;
    }
    disti_call_close(&pending->call);
    disti_comm_let_go(pending->call.comm);
    PMPI_Grequest_complete(pending->request); /* from here on it is MPI's: see requests_free */
}

/* True: it has ended; *failed_p is set if that was a failure. */
static bool requests_poll(struct disti_pending *pending, MPI_Comm *failed_p)
{
    bool done = false;
    dist_status status = dist_test(pending->work, &done);

    if (status == DIST_OK && !done)
        return false;
    status = dist_wait(pending->work);
    pending->code = status == DIST_OK ? disti_call_finish(&pending->call) : MPI_ERR_OTHER;
    if (status != DIST_OK)
        pending->call.channel->broken = true;
    if (pending->code != MPI_SUCCESS)
        *failed_p = pending->call.comm->comm;
    return true;
}

/* Operations of one group end in the order in which they began. Returns how many ended. */
static int requests_move_channel(struct disti_channel *channel, MPI_Comm *failed_p)
{
    int ended = 0;

    while (channel->first && requests_poll(channel->first, failed_p)) {
        struct disti_pending *pending = channel->first;

        channel->first = pending->next;
        if (!channel->first)
            channel->last = &channel->first;
        requests_end(pending);
        ended++;
    }
    return ended;
}

bool disti_requests_move(void)
{
    MPI_Comm failed = MPI_COMM_NULL;

    if (pthread_mutex_trylock(&requests_lock) != 0)
        return true; /* another thread is at it */
    for (struct disti_channel **entry = &requests_channels; *entry;) {
        struct disti_channel *channel = *entry;

        atomic_fetch_sub(&disti_requests_pending, requests_move_channel(channel, &failed));
        if (channel->first)
            entry = &channel->next;
        else
            *entry = channel->next;
    }
    pthread_mutex_unlock(&requests_lock);
    if (failed != MPI_COMM_NULL)
        disti_comm_fail(failed);
    return atomic_load(&disti_requests_pending) > 0;
}

void disti_pending_add(struct disti_pending *pending)
{
    struct disti_channel *channel = pending->call.channel;

    disti_imports_renew(); /* who waits for it has to come here */
    disti_straight_end();
    pthread_mutex_lock(&requests_lock);
    if (!channel->first) {
        channel->last = &channel->first;
        channel->next = requests_channels;
        requests_channels = channel;
    }
    pending->running = true;
    pending->next = NULL;
    *channel->last = pending;
    channel->last = &pending->next;
    atomic_fetch_add(&disti_requests_pending, 1);
    pthread_mutex_unlock(&requests_lock);
}

bool disti_pending_any(const struct disti_channel *channel)
{
    bool any;

    pthread_mutex_lock(&requests_lock);
    any = channel->first != NULL;
    pthread_mutex_unlock(&requests_lock);
    return any;
}

bool disti_pending_release(struct disti_pending *pending)
{
    bool running;

    pthread_mutex_lock(&requests_lock);
    running = pending->running;
    pending->abandoned = running;
    pthread_mutex_unlock(&requests_lock);
    return !running;
}

/* ---- nonblocking ---- */

static int requests_query(void *extra, MPI_Status *status)
{
    const struct disti_pending *pending = extra;

    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return pending->code;
}

/* MPI calls it with locks held: it may call nothing of MPI. */
static int requests_free(void *extra)
{
    free(extra);
    return MPI_SUCCESS;
}

/* MPI has no way to cancel a collective. */
static int requests_cancel(void *extra, int complete)
{
    (void)extra;
    return complete ? MPI_SUCCESS : MPI_ERR_REQUEST;
}

/* The request, before the operation is started: what can fail without the others is over then. */
static int requests_new(struct disti_args *args, struct disti_comm *comm,
                        struct disti_pending **pending_p)
{
    struct disti_pending *pending = calloc(1, sizeof(*pending));
    int code;

    if (!pending) {
        PMPI_Comm_call_errhandler(args->comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
    code = disti_call_open(&pending->call, args, comm);
    if (code == MPI_SUCCESS)
        code = PMPI_Grequest_start(requests_query, requests_free, requests_cancel, pending,
                                   &pending->request);
    if (code != MPI_SUCCESS) {
        disti_call_close(&pending->call);
        free(pending);
        return code;
    }
    disti_comm_hold(comm);
    *pending_p = pending;
    return code;
}

int disti_serve_nonblocking(struct disti_args *args, struct disti_comm *comm,
                            MPI_Request *request_p)
{
    struct disti_pending *pending = NULL;
    MPI_Request request;
    int code;

    if (args->refused != MPI_SUCCESS)
        return disti_call_refuse(args);
    code = requests_new(args, comm, &pending);
    if (code != MPI_SUCCESS)
        return code;
    request = pending->request;
    code = disti_call_start(&pending->call, &pending->work);
    if (code != MPI_SUCCESS) {
        disti_call_close(&pending->call);
        disti_comm_let_go(comm);
        PMPI_Grequest_complete(request);
        PMPI_Request_free(&request); /* which frees what it stands for */
        return code;
    }
    disti_pending_add(pending);
    *request_p = disti_request_made = request;
    disti_move();
    return MPI_SUCCESS;
}

/* ---- blocking ---- */

/*
 * Looks for a message that nobody sends: MPI must go through what has come. (MPICH does not for a
 * communicator of one rank.)
 */
void disti_poll_mpi(void *arg)
{
    int there;

    (void)arg;
    PMPI_Iprobe(MPI_ANY_SOURCE, 0, disti_preload.silent, &there, MPI_STATUS_IGNORE);
}

int disti_serve(struct disti_args *args, struct disti_comm *comm)
{
    struct disti_call call;
    int code;

    if (args->refused != MPI_SUCCESS)
        return disti_call_refuse(args);
    code = disti_call_open(&call, args, comm);
    if (code == MPI_SUCCESS)
        code = disti_call_start(&call, NULL);
    if (code == MPI_SUCCESS)
        code = disti_call_finish(&call);
    if (code == MPI_SUCCESS)
        disti_again_remember(args, &call);
    disti_call_close(&call);
    return code;
}
