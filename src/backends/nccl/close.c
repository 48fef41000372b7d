/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: leaving, in bounded time. */
#include "backends/nccl/nccl.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/thread.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/*
 * NCCL's farewell takes milliseconds. When it takes longer than this something is stuck, a peer or
 * the device, and what NCCL may still use is left to it.
 */
#define CLOSE_LIMIT_NS (10LL * 1000 * 1000 * 1000)

/* What a thread of its own does, as NCCL and the driver may wait in it without a limit. */
struct close_job {
    struct disti_nccl_state state; /* a copy */
    bool abort;                    /* drop what is under way */
    bool release;                  /* and everything else that is the group's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool done, abandoned; /* whoever comes second frees the job */
};

static void close_free_job(struct close_job *job)
{
    pthread_mutex_destroy(&job->lock);
    pthread_cond_destroy(&job->changed);
    free(job);
}

/* ---- in the thread ---- */

static void close_finalize(const struct disti_nccl_state *nccl)
{
    int64_t until = disti_now_ns() + CLOSE_LIMIT_NS;
    struct disti_backoff backoff = {0};
    int error = DISTI_NCCL_SUCCESS, result = nccl->api->comm_finalize(nccl->comm);

    if (result == DISTI_NCCL_IN_PROGRESS || result == DISTI_NCCL_SUCCESS) {
        while (nccl->api->comm_error(nccl->comm, &error) == DISTI_NCCL_SUCCESS &&
               error == DISTI_NCCL_IN_PROGRESS && disti_now_ns() < until)
            disti_backoff(&backoff);
    }
    if (error == DISTI_NCCL_SUCCESS)
        nccl->api->comm_destroy(nccl->comm);
    else
        nccl->api->comm_abort(nccl->comm);
}

static void close_release(struct disti_nccl_state *nccl)
{
    const struct disti_driver *driver = nccl->driver;

    disti_nccl_stage_close(nccl);
    while (nccl->spares)
        driver->event_destroy(nccl->spare[--nccl->spares]);
    if (nccl->moment)
        driver->event_destroy(nccl->moment);
    if (nccl->one)
        driver->memory_free((uintptr_t)nccl->one);
    if (nccl->copies)
        driver->stream_destroy(nccl->copies);
    if (nccl->stream)
        driver->stream_destroy(nccl->stream);
}

static void *close_main(void *arg)
{
    struct close_job *job = arg;
    struct disti_nccl_state *nccl = &job->state;
    struct disti_nccl_visit visit;
    bool abandoned;

    if (disti_nccl_enter(nccl, &visit)) {
        if (nccl->comm && job->abort)
            nccl->api->comm_abort(nccl->comm);
        else if (nccl->comm)
            close_finalize(nccl);
        if (job->release)
            close_release(nccl);
        disti_nccl_leave(nccl, &visit);
    }
    pthread_mutex_lock(&job->lock);
    job->done = true;
    abandoned = job->abandoned;
    pthread_cond_signal(&job->changed);
    pthread_mutex_unlock(&job->lock);
    if (abandoned)
        close_free_job(job);
    return NULL;
}

/* ---- in the caller ---- */

/* False: it is not done in time, and goes on alone. */
static bool close_await(struct close_job *job)
{
    int64_t until = disti_now_ns() + CLOSE_LIMIT_NS;
    const struct timespec time = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    int error = 0;
    bool done;

    pthread_mutex_lock(&job->lock);
    while (!job->done && !error)
        error = pthread_cond_timedwait(&job->changed, &job->lock, &time);
    done = job->done;
    job->abandoned = !done;
    pthread_mutex_unlock(&job->lock);
    return done;
}

static struct close_job *close_make_job(const struct disti_nccl_state *nccl)
{
    struct close_job *job = calloc(1, sizeof(*job));
    pthread_condattr_t attributes;

    if (!job)
        return NULL;
    job->state = *nccl;
    pthread_mutex_init(&job->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&job->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    return job;
}

/* Without memory or a thread for it nothing is given back: the process ends soon then. */
static bool close_run(struct disti_nccl_state *nccl, bool abort, bool release)
{
    struct close_job *job = close_make_job(nccl);
    pthread_t thread;

    if (!job)
        return false;
    job->abort = abort;
    job->release = release;
    if (disti_thread_create(&thread, close_main, job) != 0) {
        close_free_job(job);
        return false;
    }
    if (!close_await(job)) {
        pthread_detach(thread);
        nccl->host->log(DIST_LOG_WARN,
                        "rank %d: NCCL did not shut down within %lld s and is abandoned: check "
                        "what device %d is doing (nvidia-smi)",
                        nccl->rank, CLOSE_LIMIT_NS / 1000000000, nccl->device);
        return false;
    }
    pthread_join(thread, NULL);
    close_free_job(job);
    return true;
}

static void close_drop(struct disti_nccl_state *nccl, struct disti_nccl_queue *queue)
{
    struct disti_nccl_call *c;

    while ((c = queue->first)) {
        queue->first = c->next;
        disti_nccl_call_free(nccl, c);
    }
    queue->last = NULL;
}

/* Forgets the calls; their tickets are not touched. */
static void close_forget(struct disti_nccl_state *nccl)
{
    struct disti_nccl_visit visit;

    if (!nccl->context || !disti_nccl_enter(nccl, &visit))
        return;
    close_drop(nccl, &nccl->held);
    close_drop(nccl, &nccl->issued);
    close_drop(nccl, &nccl->parcels);
    close_drop(nccl, &nccl->kept);
    disti_nccl_leave(nccl, &visit);
}

void disti_nccl_abort(void *state)
{
    struct disti_nccl_state *nccl = state;

    if (!nccl->comm)
        return;
    nccl->lost = !close_run(nccl, true, false);
    nccl->comm = NULL;
    nccl->batch = false;
    close_forget(nccl);
}

void disti_nccl_close(void *state)
{
    struct disti_nccl_state *nccl = state;
    bool pending = nccl->held.first || nccl->issued.first;

    if (!nccl->context)
        return;
    close_forget(nccl);
    if (!nccl->lost && close_run(nccl, pending, true))
        nccl->driver->context_release(nccl->handle);
    nccl->comm = NULL;
    nccl->context = NULL;
}
