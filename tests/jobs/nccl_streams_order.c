/* SPDX-License-Identifier: BSD-3-Clause */
/* Cases of nccl_streams: collectives and the work before and after them on the streams. */
#include "nccl_streams.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

#define LIMIT_S 15

/* Blocking calls: they read the results of earlier work of the stream; later work reads their
 * results and cannot change their input. */
void streams_blocking(const struct streams *s)
{
    float *x = streams_vector(s, COUNT), *copy = streams_vector(s, COUNT);

    for (int round = 0; round < 5; round++) {
        streams_fill(s, x, COUNT, (float)(s->rank + 1 + round), s->a);
        DONE(dist_all_reduce(s->group, x, x, COUNT, DIST_FLOAT32, DIST_SUM));
        CHECK(s->driver->copy_within((uintptr_t)copy, (uintptr_t)x, COUNT * sizeof(float), s->a) ==
              0);
        streams_fill(s, x, COUNT, -1, s->a);
        CHECK(streams_is(s, copy, COUNT, streams_sum(s) + (float)(round * s->ranks),
                         (float)s->ranks, s->a));
        CHECK(streams_is(s, x, COUNT, -1, 1, s->a));
    }
    streams_drop(s, x);
    streams_drop(s, copy);
}

/* An asynchronous call begins after the stream's earlier work, and work after dist_wait begins
 * after the call. */
void streams_async(const struct streams *s)
{
    float *in[4], *out[4];
    dist_work *works[4];

    for (int i = 0; i < 4; i++) {
        in[i] = streams_vector(s, COUNT);
        out[i] = streams_vector(s, COUNT);
        for (int k = 3; k >= 0; k--) /* the last value counts */
            streams_fill(s, in[i], COUNT, (float)((s->rank + 1) * (i + 1) + k), s->a);
        DONE(dist_all_reduce_async(s->group, in[i], out[i], COUNT, DIST_FLOAT32, DIST_SUM,
                                   &works[i]));
    }
    for (int i = 3; i >= 0; i--) {
        DONE(dist_wait(works[i]));
        streams_fill(s, in[i], COUNT, -1, s->a); /* the old values have been read already */
        CHECK(streams_is(s, out[i], COUNT, streams_sum(s) * (float)(i + 1), (float)s->ranks, s->a));
        streams_drop(s, in[i]);
        streams_drop(s, out[i]);
    }
}

/* If dist_test reports completion the device has finished, whatever stream reads the result. */
void streams_tested(const struct streams *s)
{
    float *x = streams_vector(s, COUNT);
    time_t start = time(NULL);
    bool done = false;
    dist_work *work;

    streams_fill(s, x, COUNT, (float)(s->rank + 1), s->a);
    DONE(dist_all_reduce_async(s->group, x, x, COUNT, DIST_FLOAT32, DIST_SUM, &work));
    while (!done && time(NULL) - start < LIMIT_S)
        DONE(dist_test(work, &done));
    CHECK(done);
    CHECK(streams_is(s, x, COUNT, streams_sum(s), (float)s->ranks, s->b));
    DONE(dist_wait(work));
    streams_drop(s, x);
}

/* Calls on two streams in turn. */
void streams_two(const struct streams *s)
{
    float *x = streams_vector(s, COUNT), *y = streams_vector(s, COUNT);

    for (int round = 0; round < 4; round++) {
        streams_fill(s, x, COUNT, (float)(s->rank + 1), s->a);
        DONE(dist_all_reduce(s->group, x, x, COUNT, DIST_FLOAT32, DIST_SUM));
        streams_fill(s, y, COUNT, (float)(2 * (s->rank + 1)), s->b);
        DONE(dist_set_stream(s->group, s->b));
        DONE(dist_all_reduce(s->group, y, y, COUNT, DIST_FLOAT32, DIST_SUM));
        DONE(dist_set_stream(s->group, s->a));
        CHECK(streams_is(s, y, COUNT, 2 * streams_sum(s), (float)s->ranks, s->b));
        CHECK(streams_is(s, x, COUNT, streams_sum(s), (float)s->ranks, s->a));
    }
    streams_drop(s, x);
    streams_drop(s, y);
}

/* When a barrier returns, every rank's stream has completed the work that preceded the call. */
void streams_barrier(const struct streams *s)
{
    float *x = streams_vector(s, COUNT);
    void *event;

    CHECK(s->driver->event_create(&event, DISTI_DRIVER_EVENT_NO_TIMING) == 0);
    for (int i = 0; i < 3 * (s->rank + 1); i++)
        streams_fill(s, x, COUNT, (float)i, s->a);
    CHECK(s->driver->event_record(event, s->a) == 0);
    DONE(dist_barrier(s->group));
    CHECK(s->driver->event_query(event) == 0);
    CHECK(s->driver->event_destroy(event) == 0);
    streams_drop(s, x);
}

/* A second group beside the first: their requests do not wait for each other. */
void streams_groups(const struct streams *s)
{
    float *x = streams_vector(s, COUNT), *y = streams_vector(s, COUNT);
    dist_work *first, *second;
    dist_group *other;

    DONE(dist_dup_group(s->group, NULL, &other));
    DONE(dist_set_stream(other, s->b));
    streams_fill(s, x, COUNT, (float)(s->rank + 1), s->a);
    streams_fill(s, y, COUNT, (float)(s->rank + 1), s->b);
    DONE(dist_all_reduce_async(s->group, x, x, COUNT, DIST_FLOAT32, DIST_SUM, &first));
    DONE(dist_all_reduce_async(other, y, y, COUNT, DIST_FLOAT32, DIST_MAX, &second));
    DONE(dist_wait(second));
    CHECK(streams_is(s, y, COUNT, (float)s->ranks, 1, s->b));
    DONE(dist_wait(first));
    CHECK(streams_is(s, x, COUNT, streams_sum(s), (float)s->ranks, s->a));
    DONE(dist_destroy_process_group(other));
    streams_drop(s, x);
    streams_drop(s, y);
}

