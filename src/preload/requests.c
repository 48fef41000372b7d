/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: operations in progress, and their requests. */
#include "base/backoff.h"
#include "preload/preload.h"

#include <pthread.h>
#include <stdlib.h>

/*
 * The program gets a request that MPI completes in every kind of wait and test, together with its
 * other requests: a generalized request, or, for a persistent operation, a receive from this
 * process. We only have to notify MPI when the operation has ended.
 */

/* Protects the lists. Held by the thread that makes progress; no thread blocks while holding it. */
static pthread_mutex_t requests_lock = PTHREAD_MUTEX_INITIALIZER;
static SLIST_HEAD(, disti_channel) requests_channels = SLIST_HEAD_INITIALIZER(requests_channels);
atomic_int disti_requests_pending;
DISTI_THREAD_LOCAL MPI_Request disti_last_request;

static pthread_mutex_t persistent_lock = PTHREAD_MUTEX_INITIALIZER;
static struct disti_pending *persistent_list;
static atomic_int persistent_count; /* fast path: most programs with persistent messages have no
                                     * persistent collectives */

/* ---- completing operations ---- */

/*
 * Completes the request of a persistent operation that has ended with `code`. On an error it sends
 * one byte, which the receive of zero bytes reports as a truncation error.
 */
static void persistent_complete(const struct disti_pending *pending, int code)
{
    static const char nothing[1];

    PMPI_Send(nothing, code == MPI_SUCCESS ? 0 : 1, MPI_BYTE, 0, pending->tag, disti_preload.self);
}

static void persistent_free(struct disti_pending *pending)
{
    if (pending->is_prepared)
        dist_work_free(pending->work);
    disti_call_close(&pending->call);
    disti_channel_return(pending->call.channel);
    free(pending);
}

/* Frees an operation that is not in progress, after the program has freed its request. */
static void persistent_drop(struct disti_pending *pending)
{
    struct disti_pending **entry = &persistent_list;

    pthread_mutex_lock(&persistent_lock);
    while (*entry && *entry != pending)
        entry = &(*entry)->next_persistent;
    if (*entry) {
        *entry = pending->next_persistent;
        atomic_fetch_sub(&persistent_count, 1);
    }
    pthread_mutex_unlock(&persistent_lock);
    disti_comm_unref(pending->call.comm);
    persistent_free(pending);
}

static void requests_end(struct disti_pending *pending)
{
    pending->running = false;
    if (!pending->is_prepared)
        pending->work = NULL;
    if (pending->persistent) {
        persistent_complete(pending, pending->code);
        if (pending->is_freed)
            persistent_drop(pending);
        return;
    }
    disti_call_close(&pending->call);
    disti_comm_unref(pending->call.comm);
    PMPI_Grequest_complete(pending->request); /* afterwards MPI owns `pending`: see requests_free */
}

/* True if the operation has ended; sets *failed_p if it failed. */
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

bool disti_requests_progress(void)
{
    struct disti_channel *channel, *next;
    struct disti_pending *pending;
    MPI_Comm failed = MPI_COMM_NULL;

    if (pthread_mutex_trylock(&requests_lock) != 0)
        return true; /* another thread makes progress */
    for (channel = SLIST_FIRST(&requests_channels); channel; channel = next) {
        int ended = 0;

        next = SLIST_NEXT(channel, next);
        /* Operations of one group end in the order in which they were started. */
        while ((pending = STAILQ_FIRST(&channel->pending)) && requests_poll(pending, &failed)) {
            STAILQ_REMOVE_HEAD(&channel->pending, next);
            requests_end(pending);
            ended++;
        }
        atomic_fetch_sub(&disti_requests_pending, ended);
        if (STAILQ_EMPTY(&channel->pending))
            SLIST_REMOVE(&requests_channels, channel, disti_channel, next);
    }
    pthread_mutex_unlock(&requests_lock);
    if (failed != MPI_COMM_NULL)
        disti_comm_fail(failed);
    return atomic_load(&disti_requests_pending) > 0;
}

/* Appends a started operation to its channel's list. */
static void pending_add(struct disti_pending *pending)
{
    struct disti_channel *channel = pending->call.channel;

    disti_imports_renew(); /* MPI_Wait and MPI_Test must reach this library */
    disti_bypass_end();
    pthread_mutex_lock(&requests_lock);
    if (STAILQ_EMPTY(&channel->pending)) {
        STAILQ_INIT(&channel->pending); /* the list is zeroed at first */
        SLIST_INSERT_HEAD(&requests_channels, channel, next);
    }
    pending->running = true;
    STAILQ_INSERT_TAIL(&channel->pending, pending, next);
    atomic_fetch_add(&disti_requests_pending, 1);
    pthread_mutex_unlock(&requests_lock);
}

bool disti_pending_any(const struct disti_channel *channel)
{
    bool any;

    pthread_mutex_lock(&requests_lock);
    any = !STAILQ_EMPTY(&channel->pending);
    pthread_mutex_unlock(&requests_lock);
    return any;
}

/*
 * The program has freed a persistent request. An operation in progress is freed when it has ended.
 */
