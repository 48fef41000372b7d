/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Groups of the stand-in's NCCL: the calls that a thread collects until the group's end, and
 * nonblocking communicators.
 */
#include "communicator.h"

#include <pthread.h>
#include <stdlib.h>

/* What a group does for one communicator: launches its calls, or creates it. */
struct job {
    struct job *next;
    struct ncclComm *comm;
    struct ncclComm **comm_p; /* creation: where to store the handle */
    int (*make)(struct ncclComm *comm, void *arg);
    void *arg;
    struct nccl_call *calls;
    int count;
    int result;
    pthread_t thread;
};

/* A launch of a nonblocking communicator is enqueued after this time and STANDIN_DELAY_US. */
#define GROUP_LAUNCH_US 500

static _Thread_local struct job *group_jobs;
static _Thread_local int group_depth, group_result;

static int job_do(struct job *job)
{
    if (job->make)
        return job->make(job->comm, job->arg);
    return nccl_launch(job->comm, job->calls, job->count);
}

static void job_free(struct job *job)
{
    standin_lock();
    nccl_comm_drop(job->comm);
    standin_unlock();
    free(job->arg);
    free(job->calls);
    free(job);
}

/* ---- nonblocking communicators ---- */

/* Changes the state from `from` to `to`; an error of an earlier launch remains. */
static void job_state(struct job *job, int from, int to)
{
    if (job->make)
        atomic_store(&job->comm->state, to);
    else
        atomic_compare_exchange_strong(&job->comm->state, &from, to);
}

static void *job_in_background(void *arg)
{
    struct job *job = arg;
    int result;

    if (!job->make)
        standin_sleep_us(GROUP_LAUNCH_US + standin_number("STANDIN_DELAY_US", 0));
    result = job_do(job);
    if (result)
        nccl_fail_async(job->comm, result);
    else
        job_state(job, RESULT_InProgress, RESULT_Success);
    job_free(job);
    return NULL;
}

static int job_detach(struct job *job)
{
    pthread_t thread;

    job_state(job, RESULT_Success, RESULT_InProgress);
    if (job->comm_p)
        *job->comm_p = job->comm;
    if (pthread_create(&thread, NULL, job_in_background, job) != 0) {
        job_free(job);
        return nccl_fail(RESULT_SystemError, "no thread can be started");
    }
    pthread_detach(thread);
    return RESULT_InProgress;
}

/* ---- blocking communicators ---- */

static void *job_in_thread(void *arg)
{
    struct job *job = arg;

    job->result = job_do(job);
    return NULL;
}

/* Several communicators of one process are made concurrently. */
static void jobs_make(struct job *jobs)
{
    for (struct job *job = jobs; job; job = job->next) {
        if (job->make && pthread_create(&job->thread, NULL, job_in_thread, job) != 0)
            abort();
    }
    for (struct job *job = jobs; job; job = job->next) {
        if (job->make)
            pthread_join(job->thread, NULL);
        else
            job->result = job_do(job);
    }
}

static int job_end(struct job *job)
{
    int result = job->result;

    if (job->make && !result) {
        atomic_store(&job->comm->state, RESULT_Success);
        *job->comm_p = job->comm;
    } else if (job->make) {
        standin_lock();
        nccl_comm_drop(job->comm); /* the reference of a handle that the caller does not get */
        standin_unlock();
    }
    job_free(job);
    return result;
}

/* ---- the end of a group ---- */

static int group_run(struct job *jobs)
{
    struct job *next;
    int result = RESULT_Success, one;

    if (jobs && jobs->comm->blocking)
        jobs_make(jobs);
    for (struct job *job = jobs; job; job = next) {
        next = job->next;
        one = job->comm->blocking ? job_end(job) : job_detach(job);
        if (one && (!result || result == RESULT_InProgress))
            result = one;
    }
    return result;
}

static void group_drop(struct job *jobs)
{
    struct job *next;

    for (struct job *job = jobs; job; job = next) {
        next = job->next;
        job->result = RESULT_InternalError;
        job_end(job);
    }
}

int ncclGroupStart(void)
{
    group_depth++;
    return RESULT_Success;
}

int ncclGroupEnd(void)
{
    struct job *jobs = group_jobs;
    int result = group_result;

    if (group_depth == 0)
        return nccl_fail(RESULT_InvalidUsage, "ncclGroupEnd: not in a group call.");
    if (--group_depth > 0)
        return RESULT_Success;
    group_jobs = NULL;
    group_result = RESULT_Success;
    if (!result)
        return group_run(jobs);
    group_drop(jobs);
    return result;
}

int nccl_note(int result)
{
    if (group_depth && !group_result && result != RESULT_InProgress)
        group_result = result;
    return result;
}

/* ---- collecting calls ---- */

static struct job *job_new(struct ncclComm *comm)
{
    struct job *job = calloc(1, sizeof(*job)), **at = &group_jobs;

    if (!job)
        return NULL;
    job->comm = comm;
    standin_lock();
    comm->users++;
    standin_unlock();
    while (*at)
        at = &(*at)->next;
    *at = job;
    return job;
}

static int job_add(struct job *job, const struct nccl_call *call)
{
    struct nccl_call *calls =
        realloc(job->calls, (size_t)(job->count + 1) * sizeof(struct nccl_call));

    if (!calls)
        return nccl_fail(RESULT_SystemError, "out of memory");
    job->calls = calls;
    job->calls[job->count++] = *call;
    return RESULT_Success;
}

/* A call outside a group is a group of its own. */
int nccl_take(struct ncclComm *comm, const struct nccl_call *call)
{
    struct job *job;
    int result, end;

    ncclGroupStart();
    for (job = group_jobs; job && job->comm != comm; job = job->next)
        ;
    job = job ? job : job_new(comm);
    result = job ? job_add(job, call) : RESULT_SystemError;
    nccl_note(result);
    end = ncclGroupEnd();
    return result ? result : end;
}

int nccl_make(struct ncclComm *comm, int (*make)(struct ncclComm *comm, void *arg), void *arg,
              struct ncclComm **comm_p)
{
    struct job *job;

    ncclGroupStart();
    job = job_new(comm);
    if (job) {
        job->make = make;
        job->arg = arg;
        job->comm_p = comm_p;
    } else {
        free(arg);
        nccl_note(nccl_fail(RESULT_SystemError, "out of memory"));
    }
    return ncclGroupEnd();
}
