/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: operations that are under way, and the requests that stand for them. */
#include "base/backoff.h"
#include "preload/preload.h"

#include <pthread.h>
#include <stdlib.h>

/*
 * The program gets a request that MPI knows and completes by itself in every kind of wait and test,
 * beside its other requests: a generalized request, or, for a persistent operation, a receive from
 * this very process. All that is to be done is to tell MPI when the operation has ended.
 */

/* Guards the lists. Held by whoever moves operations along, never while waiting for anybody. */
static pthread_mutex_t requests_lock = PTHREAD_MUTEX_INITIALIZER;
static SLIST_HEAD(, disti_channel) requests_channels = SLIST_HEAD_INITIALIZER(requests_channels);
atomic_int disti_requests_pending;
DISTI_THREAD_LOCAL MPI_Request disti_request_made;

static pthread_mutex_t persistent_lock = PTHREAD_MUTEX_INITIALIZER;
static struct disti_pending *persistent_made;
static atomic_int persistent_count; /* programs start persistent messages too: most have none */

/* ---- the end of an operation ---- */

/* Completes the request of an operation that has ended so: a message that is too long is an error
 * of the receive. */
static void persistent_complete(const struct disti_pending *pending, int code)
{
    static const char nothing[1];

    PMPI_Send(nothing, code == MPI_SUCCESS ? 0 : 1, MPI_BYTE, 0, pending->tag, disti_preload.self);
}

static void persistent_free(struct disti_pending *pending)
{
    if (pending->kept)
        dist_work_free(pending->work);
    disti_call_close(&pending->call);
    disti_channel_give(pending->call.channel);
    free(pending);
}

/* Frees an operation that is not under way any more, of which the program has freed the request. */
static void persistent_drop(struct disti_pending *pending)
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