static void pending_release(struct disti_pending *pending)
{
    bool running;

    pthread_mutex_lock(&requests_lock);
    running = pending->running;
    pending->is_freed = running;
    pthread_mutex_unlock(&requests_lock);
    if (!running)
        persistent_drop(pending);
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

/* MPI calls it with locks held: it must not call MPI. */
static int requests_free(void *extra)
{
    free(extra);
    return MPI_SUCCESS;
}

/* MPI cannot cancel collectives. */
static int requests_cancel(void *extra, int complete)
{
    (void)extra;
    return complete ? MPI_SUCCESS : MPI_ERR_REQUEST;
}

/*
 * The request is made before the operation is started, so that errors on this rank occur before the
 * other ranks take part.
 */
int disti_serve_nonblocking(struct disti_args *args, struct disti_comm *comm,
                            MPI_Request *request_p)
{
    struct disti_pending *pending;
    MPI_Request request;
    int code;

    if (args->refused != MPI_SUCCESS)
        return disti_call_refuse(args);
    pending = calloc(1, sizeof(*pending));
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
    disti_comm_ref(comm);
    request = pending->request;
    code = disti_call_start(&pending->call, &pending->work);
    if (code != MPI_SUCCESS) {
        disti_call_close(&pending->call);
        disti_comm_unref(comm);
        PMPI_Grequest_complete(request);
        PMPI_Request_free(&request); /* which frees `pending` */
        return code;
    }
    pending_add(pending);
    *request_p = disti_last_request = request;
    disti_progress();
    return MPI_SUCCESS;
}

/* ---- blocking ---- */

/*
 * Probes for a message that nobody sends, so that MPI makes progress. (MPICH does not for a
 * communicator with one rank.)
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
        disti_fast_call_store(args, &call);
    disti_call_close(&call);
    return code;
}

/* Waits and tests for requests of any kind, ours and MPI's. */

/*
 * MPI completes our requests too. So a wait polls with a test while our operations are in progress,
 * and calls MPI's own wait when there are none.
 */
#define WAITS_POLL(test, done)                                                                     \
    do {                                                                                           \
        struct disti_backoff backoff = {0};                                                        \
                                                                                                   \
        while (disti_progress()) {                                                                 \
            int code = (test);                                                                     \
                                                                                                   \
            if (code != MPI_SUCCESS || (done))                                                     \
                return code;                                                                       \
            disti_backoff(&backoff);                                                               \
        }                                                                                          \
    } while (0)

int MPI_Wait(MPI_Request *request, MPI_Status *status)
{
    int done = 0;

    WAITS_POLL(PMPI_Test(request, &done, status), done);
    return PMPI_Wait(request, status);
}

int MPI_Waitall(int count, MPI_Request requests[], MPI_Status statuses[])
{
    int done = 0;

    WAITS_POLL(PMPI_Testall(count, requests, &done, statuses), done);
    return PMPI_Waitall(count, requests, statuses);
}

int MPI_Waitany(int count, MPI_Request requests[], int *index, MPI_Status *status)
{
    int done = 0;

    WAITS_POLL(PMPI_Testany(count, requests, index, &done, status), done);
    return PMPI_Waitany(count, requests, index, status);
}

/* *outcount is MPI_UNDEFINED if no request is active, which is not 0 either. */
int MPI_Waitsome(int count, MPI_Request requests[], int *outcount, int indices[],
                 MPI_Status statuses[])
{
    if (!outcount) /* MPI reports the error */
        return PMPI_Waitsome(count, requests, outcount, indices, statuses);
    *outcount = 0;
    WAITS_POLL(PMPI_Testsome(count, requests, outcount, indices, statuses), *outcount != 0);
    return PMPI_Waitsome(count, requests, outcount, indices, statuses);
}

#define WAITS_TEST(name, parameters, arguments)                                                    \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        disti_progress();                                                                          \
        return PMPI_##name arguments;                                                              \
    }

WAITS_TEST(Test, (MPI_Request * request, int *flag, MPI_Status *status), (request, flag, status))
WAITS_TEST(Testall, (int count, MPI_Request requests[], int *flag, MPI_Status statuses[]),
           (count, requests, flag, statuses))
WAITS_TEST(Testany, (int count, MPI_Request requests[], int *index, int *flag, MPI_Status *status),
           (count, requests, index, flag, status))
WAITS_TEST(Testsome,
           (int count, MPI_Request requests[], int *outcount, int indices[], MPI_Status statuses[]),
           (count, requests, outcount, indices, statuses))
WAITS_TEST(Request_get_status, (MPI_Request request, int *flag, MPI_Status *status),
           (request, flag, status))

/* Persistent collectives and their requests. */

/*
 * Ranks may start persistent operations in a different order than they made them, so each has its
 * own channel. The request is a persistent receive of zero bytes from this process, which MPI
 * starts, waits for and frees like any other; when the operation has ended, persistent_complete
 * sends the message.
 */

/* Every MPI supports tags up to this one. */
#define PERSISTENT_TAGS 32767

static int persistent_tag; /* the tag used last */

