/* SPDX-License-Identifier: BSD-3-Clause */
/* A launch: calls of a communicator on one or several streams, in the order of its launches. */
#include "communicator.h"

#include <stdlib.h>
#include <string.h>

struct launch {
    struct standin_task task; /* must be the first member */
    struct ncclComm *comm;
    int count;
    struct nccl_call calls[];
};

/* ---- on the stream's thread ---- */

/* Executes planted faults during a launch. */
static void launch_fault(struct ncclComm *comm, uint64_t turn)
{
    long number;

    if (standin_fault(FAULT_ASYNC, comm->rank, &number) && (uint64_t)number == turn) {
        nccl_fail_async(comm, nccl_fail(RESULT_RemoteError,
                                        "stand-in: connection lost in launch %ld of rank %d",
                                        number, comm->rank));
        nccl_hang(comm);
    }
    if (standin_fault(FAULT_HANG, comm->rank, &number) && (uint64_t)number == turn)
        nccl_hang(comm);
}

static void launch_run(struct standin_task *task, uint64_t turn)
{
    struct launch *launch = (struct launch *)task;
    struct ncclComm *comm = launch->comm;

    standin_lock();
    while (comm->ended != turn && !comm->aborted)
        standin_wait();
    comm->running++;
    standin_unlock();
    if (!comm->aborted)
        launch_fault(comm, turn);
    if (!comm->aborted)
        nccl_run(comm, launch->calls, launch->count);
    standin_lock();
    comm->running--;
    comm->ended++;
    standin_changed();
    standin_unlock();
}

static uint64_t launch_start(struct standin_task *task)
{
    return ((struct launch *)task)->comm->launched++;
}

static void launch_free(struct standin_task *task)
{
    nccl_comm_drop(((struct launch *)task)->comm);
    free(task);
}

/* ---- on streams ---- */

/* Finds the streams of the calls, each once. Caller holds the lock. */
static int launch_streams(const struct ncclComm *comm, const struct nccl_call *calls, int count,
                          struct standin_stream **streams, int *count_p)
{
    int found = 0, error, seen;

    for (int i = 0; i < count; i++) {
        error = standin_stream_find(calls[i].stream, comm->device, &streams[found]);
        if (error)
            return nccl_fail(RESULT_UnhandledCudaError, "Cuda failure '%s'",
                             standin_error_text(error));
        if (streams[found]->device != comm->device)
            return nccl_fail(RESULT_UnhandledCudaError,
                             "Cuda failure 'invalid resource handle': a stream of device %d, the "
                             "communicator's is %d",
                             streams[found]->device, comm->device);
        for (seen = 0; streams[seen] != streams[found]; seen++)
            ;
        found += seen == found;
    }
    *count_p = found;
    return RESULT_Success;
}

/* Makes the second stream wait for the current end of the first. */
static int launch_link(struct standin_stream *first, struct standin_stream *second)
{
    struct standin_event *event = standin_event_new();
    int error = event ? standin_event_record(event, first) : ERROR_OUT_OF_MEMORY;

    error = error ? error : standin_event_await(event, second);
    if (event)
        standin_event_free(event);
    return error;
}

/*
 * Enqueues the task on the first stream. The task waits for the other streams, and later operations
 * of these wait for the task. Caller holds the lock.
 */
static int launch_put(struct standin_stream **streams, int count, struct standin_task *task)
{
    int error = ERROR_OK;

    for (int i = 1; i < count && !error; i++)
        error = launch_link(streams[i], streams[0]);
    if (error)
        standin_task_drop(task);
    else if (!streams[0]->capture)
        standin_stream_put(streams[0], task);
    else if ((error = standin_capture_add(streams[0], task)))
        standin_task_drop(task);
    for (int i = 1; i < count && !error; i++)
        error = launch_link(streams[0], streams[i]);
    return error;
}

/* Checks that sends to and receives from this rank itself are paired. */
static int launch_check_own(const struct ncclComm *comm, const struct nccl_call *calls, int count)
{
    int64_t number = 0, bytes = 0;

    for (int i = 0; i < count; i++) {
        int64_t size = (int64_t)(calls[i].count * nccl_type_size(calls[i].type));
        int sign = (calls[i].kind == KIND_SEND) - (calls[i].kind == KIND_RECV);

        if (calls[i].peer == comm->rank) {
            number += sign;
            bytes += sign * size;
        }
    }
    if (number || bytes)
        return nccl_fail(
            RESULT_InvalidUsage,
            "Trying to send to self without a matching recv, or to recv without a send");
    return RESULT_Success;
}

static int launch_refuse(struct ncclComm *comm)
{
    uint64_t launched;
    long number;

    standin_lock();
    launched = comm->launched;
    standin_unlock();
    if (standin_fault(FAULT_ENQUEUE, comm->rank, &number) && (uint64_t)number == launched)
        return nccl_fail(RESULT_UnhandledCudaError,
                         "stand-in: Cuda failure 'unspecified launch failure' in launch %ld",
                         number);
    return RESULT_Success;
}

int nccl_launch(struct ncclComm *comm, const struct nccl_call *calls, int count)
{
    struct standin_stream **streams = calloc((size_t)count + 1, sizeof(struct standin_stream *));
    struct launch *launch = calloc(1, sizeof(*launch) + (size_t)count * sizeof(*calls));
    int result = launch_refuse(comm), stream_count = 0, error = ERROR_OK;

    result = result ? result : launch_check_own(comm, calls, count);
    if (!result && !(streams && launch))
        result = nccl_fail(RESULT_SystemError, "out of memory");
    standin_lock();
    result = result ? result : launch_streams(comm, calls, count, streams, &stream_count);
    if (result) {
        free(launch);
    } else {
        launch->task = (struct standin_task){
            .run = launch_run, .start = launch_start, .free = launch_free, .users = 1};
        launch->comm = comm;
        launch->count = count;
        memcpy(launch->calls, calls, (size_t)count * sizeof(*calls));
        comm->users++;
        error = launch_put(streams, stream_count, &launch->task);
    }
    standin_unlock();
    free(streams);
    if (error)
        result =
            nccl_fail(RESULT_UnhandledCudaError, "Cuda failure '%s'", standin_error_text(error));
    return result;
}
