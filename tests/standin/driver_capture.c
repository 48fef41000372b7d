/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in's graphs: captures operations of streams and launches them. */
#include "standin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED, MODE_COUNT };
enum { STATUS_NONE, STATUS_ACTIVE, STATUS_INVALIDATED };

/* A graph, during and after its capture. */
struct standin_graph {
    struct standin_graph *next; /* in the list of current captures */
    uint64_t id;
    struct standin_stream *origin;
    pthread_t thread;
    int mode;
    bool is_void; /* a forbidden call has invalidated the capture */
    struct standin_task **tasks;
    size_t count;
};

static struct standin_graph *capture_list;
static uint64_t capture_count;
static _Thread_local int capture_thread_mode = MODE_GLOBAL;

/* ---- predecessors of a point in a capture ---- */

static bool past_grow(struct standin_past *past, size_t count)
{
    unsigned char *at = realloc(past->at, count ? count : 1);

    if (!at)
        return false;
    if (count > past->count) {
        memset(at + past->count, 0, count - past->count);
        past->count = count;
    }
    past->at = at;
    return true;
}

static void past_merge(struct standin_past *past, const struct standin_past *other)
{
    if (past->count < other->count && !past_grow(past, other->count))
        abort();
    for (size_t i = 0; i < other->count; i++)
        past->at[i] |= other->at[i];
}

static void past_clear(struct standin_past *past)
{
    free(past->at);
    *past = (struct standin_past){0};
}

/* ---- forbidden operations ---- */

int standin_capture_unsafe(void)
{
    int error = ERROR_OK;

    for (struct standin_graph *graph = capture_list; graph; graph = graph->next) {
        bool own = pthread_equal(graph->thread, pthread_self()) && graph->mode != MODE_RELAXED;
        bool hit = capture_thread_mode == MODE_GLOBAL ? own || graph->mode == MODE_GLOBAL
                                                      : capture_thread_mode != MODE_RELAXED && own;

        if (hit) {
            graph->is_void = true;
            error = ERROR_CAPTURE_UNSUPPORTED;
        }
    }
    return error;
}

int standin_capture_spoil(struct standin_stream *stream)
{
    stream->capture->is_void = true;
    return ERROR_CAPTURE_UNSUPPORTED;
}

int standin_capture_implicit(int device)
{
    struct standin_stream *stream = standin_streams;

    while (stream && !(stream->device == device && stream->blocking && stream->capture))
        stream = stream->next;
    if (stream)
        standin_capture_spoil(stream);
    return stream ? ERROR_CAPTURE_IMPLICIT : ERROR_OK;
}

/* ---- captured operations ---- */

int standin_capture_add(struct standin_stream *stream, struct standin_task *task)
{
    struct standin_graph *graph = stream->capture;
    struct standin_task **tasks;

    if (graph->is_void)
        return ERROR_CAPTURE_INVALIDATED;
    tasks = realloc(graph->tasks, (graph->count + 1) * sizeof(struct standin_task *));
    if (!tasks)
        return ERROR_OUT_OF_MEMORY;
    graph->tasks = tasks;
    if (!past_grow(&stream->past, graph->count + 1))
        return ERROR_OUT_OF_MEMORY;
    stream->past.at[graph->count] = 1;
    graph->tasks[graph->count++] = task;
    return ERROR_OK;
}

void standin_capture_mark(struct standin_stream *stream, struct standin_mark *mark_p)
{
    mark_p->capture = stream->capture->id;
    past_merge(&mark_p->past, &stream->past);
}

void standin_capture_mark_clear(struct standin_mark *mark)
{
    past_clear(&mark->past);
    mark->capture = 0;
}

int standin_capture_join(struct standin_stream *stream, const struct standin_mark *mark)
{
    struct standin_graph *graph = capture_list;

    while (graph && graph->id != mark->capture)
        graph = graph->next;
    if (!graph)
        return ERROR_CAPTURED_EVENT;
    if (stream->capture && stream->capture != graph) {
        standin_capture_spoil(stream);
        return ERROR_CAPTURE_ISOLATION;
    }
    stream->capture = graph;
    past_merge(&stream->past, &mark->past);
    return ERROR_OK;
}

/* ---- begin and end of a capture ---- */

static void graph_free(struct standin_graph *graph)
{
    for (size_t i = 0; i < graph->count; i++)
        standin_task_drop(graph->tasks[i]);
    free(graph->tasks);
    free(graph);
}

static int capture_begin(struct standin_stream *stream, int mode)
{
    struct standin_graph *graph;

    if (mode < 0 || mode >= MODE_COUNT)
        return ERROR_INVALID_VALUE;
    if (stream->is_default)
        return ERROR_CAPTURE_UNSUPPORTED;
    if (stream->capture)
        return ERROR_ILLEGAL_STATE;
    graph = calloc(1, sizeof(*graph));
    if (!graph)
        return ERROR_OUT_OF_MEMORY;
    *graph = (struct standin_graph){.next = capture_list,
                                    .id = ++capture_count,
                                    .origin = stream,
                                    .thread = pthread_self(),
                                    .mode = mode};
    capture_list = graph;
    stream->capture = graph;
    return ERROR_OK;
}