static void requests_end(struct disti_pending *pending)
{
    pending->running = false;
    if (!pending->kept)
        pending->work = NULL;
    if (pending->persistent) {
        persistent_complete(pending, pending->code);
        if (pending->abandoned)
            persistent_drop(pending);
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

bool disti_requests_move(void)
{
    struct disti_channel *channel, *next;
    struct disti_pending *pending;
    MPI_Comm failed = MPI_COMM_NULL;

    if (pthread_mutex_trylock(&requests_lock) != 0)
        return true; /* another thread is at it */
    for (channel = SLIST_FIRST(&requests_channels); channel; channel = next) {
        int ended = 0;

        next = SLIST_NEXT(channel, next);
        /* Operations of one group end in the order in which they began. */
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

/* Puts a started operation behind the others of its channel. */
static void pending_add(struct disti_pending *pending)
{
    struct disti_channel *channel = pending->call.channel;

    disti_imports_renew(); /* who waits for it has to come here */
    disti_straight_end();
    pthread_mutex_lock(&requests_lock);
    if (STAILQ_EMPTY(&channel->pending)) {
        STAILQ_INIT(&channel->pending); /* all zero at first */
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

/* The program has freed a persistent request. An operation that is under way is dropped when it
 * has ended. */
static void pending_release(struct disti_pending *pending)
{
    bool running;

    pthread_mutex_lock(&requests_lock);
    running = pending->running;
    pending->abandoned = running;
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

/* The request is made before the operation is started: what can fail without the other ranks is
 * over then. */
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
    disti_comm_hold(comm);
    request = pending->request;
    code = disti_call_start(&pending->call, &pending->work);
    if (code != MPI_SUCCESS) {
        disti_call_close(&pending->call);
        disti_comm_let_go(comm);
        PMPI_Grequest_complete(request);
        PMPI_Request_free(&request); /* which frees what it stands for */
        return code;
    }
    pending_add(pending);
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

/* Preload: waits and tests for requests of any kind, ours and MPI's. */

/*
 * Our requests are MPI's to complete, so that a wait is a test again and again while operations of
 * ours are under way, and MPI's own wait as soon as there are none.
 */
#define WAITS_POLL(test, done)                                                                     \
    do {                                                                                           \
        struct disti_backoff backoff = {0};                                                        \
                                                                                                   \
        while (disti_move()) {                                                                     \
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

/* MPI_UNDEFINED, when none is active, is not 0 either. */
int MPI_Waitsome(int count, MPI_Request requests[], int *outcount, int indices[],
                 MPI_Status statuses[])
{
    if (!outcount) /* which MPI refuses */
        return PMPI_Waitsome(count, requests, outcount, indices, statuses);
    *outcount = 0;
    WAITS_POLL(PMPI_Testsome(count, requests, outcount, indices, statuses), *outcount != 0);
    return PMPI_Waitsome(count, requests, outcount, indices, statuses);
}

#define WAITS_TEST(name, parameters, arguments)                                                    \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        disti_move();                                                                              \
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

/* Preload: persistent collectives, and the requests that stand for them. */

/*
 * Ranks may start persistent operations in another order than they made them, so each has a channel
 * of its own. The request is a persistent receive of nothing from this process, which MPI starts,
 * waits for and frees as any other; when the operation has ended, requests.c sends the message.
 */

/* Every MPI has tags up to this. */
#define PERSISTENT_TAGS 32767

static int persistent_tag;

static bool persistent_has_tag(int tag)
{
    const struct disti_pending *pending = persistent_made;

    while (pending && pending->tag != tag)
        pending = pending->next_made;
    return pending;
}

/* One that no other request has, nor call.c. MPI says the greatest on MPI_COMM_WORLD alone. Lock
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
    code = disti_call_open(&pending->call, args, comm);
    /* An all-reduce is made once and for all; libdist makes the others anew each time. */
    if (code == MPI_SUCCESS && args->kind == DIST_COLL_ALL_REDUCE) {
        const struct disti_call *call = &pending->call;

        pending->kept = dist_all_reduce_init(call->channel->group, call->in, call->out, call->count,
                                             call->reduction.dtype, call->reduction.op,
                                             &pending->work) == DIST_OK;
        if (!pending->kept)
            code = disti_call_fail(call);
    }
    if (code == MPI_SUCCESS) {
        disti_imports_renew(); /* who starts it has to come here */
        pthread_mutex_lock(&persistent_lock);
        pending->persistent = true;
        pending->tag = persistent_next_tag();
        code = PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, pending->tag, disti_preload.self,
                              &pending->request);
        if (code == MPI_SUCCESS) {
            disti_comm_hold(comm);
            pending->next_made = persistent_made;
            persistent_made = pending;
            atomic_fetch_add(&persistent_count, 1);
        }
        pthread_mutex_unlock(&persistent_lock);
    }
    if (code == MPI_SUCCESS) {
        *request_p = disti_request_made = pending->request;
        return code;
    }
    args->channel->broken = true;
    persistent_free(pending);
    return code;
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

/* The program may still free the requests, which are MPI's alone from here on. */
void disti_persistent_close(void)
{
    while (persistent_made) {
        struct disti_pending *pending = persistent_made;

        persistent_made = pending->next_made;
        atomic_fetch_sub(&persistent_count, 1);
        pending_release(pending);
    }
}

/* ---- what the program calls ---- */

static int persistent_start_any(MPI_Request *request)
{
    struct disti_pending *pending = persistent_find(request);
    int code = PMPI_Start(request);

    if (!pending || code != MPI_SUCCESS)
        return code;
    pending->code = MPI_SUCCESS;
    if (!pending->kept)
        code = disti_call_start(&pending->call, &pending->work);
    else if (dist_start(pending->work) != DIST_OK)
        code = disti_call_fail(&pending->call);
    if (code != MPI_SUCCESS) { /* the request is not to be waited for in vain */
        persistent_complete(pending, code);
        return code;
    }
    pending_add(pending);
    disti_move();
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
    } else if (pending) {
        pending_release(pending);
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