static bool persistent_has_tag(int tag)
{
    const struct disti_pending *pending = persistent_list;

    while (pending && pending->tag != tag)
        pending = pending->next_persistent;
    return pending;
}

/*
 * Returns a tag that no other request uses, and that is not PACK_TAG. MPI reports the largest tag
 * for MPI_COMM_WORLD only. The caller holds persistent_lock.
 */
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

int disti_serve_persistent(struct disti_args *args, struct disti_comm *comm, MPI_Request *request_p)
{
    struct disti_pending *pending;
    int code;

    if (args->refused != MPI_SUCCESS)
        return disti_call_refuse(args);
    pending = calloc(1, sizeof(*pending));
    if (!pending) {
        args->channel->broken = true;
        disti_channel_return(args->channel);
        PMPI_Comm_call_errhandler(args->comm, MPI_ERR_NO_MEM);
        return MPI_ERR_NO_MEM;
    }
    code = disti_call_open(&pending->call, args, comm);
    /* libdist prepares an all-reduce once; other collectives are set up at each start. */
    if (code == MPI_SUCCESS && args->kind == DIST_COLL_ALL_REDUCE) {
        const struct disti_call *call = &pending->call;

        pending->is_prepared = dist_all_reduce_init(call->channel->group, call->in, call->out,
                                                    call->count, call->reduction.dtype,
                                                    call->reduction.op, &pending->work) == DIST_OK;
        if (!pending->is_prepared)
            code = disti_call_fail(call);
    }
    if (code == MPI_SUCCESS) {
        disti_imports_renew(); /* MPI_Start must reach this library */
        pthread_mutex_lock(&persistent_lock);
        pending->persistent = true;
        pending->tag = persistent_next_tag();
        code = PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, pending->tag, disti_preload.self,
                              &pending->request);
        if (code == MPI_SUCCESS) {
            disti_comm_ref(comm);
            pending->next_persistent = persistent_list;
            persistent_list = pending;
            atomic_fetch_add(&persistent_count, 1);
        }
        pthread_mutex_unlock(&persistent_lock);
    }
    if (code == MPI_SUCCESS) {
        *request_p = disti_last_request = pending->request;
        return code;
    }
    args->channel->broken = true;
    persistent_free(pending);
    return code;
}

/* Finds an operation by its request, and sets the request under which it is found next. */
static struct disti_pending *persistent_exchange(MPI_Request request, MPI_Request becomes)
{
    struct disti_pending *pending;

    if (!atomic_load(&persistent_count) || request == MPI_REQUEST_NULL)
        return NULL;
    pthread_mutex_lock(&persistent_lock);
    pending = persistent_list;
    while (pending && pending->request != request)
        pending = pending->next_persistent;
    if (pending)
        pending->request = becomes;
    pthread_mutex_unlock(&persistent_lock);
    return pending;
}

/* NULL: not our request, or request is NULL, which MPI reports. */
static struct disti_pending *persistent_find(const MPI_Request *request)
{
    return request ? persistent_exchange(*request, *request) : NULL;
}

/* The program may still free the requests, which belong to MPI alone from now on. */
void disti_persistent_close(void)
{
    while (persistent_list) {
        struct disti_pending *pending = persistent_list;

        persistent_list = pending->next_persistent;
        atomic_fetch_sub(&persistent_count, 1);
        pending_release(pending);
    }
}

/* ---- functions that the program calls ---- */

static int persistent_start_any(MPI_Request *request)
{
    struct disti_pending *pending = persistent_find(request);
    int code = PMPI_Start(request);

    if (!pending || code != MPI_SUCCESS)
        return code;
    pending->code = MPI_SUCCESS;
    if (!pending->is_prepared)
        code = disti_call_start(&pending->call, &pending->work);
    else if (dist_start(pending->work) != DIST_OK)
        code = disti_call_fail(&pending->call);
    if (code != MPI_SUCCESS) { /* complete the request, so that a wait for it does not hang */
        persistent_complete(pending, code);
        return code;
    }
    pending_add(pending);
    disti_progress();
    return MPI_SUCCESS;
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

/*
 * After MPI has freed the handle another thread may get the same one, so the entry is removed
 * before.
 */
int MPI_Request_free(MPI_Request *request)
{
    const MPI_Request freed = request ? *request : MPI_REQUEST_NULL;
    struct disti_pending *pending = persistent_exchange(freed, MPI_REQUEST_NULL);
    int code;

    disti_progress();
    code = PMPI_Request_free(request);
    if (pending && code != MPI_SUCCESS) {
        pthread_mutex_lock(&persistent_lock);
        pending->request = freed;
        pthread_mutex_unlock(&persistent_lock);
    } else if (pending) {
        pending_release(pending);
    }
    return code;
}

/* MPI cannot cancel collectives; cancelling the receive would end it without the operation. */
int MPI_Cancel(MPI_Request *request)
{
    struct disti_pending *pending = persistent_find(request);

    if (!pending)
        return PMPI_Cancel(request);
    PMPI_Comm_call_errhandler(pending->call.comm->comm, MPI_ERR_REQUEST);
    return MPI_ERR_REQUEST;
}