/* Groups of one or two ranks; each continues to use its device and stream. */
void streams_subgroups(const struct streams *s)
{
    int first = s->rank / 2 * 2, last = first + 1 < s->ranks ? first + 1 : first;
    float *x = streams_vector(s, COUNT), sum = 0;
    dist_group *pair;

    for (int r = first; r <= last; r++)
        sum += (float)(r + 1);
    DONE(dist_split_group(s->group, first, 0, NULL, &pair));
    streams_fill(s, x, COUNT, (float)(s->rank + 1), s->a);
    DONE(dist_all_reduce(pair, x, x, COUNT, DIST_FLOAT32, DIST_SUM));
    CHECK(streams_is(s, x, COUNT, sum, (float)(last - first + 1), s->a));
    DONE(dist_destroy_process_group(pair));
    streams_drop(s, x);
}

/* ---- graphs: functions of the driver that the library does not use ---- */

struct graphs {
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*instantiate)(void **exec, void *graph, unsigned long long flags);
    int (*launch)(void *exec, void *stream);
    int (*destroy)(void *graph);
    int (*exec_destroy)(void *exec);
};

static bool graphs_find(const struct streams *s, struct graphs *graphs_p)
{
    const bool cuda = strcmp(s->driver->name, "CUDA") == 0;
    const char *const names[] = {
        cuda ? "cuStreamBeginCapture_v2" : "hipStreamBeginCapture",
        cuda ? "cuStreamEndCapture" : "hipStreamEndCapture",
        cuda ? "cuGraphInstantiateWithFlags" : "hipGraphInstantiateWithFlags",
        cuda ? "cuGraphLaunch" : "hipGraphLaunch",
        cuda ? "cuGraphDestroy" : "hipGraphDestroy",
        cuda ? "cuGraphExecDestroy" : "hipGraphExecDestroy",
    };
    void *handle = dlopen(s->driver->file, RTLD_NOW | RTLD_LOCAL), *symbols[6];

    for (int i = 0; i < 6; i++) {
        symbols[i] = handle ? dlsym(handle, names[i]) : NULL;
        if (!symbols[i])
            return false;
    }
    memcpy(graphs_p, symbols, sizeof(symbols));
    return true;
}

/* Captures, in the strictest mode: x = sum of x, y = sum of x by an async call. */
static void *graphs_capture(const struct streams *s, const struct graphs *graphs, float *x,
                            float *y)
{
    void *graph, *exec;
    dist_work *work;

    CHECK(graphs->begin(s->a, 0) == 0);
    DONE(dist_all_reduce(s->group, x, x, COUNT, DIST_FLOAT32, DIST_SUM));
    DONE(dist_all_reduce_async(s->group, x, y, COUNT, DIST_FLOAT32, DIST_SUM, &work));
    DONE(dist_wait(work));
    streams_sleep_us(10000);
    CHECK(graphs->end(s->a, &graph) == 0);
    CHECK(graphs->instantiate(&exec, graph, 0) == 0);
    CHECK(graphs->destroy(graph) == 0);
    return exec;
}

/*
 * Capturing executes nothing; each launch executes all calls. Meanwhile the library tests a request
 * that is in progress, which must not invalidate the capture.
 */
void streams_captured(const struct streams *s)
{
    float *x = streams_vector(s, COUNT), *y = streams_vector(s, COUNT),
          *z = streams_vector(s, COUNT);
    float sum = streams_sum(s), ranks = (float)s->ranks;
    struct graphs graphs;
    dist_work *work;
    void *exec;

    CHECK(graphs_find(s, &graphs));
    streams_fill(s, x, COUNT, (float)(s->rank + 1), s->a);
    streams_fill(s, z, COUNT, (float)(s->rank + 1), s->a);
    if (s->rank == s->ranks - 1) /* the other ranks wait for it, and capture */
        streams_sleep_us(50000);
    DONE(dist_all_reduce_async(s->group, z, z, COUNT, DIST_FLOAT32, DIST_SUM, &work));
    exec = graphs_capture(s, &graphs, x, y);
    DONE(dist_wait(work));
    CHECK(streams_is(s, z, COUNT, sum, ranks, s->a));
    CHECK(streams_is(s, x, COUNT, (float)(s->rank + 1), 1, s->a));
    for (int i = 0; i < 3; i++)
        CHECK(graphs.launch(exec, s->a) == 0);
    CHECK(streams_is(s, x, COUNT, sum * ranks * ranks, ranks * ranks * ranks, s->a));
    CHECK(
        streams_is(s, y, COUNT, sum * ranks * ranks * ranks, ranks * ranks * ranks * ranks, s->a));
    CHECK(graphs.exec_destroy(exec) == 0);
    streams_fill(s, x, COUNT, (float)(s->rank + 1), s->a);
    DONE(dist_all_reduce(s->group, x, x, COUNT, DIST_FLOAT32, DIST_SUM)); /* not captured */
    CHECK(streams_is(s, x, COUNT, sum, ranks, s->a));
    streams_drop(s, x);
    streams_drop(s, y);
    streams_drop(s, z);
}
