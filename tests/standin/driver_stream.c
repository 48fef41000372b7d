/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The stand-in's streams: queues of tasks and of waits for positions in other streams; a thread
 * each.
 */
#include "standin.h"

#include <pthread.h>
#include <stdlib.h>

#define STREAM_LEGACY ((void *)1)     /* another name of the default stream */
#define STREAM_PER_THREAD ((void *)2) /* treated as the default stream too */

struct standin_stream *standin_streams;

/* ---- positions ---- */

static void stream_drop(struct standin_stream *stream)
{
    struct standin_stream **at = &standin_streams;

    if (--stream->users > 0)
        return;
    while (*at && *at != stream)
        at = &(*at)->next;
    if (*at)
        *at = stream->next;
    free(stream->past.at);
    pthread_cond_destroy(&stream->wake);
    free(stream);
}

struct standin_place standin_place_of_end(struct standin_stream *stream)
{
    stream->users++;
    return (struct standin_place){stream, stream->count};
}

void standin_place_drop(struct standin_place *place)
{
    if (place->stream)
        stream_drop(place->stream);
    place->stream = NULL;
}

void standin_task_drop(struct standin_task *task)
{
    if (task && --task->users == 0)
        task->free(task);
}

/* ---- the thread ---- */

static bool stream_may_go(const struct standin_stream *stream)
{
    const struct standin_operation *first = stream->first;

    return first && (!first->place.stream || first->place.stream->done >= first->place.count);
}

/* Executes the first operation. Caller holds the lock, which is released meanwhile. */
static void stream_do(struct standin_stream *stream)
{
    struct standin_operation *operation = stream->first;

    if (operation->task) {
        standin_unlock();
        standin_sleep_us(standin_number("STANDIN_DELAY_US", 0));
        operation->task->run(operation->task, operation->turn);
        standin_lock();
    }
    stream->first = operation->next;
    if (!stream->first)
        stream->last = &stream->first;
    standin_task_drop(operation->task);
    standin_place_drop(&operation->place);
    free(operation);
    stream->done++;
    standin_changed();
}

/* Most changes let only one stream or none continue, so the other streams are not woken. */
void standin_streams_wake(void)
{
    for (struct standin_stream *stream = standin_streams; stream; stream = stream->next) {
        if (stream_may_go(stream) || stream->closing)
            pthread_cond_signal(&stream->wake);
    }
}

static void *stream_main(void *arg)
{
    struct standin_stream *stream = arg;

    standin_lock();
    while (stream->first || !stream->closing) {
        if (stream_may_go(stream))
            stream_do(stream);
        else
            standin_wait_on(&stream->wake);
    }
    stream_drop(stream);
    standin_unlock();
    return NULL;
}

static struct standin_stream *stream_new(int device, bool blocking, bool is_default)
{
    struct standin_stream *stream = calloc(1, sizeof(*stream));
    pthread_t thread;

    if (!stream)
        return NULL;
    *stream = (struct standin_stream){.device = device,
                                      .blocking = blocking,
                                      .is_default = is_default,
                                      .users = 2,
                                      .wake = PTHREAD_COND_INITIALIZER,
                                      .last = &stream->first};
    if (pthread_create(&thread, NULL, stream_main, stream) != 0) {
        free(stream);
        return NULL;
    }
    pthread_detach(thread);
    stream->next = standin_streams;
    standin_streams = stream;
    return stream;
}

/* ---- enqueueing ---- */

static void stream_append(struct standin_stream *stream, struct standin_operation contents)
{
    struct standin_operation *operation = malloc(sizeof(*operation));

    if (!operation)
        abort();
    *operation = contents;
    operation->next = NULL;
    *stream->last = operation;
    stream->last = &operation->next;
    stream->count++;
    standin_changed();
}

void standin_stream_await(struct standin_stream *stream, struct standin_place place)
{
    stream_append(stream, (struct standin_operation){.place = place});
}

static void stream_follow(struct standin_stream *stream, struct standin_stream *other)
{
    if (other->done < other->count)
        standin_stream_await(stream, standin_place_of_end(other));
}

/* The default stream and the blocking streams of its device never run concurrently. */
static void stream_follow_others(struct standin_stream *stream)
{
    struct standin_stream *other;

    for (other = standin_streams; other && stream->blocking; other = other->next) {
        if (other != stream && other->device == stream->device && other->blocking &&
            (stream->is_default || other->is_default))
            stream_follow(stream, other);
    }
}

