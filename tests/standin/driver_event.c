/* SPDX-License-Identifier: BSD-3-Clause */
/* The stand-in's events: positions in streams or in captures. */
#include "standin.h"

#include <stdlib.h>

struct standin_event {
    struct standin_event *next;
    struct standin_place place;
    struct standin_mark mark;
};

static struct standin_event *event_list;

struct standin_event *standin_event_new(void)
{
    struct standin_event *event = calloc(1, sizeof(*event));

    if (event) {
        event->next = event_list;
        event_list = event;
    }
    return event;
}

static void event_clear(struct standin_event *event)
{
    standin_place_drop(&event->place);
    standin_capture_mark_clear(&event->mark);
}

void standin_event_free(struct standin_event *event)
{
    struct standin_event **at = &event_list;

    while (*at && *at != event)
        at = &(*at)->next;
    if (*at)
        *at = event->next;
    event_clear(event);
    free(event);
}

int standin_event_record(struct standin_event *event, struct standin_stream *stream)
{
    event_clear(event);
    if (stream->capture)
        standin_capture_mark(stream, &event->mark);
    else
        event->place = standin_place_of_end(stream);
    return ERROR_OK;
}

int standin_event_await(struct standin_event *event, struct standin_stream *stream)
{
    if (event->mark.capture)
        return standin_capture_join(stream, &event->mark);
    if (!event->place.stream)
        return ERROR_OK;
    if (stream->capture) {
        standin_capture_spoil(stream);
        return ERROR_CAPTURE_ISOLATION;
    }
    event->place.stream->users++;
    standin_stream_await(stream, event->place);
    return ERROR_OK;
}

/* Finds an event by its handle. Caller holds the lock. */
static int event_find(const void *handle, struct standin_event **event_p)
{
    int device, error = standin_current(&device);
    struct standin_event *event = event_list;

    if (error)
        return error;
    while (event && event != handle)
        event = event->next;
    *event_p = event;
    return event ? ERROR_OK : ERROR_INVALID_HANDLE;
}

/* Finds an event that may be queried. Caller holds the lock. */
static int event_check(const void *handle, struct standin_event **event_p)
{
    int error = event_find(handle, event_p);

    error = error ? error : standin_capture_unsafe();
    return !error && (*event_p)->mark.capture ? ERROR_CAPTURED_EVENT : error;
}

static bool event_is_over(const struct standin_event *event)
{
    return !event->place.stream || event->place.stream->done >= event->place.count;
}

DRIVER(cuEventCreate, hipEventCreateWithFlags, void **event, unsigned flags)
{
    int device, error = standin_current(&device);
    struct standin_event *made = NULL;

    (void)flags;
    standin_lock();
    if (!error)
        made = standin_event_new();
    standin_unlock();
    if (made)
        *event = made;
    return error || made ? error : ERROR_OUT_OF_MEMORY;
}

DRIVER(cuEventDestroy_v2, hipEventDestroy, void *handle)
{
    struct standin_event *event;
    int error;

    standin_lock();
    error = event_find(handle, &event);
    if (!error)
        standin_event_free(event);
    standin_unlock();
    return error;
}

DRIVER(cuEventRecord, hipEventRecord, void *handle, void *stream_handle)
{
    struct standin_event *event;
    struct standin_stream *stream;
    int error;

    standin_lock();
    error = event_find(handle, &event);
    error = error ? error : standin_stream_find(stream_handle, -1, &stream);
    error = error ? error : standin_event_record(event, stream);
    standin_unlock();
    return error;
}

DRIVER(cuStreamWaitEvent, hipStreamWaitEvent, void *stream_handle, void *handle, unsigned flags)
{
    struct standin_event *event;
    struct standin_stream *stream;
    int error;

    (void)flags;
    standin_lock();
    error = event_find(handle, &event);
    error = error ? error : standin_stream_find(stream_handle, -1, &stream);
    error = error ? error : standin_event_await(event, stream);
    standin_unlock();
    return error;
}

DRIVER(cuEventQuery, hipEventQuery, void *handle)
{
    struct standin_event *event;
    int error;

    standin_lock();
    error = event_check(handle, &event);
    if (!error && !event_is_over(event))
        error = ERROR_NOT_READY;
    standin_unlock();
    return error;
}

DRIVER(cuEventSynchronize, hipEventSynchronize, void *handle)
{
    struct standin_event *event;
    struct standin_place place;
    int error;

    standin_lock();
    error = event_check(handle, &event);
    if (!error && event->place.stream) {
        place = event->place;
        place.stream->users++;
        while (place.stream->done < place.count)
            standin_wait();
        standin_place_drop(&place);
    }
    standin_unlock();
    return error;
}
