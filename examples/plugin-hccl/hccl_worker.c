/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backend hccl: the group's thread, the only one that calls HCCL, and functions that wait for it.
 */
#include "hccl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Minimum and maximum interval between polls of the streams; it grows while nothing completes. */
#define WORKER_POLL_NS (20 * 1000)
#define WORKER_POLL_MAX_NS (500 * 1000)

int64_t hccl_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Waits until something changes or until that time; the caller holds the lock. False: timeout. */
static bool worker_wait(struct hccl_group *g, int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};

    return pthread_cond_timedwait(&g->changed, &g->lock, &until) != ETIMEDOUT;
}

void hccl_job_fail(struct hccl_job *job, dist_status status, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(job->text, sizeof(job->text), format, args);
    va_end(args);
    job->status = status;
}

void hccl_job_reach(struct hccl_group *g, struct hccl_job *job, enum hccl_stage stage)
{
    pthread_mutex_lock(&g->lock);
    atomic_store(&job->stage, (int)(job->status == DIST_OK ? stage : HCCL_FAILED));
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

bool hccl_stopped(struct hccl_group *g)
{
    bool stop;

    pthread_mutex_lock(&g->lock);
    stop = g->stop;
    pthread_mutex_unlock(&g->lock);
    return stop;
}

void hccl_enqueue(struct hccl_group *g, struct hccl_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&g->lock);
    *g->last = job;
    g->last = &job->next;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

dist_status hccl_wait(struct hccl_group *g, struct hccl_job *job, enum hccl_stage stage)
{
    int64_t until = hccl_now_ns() + g->timeout_ms * INT64_C(1000000);
    bool in_time = true;
    int reached;

    pthread_mutex_lock(&g->lock);
    while ((reached = atomic_load(&job->stage)) < (int)stage && in_time)
        in_time = worker_wait(g, until);
    pthread_mutex_unlock(&g->lock);
    if (reached == HCCL_FAILED)
        return g->host->fail(job->status, "%s", job->text);
    if (reached >= (int)stage)
        return DIST_OK;
    return g->host->fail(DIST_ERR_TIMEOUT,
                         "rank %d: HCCL has not returned for %d ms on device %d: check the other "
                         "ranks, or increase the timeout passed to init_process_group or "
                         "new_group, or DIST_TIMEOUT (seconds)",
                         g->rank, g->timeout_ms, g->device);
}

/* ---- the thread ---- */

/*
 * Removes and returns the next job, for which it waits at most interval_ns. NULL: timeout, or the
 * thread must end.
 */
static struct hccl_job *worker_next(struct hccl_group *g, int64_t interval_ns)
{
    struct hccl_job *job;

    pthread_mutex_lock(&g->lock);
    if (!g->first && !g->stop && g->issued)
        worker_wait(g, hccl_now_ns() + interval_ns);
    while (!g->first && !g->stop && !g->issued)
        pthread_cond_wait(&g->changed, &g->lock);
    job = g->stop ? NULL : g->first;
    if (job) {
        g->first = job->next;
        if (!g->first)
            g->last = &g->first;
    }
    pthread_mutex_unlock(&g->lock);
    return job;
}

/* Destroys the communicator; only the thread that obtains it from g->comm does so. */
static void worker_destroy_comm(struct hccl_group *g)
{
    void *comm = atomic_exchange(&g->comm, NULL);
    int64_t until = hccl_now_ns() + HCCL_LEAVE_MS * INT64_C(1000000);
    const struct timespec interval = {.tv_nsec = 10 * 1000 * 1000};

    while (comm && g->api->comm_destroy(comm) == HCCL_E_AGAIN && hccl_now_ns() < until)
        nanosleep(&interval, NULL);
}

static void worker_free_regions(struct hccl_group *g)
{
    while (g->regions) {
        struct hccl_region *region = g->regions;

        g->regions = region->next;
        g->api->acl.free(region->memory);
        free(region);
    }
}

static void worker_clean(struct hccl_group *g)
{
    worker_destroy_comm(g);
    if (g->stream && g->issued && g->api->acl.stream_abort)
        g->api->acl.stream_abort(g->stream);
    if (g->stream)
        g->api->acl.stream_destroy(g->stream);
    for (struct hccl_call *c = g->issued; c; c = c->next_issued)
        hccl_call_clear(g, c);
    for (unsigned i = 0; i < HCCL_RETIRED && i < g->retirements; i++)
        g->api->acl.event_destroy(g->retired[i]);
    worker_free_regions(g);
}

static void *worker_main(void *arg)
{
    struct hccl_group *g = arg;
    int64_t interval_ns = WORKER_POLL_NS;

    while (!hccl_stopped(g)) {
        struct hccl_job *job = worker_next(g, interval_ns);

        if (job)
            job->run(g, job);
        interval_ns = hccl_call_poll(g) || job ? WORKER_POLL_NS : 2 * interval_ns;
        if (interval_ns > WORKER_POLL_MAX_NS)
            interval_ns = WORKER_POLL_MAX_NS;
    }
    worker_clean(g);
    pthread_mutex_lock(&g->lock);
    g->ended = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    return NULL;
}

dist_status hccl_start(struct hccl_group *g)
{
    pthread_condattr_t monotonic;
    pthread_attr_t detached;
    pthread_t thread;
    int error;

    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    g->last = &g->first;
    g->issued_end = &g->issued;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &detached, worker_main, g);
    pthread_attr_destroy(&detached);
    if (error)
        return g->host->fail(DIST_ERR_SYSTEM, "rank %d cannot start a thread for HCCL: error %d",
                             g->rank, error);
    return DIST_OK;
}

/* ---- end of the thread ---- */

/*
 * Destroys the communicator from another thread, which HCCL's documentation allows, to unblock the
 * group's thread.
 */
static void *worker_rescue(void *arg)
{
    worker_destroy_comm(arg);
    return NULL;
}

static bool worker_has_ended(struct hccl_group *g, int ms)
{
    int64_t until = hccl_now_ns() + ms * INT64_C(1000000);
    bool in_time = true, ended;

    pthread_mutex_lock(&g->lock);
    while (!g->ended && in_time)
        in_time = worker_wait(g, until);
    ended = g->ended;
    pthread_mutex_unlock(&g->lock);
    return ended;
}

bool hccl_end(struct hccl_group *g)
{
    pthread_t thread;
    bool ended;

    pthread_mutex_lock(&g->lock);
    g->stop = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    ended = worker_has_ended(g, HCCL_LEAVE_MS / 4);
    if (!ended && pthread_create(&thread, NULL, worker_rescue, g) == 0) {
        pthread_detach(thread);
        ended = worker_has_ended(g, HCCL_LEAVE_MS);
    }
    return ended;
}