void standin_stream_put(struct standin_stream *stream, struct standin_task *task)
{
    stream_follow_others(stream);
    stream_append(stream, (struct standin_operation){.task = task,
                                                     .turn = task->start ? task->start(task) : 0});
}

static struct standin_stream *stream_default(int device)
{
    struct standin_stream *stream = standin_streams;

    while (stream && !(stream->is_default && stream->device == device))
        stream = stream->next;
    return stream ? stream : stream_new(device, true, true);
}

int standin_stream_find(void *handle, int device, struct standin_stream **stream_p)
{
    struct standin_stream *stream = standin_streams;
    int error = device < 0 ? standin_current(&device) : ERROR_OK;

    if (error)
        return error;
    if (handle && handle != STREAM_LEGACY && handle != STREAM_PER_THREAD) {
        while (stream && (stream != handle || stream->closing))
            stream = stream->next;
        *stream_p = stream;
        return stream ? ERROR_OK : ERROR_INVALID_HANDLE;
    }
    error = standin_capture_implicit(device);
    *stream_p = error ? NULL : stream_default(device);
    return error || *stream_p ? error : ERROR_OUT_OF_MEMORY;
}

int standin_enqueue(void *handle, int device, struct standin_task *task)
{
    struct standin_stream *stream;
    int error;

    standin_lock();
    error = standin_stream_find(handle, device, &stream);
    if (!error && stream->capture)
        error = standin_capture_add(stream, task);
    else if (!error)
        standin_stream_put(stream, task);
    if (error)
        standin_task_drop(task);
    standin_unlock();
    return error;
}

/* ---- waiting ---- */

static void stream_wait_until(struct standin_stream *stream, uint64_t count)
{
    stream->users++;
    while (stream->done < count)
        standin_wait();
    stream_drop(stream);
}

int standin_stream_sync(struct standin_stream *stream)
{
    int error = ERROR_OK;

    standin_lock();
    if (stream->capture) {
        error = standin_capture_spoil(stream);
    } else {
        if (stream->is_default)
            stream_follow_others(stream);
        stream_wait_until(stream, stream->count);
    }
    standin_unlock();
    return error;
}

/* Returns a stream of this device that has pending operations, or NULL. */
static struct standin_stream *stream_busy(int device)
{
    struct standin_stream *stream = standin_streams;

    while (stream && (stream->device != device || stream->done == stream->count))
        stream = stream->next;
    return stream;
}

int standin_device_sync(int device)
{
    standin_lock();
    while (stream_busy(device))
        standin_wait();
    standin_unlock();
    return ERROR_OK;
}

/* ---- functions ---- */

DRIVER(cuStreamCreate, hipStreamCreateWithFlags, void **stream, unsigned flags)
{
    struct standin_stream *made;
    int device, error = standin_current(&device);

    if (error)
        return error;
    standin_lock();
    made = stream_new(device, !(flags & 1), false);
    standin_unlock();
    if (!made)
        return ERROR_OUT_OF_MEMORY;
    *stream = made;
    return ERROR_OK;
}

/* Operations that are already enqueued are still executed. */
DRIVER(cuStreamDestroy_v2, hipStreamDestroy, void *handle)
{
    struct standin_stream *stream;
    int error;

    standin_lock();
    error = handle ? standin_stream_find(handle, -1, &stream) : ERROR_INVALID_HANDLE;
    if (!error && stream->is_default)
        error = ERROR_INVALID_HANDLE;
    if (!error) {
        stream->closing = true;
        stream_drop(stream);
        standin_changed();
    }
    standin_unlock();
    return error;
}

DRIVER(cuStreamSynchronize, hipStreamSynchronize, void *handle)
{
    struct standin_stream *stream;
    int error;

    standin_lock();
    error = standin_stream_find(handle, -1, &stream);
    standin_unlock();
    return error ? error : standin_stream_sync(stream);
}

DRIVER(cuStreamQuery, hipStreamQuery, void *handle)
{
    struct standin_stream *stream;
    int error;

    standin_lock();
    error = standin_stream_find(handle, -1, &stream);
    if (!error && stream->capture)
        error = standin_capture_spoil(stream);
    if (!error && stream->done < stream->count)
        error = ERROR_NOT_READY;
    standin_unlock();
    return error;
}