DRIVER(cuStreamBeginCapture_v2, hipStreamBeginCapture, void *handle, int mode)
{
    struct standin_stream *stream;
    int error;

    standin_lock();
    error = standin_stream_find(handle, -1, &stream);
    error = error ? error : capture_begin(stream, mode);
    standin_unlock();
    return error;
}

/* True if every forked stream has joined the origin stream again. */
static bool capture_is_joined(const struct standin_graph *graph, const struct standin_past *past)
{
    for (size_t i = 0; i < graph->count; i++) {
        if (i >= past->count || !past->at[i])
            return false;
    }
    return true;
}

static void capture_leave(struct standin_graph *graph)
{
    struct standin_graph **at = &capture_list;
    struct standin_stream *stream;

    while (*at != graph)
        at = &(*at)->next;
    *at = graph->next;
    for (stream = standin_streams; stream; stream = stream->next) {
        if (stream->capture == graph) {
            stream->capture = NULL;
            past_clear(&stream->past);
        }
    }
}

static int capture_end(struct standin_stream *stream, struct standin_graph **graph_p)
{
    struct standin_graph *graph = stream->capture;
    int error = ERROR_OK;

    if (!graph)
        return ERROR_ILLEGAL_STATE;
    if (graph->mode != MODE_RELAXED && !pthread_equal(graph->thread, pthread_self()))
        return ERROR_CAPTURE_WRONG_THREAD;
    if (graph->is_void)
        error = ERROR_CAPTURE_INVALIDATED;
    else if (graph->origin != stream)
        error = ERROR_CAPTURE_UNMATCHED;
    else if (!capture_is_joined(graph, &stream->past))
        error = ERROR_CAPTURE_UNJOINED;
    capture_leave(graph);
    if (error)
        graph_free(graph);
    *graph_p = error ? NULL : graph;
    return error;
}

DRIVER(cuStreamEndCapture, hipStreamEndCapture, void *handle, void **graph)
{
    struct standin_stream *stream;
    struct standin_graph *made = NULL;
    int error;

    standin_lock();
    error = standin_stream_find(handle, -1, &stream);
    error = error ? error : capture_end(stream, &made);
    standin_unlock();
    *graph = made;
    return error;
}

DRIVER(cuStreamIsCapturing, hipStreamIsCapturing, void *handle, int *is)
{
    struct standin_stream *stream;
    int error;

    standin_lock();
    error = standin_stream_find(handle, -1, &stream);
    if (!error && !stream->capture)
        *is = STATUS_NONE;
    else if (!error)
        *is = stream->capture->is_void ? STATUS_INVALIDATED : STATUS_ACTIVE;
    standin_unlock();
    return error;
}

DRIVER(cuThreadExchangeStreamCaptureMode, hipThreadExchangeStreamCaptureMode, int *mode)
{
    int old = capture_thread_mode;

    if (*mode < 0 || *mode >= MODE_COUNT)
        return ERROR_INVALID_VALUE;
    capture_thread_mode = *mode;
    *mode = old;
    return ERROR_OK;
}

/* ---- graphs ---- */

DRIVER(cuGraphInstantiateWithFlags, hipGraphInstantiateWithFlags, void **exec, void *graph,
       unsigned long long flags)
{
    const struct standin_graph *source = graph;
    struct standin_graph *copy = calloc(1, sizeof(*copy));

    (void)flags;
    if (!copy)
        return ERROR_OUT_OF_MEMORY;
    copy->tasks = calloc(source->count + 1, sizeof(struct standin_task *));
    if (!copy->tasks) {
        free(copy);
        return ERROR_OUT_OF_MEMORY;
    }
    standin_lock();
    for (copy->count = 0; copy->count < source->count; copy->count++) {
        copy->tasks[copy->count] = source->tasks[copy->count];
        copy->tasks[copy->count]->users++;
    }
    standin_unlock();
    *exec = copy;
    return ERROR_OK;
}

DRIVER(cuGraphLaunch, hipGraphLaunch, void *exec, void *handle)
{
    const struct standin_graph *graph = exec;
    struct standin_stream *stream;
    int error;

    standin_lock();
    error = standin_stream_find(handle, -1, &stream);
    for (size_t i = 0; i < graph->count && !error; i++) {
        graph->tasks[i]->users++;
        if (stream->capture)
            error = standin_capture_add(stream, graph->tasks[i]);
        else
            standin_stream_put(stream, graph->tasks[i]);
        if (error)
            standin_task_drop(graph->tasks[i]);
    }
    standin_unlock();
    return error;
}

DRIVER(cuGraphExecDestroy, hipGraphExecDestroy, void *exec)
{
    standin_lock();
    graph_free(exec);
    standin_unlock();
    return ERROR_OK;
}

DRIVER(cuGraphDestroy, hipGraphDestroy, void *graph)
{
    standin_lock();
    graph_free(graph);
    standin_unlock();
    return ERROR_OK;
}
