/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in for Ascend: streams and events of the runtime. */
#include "standin/ascend.h"

#include <pthread.h>
#include <stdlib.h>

/* One lock for all state. A change wakes all waiting threads; a new task wakes its stream. */
static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stream_changed = PTHREAD_COND_INITIALIZER;

struct task {
    struct task *next;
    int (*run)(void *arg);
    void *arg;
};

struct stream {
    struct task *first, **last;
    bool closing, busy;
    int error; /* the first error of a task; later tasks are not run */
    pthread_t thread;
    pthread_cond_t wake; /* the thread sleeps on it */
};

static struct stream *stream_default;

/* Drops the reference to an event that a task has, if the task will not run. */
static void event_skip(const struct task *task);

static void *stream_main(void *arg)
{
    struct stream *s = arg;
    struct task *task;

    pthread_mutex_lock(&stream_lock);
    for (;;) {
        while (!s->first && !s->closing)
            pthread_cond_wait(&s->wake, &stream_lock);
        if (!s->first)
            break;
        task = s->first;
        s->first = task->next;
        if (!s->first)
            s->last = &s->first;
        s->busy = true;
        if (s->error)
            event_skip(task);
        pthread_mutex_unlock(&stream_lock);
        int error = s->error ? 0 : task->run(task->arg);

        free(task->arg);
        free(task);
        pthread_mutex_lock(&stream_lock);
        s->error = s->error ? s->error : error;
        s->busy = false;
        pthread_cond_broadcast(&stream_changed);
    }
    pthread_mutex_unlock(&stream_lock);
    return NULL;
}

static struct stream *stream_new(void)
{
    struct stream *s = calloc(1, sizeof(*s));

    s->last = &s->first;
    pthread_cond_init(&s->wake, NULL);
    pthread_create(&s->thread, NULL, stream_main, s);
    return s;
}

static struct stream *stream_of(void *handle)
{
    pthread_mutex_lock(&stream_lock);
    if (!handle && !stream_default)
        stream_default = stream_new();
    pthread_mutex_unlock(&stream_lock);
    return handle ? handle : stream_default;
}

int ascend_put(void *stream, int (*run)(void *arg), void *arg)
{
    struct stream *s = stream_of(stream);
    struct task *task = calloc(1, sizeof(*task));

    *task = (struct task){.run = run, .arg = arg};
    pthread_mutex_lock(&stream_lock);
    *s->last = task;
    s->last = &task->next;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&stream_lock);
    return ascend_need_context();
}

CALL(aclrtCreateStream, void **stream)
{
    if (ascend_need_context())
        return ASCEND_NO_CONTEXT;
    *stream = stream_new();
    return 0;
}

/* Waits for the stream's tasks, then destroys it. */
CALL(aclrtDestroyStream, void *stream)
{
    struct stream *s = stream;

    pthread_mutex_lock(&stream_lock);
    s->closing = true;
    pthread_cond_signal(&s->wake);
    pthread_mutex_unlock(&stream_lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->wake);
    free(s);
    return 0;
}

CALL(aclrtSynchronizeStream, void *stream)
{
    struct stream *s = stream_of(stream);

    pthread_mutex_lock(&stream_lock);
    while (s->first || s->busy)
        pthread_cond_wait(&stream_changed, &stream_lock);
    pthread_mutex_unlock(&stream_lock);
    return s->error;
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
    int kind;
};

static int copy_run(void *arg)
{
    const struct copy *copy = arg;

    return ascend_copy(copy->to, copy->from, copy->bytes, copy->kind);
}

CALL(aclrtMemcpyAsync, void *to, size_t room, const void *from, size_t bytes, int kind,
     void *stream)
{
    struct copy *copy = malloc(sizeof(*copy));

    if (bytes > room)
        return ASCEND_INVALID;
    *copy = (struct copy){to, from, bytes, kind};
    return ascend_put(stream, copy_run, copy);
}

/* ---- events; a destroyed event is kept until no task refers to it ---- */

struct event {
    uint64_t records, done;
    int users;
};

struct mark {
    struct event *event;
    uint64_t record;
};

static void event_drop(struct event *event)
{
    if (--event->users == 0)
        free(event);
}

CALL(aclrtCreateEvent, void **event)
{
    struct event *e = calloc(1, sizeof(*e));

    e->users = 1;
    *event = e;
    return ascend_need_context();
}

CALL(aclrtDestroyEvent, void *event)
{
    pthread_mutex_lock(&stream_lock);
    event_drop(event);
    pthread_mutex_unlock(&stream_lock);
    return 0;
}

static struct mark *event_mark(struct event *event)
{
    struct mark *mark = malloc(sizeof(*mark));

    event->users++;
    *mark = (struct mark){event, event->records};
    return mark;
}

static int event_recorded(void *arg)
{
    struct mark *mark = arg;

    pthread_mutex_lock(&stream_lock);
    mark->event->done = mark->record;
    event_drop(mark->event);
    pthread_cond_broadcast(&stream_changed);
    pthread_mutex_unlock(&stream_lock);
    return 0;
}

CALL(aclrtRecordEvent, void *event, void *stream)
{
    struct mark *mark;

    pthread_mutex_lock(&stream_lock);
    ((struct event *)event)->records++;
    mark = event_mark(event);
    pthread_mutex_unlock(&stream_lock);
    return ascend_put(stream, event_recorded, mark);
}

CALL(aclrtQueryEventStatus, void *event, int *status_p)
{
    const struct event *e = event;

    if (ascend_need_context())
        return ASCEND_NO_CONTEXT;
    pthread_mutex_lock(&stream_lock);
    *status_p = e->records && e->done == e->records;
    pthread_mutex_unlock(&stream_lock);
    return 0;
}

static int event_waited(void *arg)
{
    struct mark *mark = arg;

    pthread_mutex_lock(&stream_lock);
    while (mark->event->done < mark->record)
        pthread_cond_wait(&stream_changed, &stream_lock);
    event_drop(mark->event);
    pthread_mutex_unlock(&stream_lock);
    return 0;
}

static void event_skip(const struct task *task)
{
    if (task->run == event_recorded || task->run == event_waited)
        event_drop(((struct mark *)task->arg)->event);
}

CALL(aclrtStreamWaitEvent, void *stream, void *event)
{
    struct mark *mark;

    pthread_mutex_lock(&stream_lock);
    mark = event_mark(event);
    pthread_mutex_unlock(&stream_lock);
    if (!mark->record)
        return ascend_error(ASCEND_INVALID, "the event was never recorded");
    return ascend_put(stream, event_waited, mark);
}
