/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: ending a communicator, in bounded time. */
#include "backends/nccl/nccl.h"

#include "base/backoff.h"
#include "base/clock.h"
#include "base/thread.h"

#include <errno.h>
#include <stdlib.h>

/*
 * NCCL needs milliseconds to end a communicator. Where it needs longer than this, a peer or the
 * device is stuck, and the group ends without waiting for it.
 */
#ifndef CLOSE_LIMIT_MS /* its test waits for less */
#define CLOSE_LIMIT_MS 10000
#endif

/*
 * ---- in a thread of its own, as NCCL and the driver may wait in it without a limit ----
 *
 * Each of these is started with a reference to the group's device, and lets go of it in the end.
 */

static void close_release(struct disti_nccl_gpu *gpu)
{
    const struct disti_driver *driver = gpu->driver;

    disti_nccl_stage_close(gpu);
    while (gpu->spares)
        driver->event_destroy(gpu->spare[--gpu->spares]);
    if (gpu->moment)
        driver->event_destroy(gpu->moment);
    if (gpu->one)
        driver->memory_free((uintptr_t)gpu->one);
    if (gpu->copies)
        driver->stream_destroy(gpu->copies);
    if (gpu->stream)
        driver->stream_destroy(gpu->stream);
}

static void *close_let_go(void *arg)
{
    struct disti_nccl_gpu *gpu = arg;
    struct disti_nccl_visit visit;

    if (atomic_fetch_sub(&gpu->holders, 1) > 1)
        return NULL;
    if (disti_nccl_enter(gpu, &visit)) {
        close_release(gpu);
        disti_nccl_exit(gpu, &visit);
    }
    if (gpu->context)
        gpu->driver->context_release(gpu->handle);
    free(gpu);
    return NULL;
}

static void *close_abort(void *arg)
{
    struct disti_nccl_gpu *gpu = arg;
    struct disti_nccl_visit visit;

    if (disti_nccl_enter(gpu, &visit)) {
        gpu->api->comm_abort(gpu->closing);
        disti_nccl_exit(gpu, &visit);
    }
    return close_let_go(gpu);
}

static void close_finalize(const struct disti_nccl_gpu *gpu)
{
    int64_t deadline = disti_deadline_ms(CLOSE_LIMIT_MS);
    struct disti_backoff backoff = {0};
    int error = DISTI_NCCL_SUCCESS, result = gpu->api->comm_finalize(gpu->closing);

    if (result == DISTI_NCCL_IN_PROGRESS || result == DISTI_NCCL_SUCCESS) {
        while (gpu->api->comm_error(gpu->closing, &error) == DISTI_NCCL_SUCCESS &&
               error == DISTI_NCCL_IN_PROGRESS && !disti_expired(deadline))
            disti_backoff(&backoff);
    }
    if (error == DISTI_NCCL_SUCCESS)
        gpu->api->comm_destroy(gpu->closing);
    else
        gpu->api->comm_abort(gpu->closing);
}

static void *close_destroy(void *arg)
{
    struct disti_nccl_gpu *gpu = arg;
    struct disti_nccl_visit visit;

    if (disti_nccl_enter(gpu, &visit)) {
        close_finalize(gpu);
        disti_nccl_exit(gpu, &visit);
    }
    return close_let_go(gpu);
}

/* ---- in the caller ---- */

/*
 * Runs one of the above, and waits for it within the limit. Without a thread for it nothing is
 * released: its reference stays.
 */
static void close_run(const struct disti_nccl_state *nccl, void *(*action)(void *))
{
    int64_t deadline = disti_deadline_ms(CLOSE_LIMIT_MS);
    struct disti_backoff backoff = {0};
    pthread_t thread;

    if (disti_thread_create(&thread, action, nccl->gpu) != 0)
        return;
    while (pthread_tryjoin_np(thread, NULL) == EBUSY) {
        if (disti_expired(deadline)) {
            pthread_detach(thread);
            nccl->host->log(DIST_LOG_WARN,
                            "rank %d: NCCL has not ended its communicator within %d s, and goes on "
                            "with it in the background: see what device %d is doing (nvidia-smi)",
                            nccl->rank, CLOSE_LIMIT_MS / 1000, nccl->device);
            return;
        }
        disti_backoff(&backoff);
    }
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

    if (!disti_nccl_enter(nccl->gpu, &visit))
        return;
    close_drop(nccl, &nccl->held);
    close_drop(nccl, &nccl->issued);
    close_drop(nccl, &nccl->parcels);
    close_drop(nccl, &nccl->kept);
    disti_nccl_exit(nccl->gpu, &visit);
}

void disti_nccl_abort(void *state)
{
    struct disti_nccl_state *nccl = state;

    if (!nccl->comm)
        return;
    nccl->gpu->closing = nccl->comm;
    nccl->comm = NULL;
    nccl->batch = false;
    atomic_fetch_add(&nccl->gpu->holders, 1);
    close_run(nccl, close_abort);
    close_forget(nccl);
}

/* The thread gets the group's own reference: the group has no use for the device any more. */
void disti_nccl_close(void *state)
{
    struct disti_nccl_state *nccl = state;
    bool pending = nccl->held.first || nccl->issued.first;

    if (!nccl->gpu)
        return;
    close_forget(nccl);
    if (!nccl->comm) {
        close_run(nccl, close_let_go);
    } else {
        nccl->gpu->closing = nccl->comm;
        close_run(nccl, pending ? close_abort : close_destroy);
    }
    nccl->comm = NULL;
    nccl->gpu = NULL;
}
