/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backend hccl: a collective in the group's thread.
 *
 * If no buffer is in host memory, the thread puts these on a stream, and continues without waiting:
 *
 *     1. a wait for the work on the program's stream, unless the call runs on that stream
 *     2. a copy of the input, if the buffers overlap
 *     3. HCCL's call
 *     4. an event
 *
 * If a buffer is in host memory, the thread copies the input to the device before step 3. After
 * step 4 it waits for the event and copies the output to the host. It runs no other call meanwhile.
 */
#include "hccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Interval between checks of HCCL for errors. */
#define CALL_CHECK_NS (10 * 1000 * 1000)

static void call_fail(struct hccl_group *g, struct hccl_call *c, bool runtime, int error,
                      const char *what)
{
    dist_status status = DIST_ERR_SYSTEM;
    char text[256];

    if (!runtime && error == HCCL_E_TIMEOUT)
        status = DIST_ERR_TIMEOUT;
    if (!runtime && (error == HCCL_E_TCP_CONNECT || error == HCCL_E_TCP_TRANSFER ||
                     error == HCCL_E_ROCE_TRANSFER || error == HCCL_E_REMOTE))
        status = DIST_ERR_PEER_LOST;
    hccl_explain(g->api, runtime, error, text, sizeof(text));
    hccl_job_fail(&c->job, status, "rank %d, %s (operation %llu) on device %d: %s: %s", g->rank,
                  g->host->collective_string(c->call.collective),
                  (unsigned long long)c->call.sequence, g->device, what, text);
}

/* ---- events ---- */

void hccl_retire(struct hccl_group *g, void *event)
{
    void **place = &g->retired[g->retirements % HCCL_RETIRED];

    if (!event)
        return;
    if (g->retirements++ >= HCCL_RETIRED)
        g->api->acl.event_destroy(*place);
    *place = event;
}

void *hccl_event(struct hccl_group *g, void *stream, int *error_p)
{
    void *event = NULL;

    if (g->api->acl.event_create_ex)
        *error_p =
            g->api->acl.event_create_ex(&event, HCCL_ACL_EVENT_SYNC | HCCL_ACL_EVENT_PROGRESS);
    else
        *error_p = g->api->acl.event_create(&event);
    if (*error_p)
        return NULL;
    *error_p = g->api->acl.event_record(event, stream);
    if (*error_p) {
        g->api->acl.event_destroy(event);
        return NULL;
    }
    return event;
}

/* Makes subsequent work on `later` wait for the current work on `earlier`. */
static int call_follow(struct hccl_group *g, void *later, void *earlier)
{
    int error = 0;
    void *event = later == earlier ? NULL : hccl_event(g, earlier, &error);

    if (event)
        error = g->api->acl.stream_wait(later, event);
    hccl_retire(g, event);
    return error;
}

/* ---- copies ---- */

/* Copies the blocks of one buffer between host and device; synchronous. */
static int call_copy(struct hccl_group *g, const struct hccl_call *c, const struct hccl_side *side,
                     bool in)
{
    size_t element = g->host->dtype_size(c->call.dtype), offset, count;
    int error = 0;

    for (size_t i = 0; i < side->blocks.blocks && !error; i++) {
        hccl_block(&side->blocks, i, &offset, &count);
        if (!count)
            continue;
        offset *= element;
        count *= element;
        error = in ? g->api->acl.memcpy(side->device + offset, count, side->user + offset, count,
                                        HCCL_ACL_TO_DEVICE)
                   : g->api->acl.memcpy(side->user + offset, count, side->device + offset, count,
                                        HCCL_ACL_TO_HOST);
    }
    return error;
}

/*
 * True if the two buffers, both in device memory, overlap, as in an in-place all-gather. HCCL's
 * documentation does not say whether it supports this, so the caller copies `in` to other memory.
 * False for all-reduce, reduce and broadcast: for these, `in` and `out` may be the same buffer.
 */
static bool call_overlaps(const struct hccl_call *c)
{
    const struct hccl_side *in = &c->in, *out = &c->out;

    if (!in->on_device || !out->on_device || c->call.collective == DIST_COLL_ALL_REDUCE ||
        c->call.collective == DIST_COLL_REDUCE || c->call.collective == DIST_COLL_BROADCAST)
        return false;
    return in->user < out->user + out->bytes && out->user < in->user + in->bytes;
}

static bool call_prepare_side(struct hccl_group *g, struct hccl_side *side, bool copies_input)
{
    side->device = side->user;
    if (!side->on_host && !copies_input)
        return true;
    side->region = hccl_region_acquire(g, side->bytes);
    side->device = side->region ? side->region->memory : NULL;
    return side->region != NULL;
}

/* True if this rank's input is read. */
static bool call_reads_input(const struct hccl_group *g, const struct hccl_call *c)
{
    return c->call.collective != DIST_COLL_BROADCAST || c->call.root == g->rank;
}

/* HCCL requires an address even for a buffer that is empty or that this rank does not have:
 * allocates memory for it. False: out of memory. */
static bool call_prepare_spare(struct hccl_group *g, struct hccl_call *c)
{
    size_t bytes = c->in.bytes > c->out.bytes ? c->in.bytes : c->out.bytes;

    if (c->call.collective == DIST_COLL_BARRIER ||
        (c->in.device && c->out.device && c->call.collective != DIST_COLL_REDUCE_SCATTER_V))
        return true;
    c->spare = hccl_region_acquire(g, bytes);
    if (c->spare && !c->in.device)
        c->in.device = c->spare->memory;
    if (c->spare && !c->out.device)
        c->out.device = c->spare->memory;
    return c->spare != NULL;
}

/* Provides device memory for the call's buffers. A broadcast has only one buffer. False after an
 * error. */
static bool call_prepare(struct hccl_group *g, struct hccl_call *c, bool copies_input)
{
    bool ready = call_prepare_side(g, &c->out, false);

    if (ready && c->call.collective == DIST_COLL_BROADCAST)
        c->in.device = c->out.device;
    else
        ready = ready && call_prepare_side(g, &c->in, copies_input);
    ready = ready && call_prepare_spare(g, c);
    if (!ready)
        hccl_job_fail(&c->job, DIST_ERR_NO_MEMORY,
                      "rank %d, %s: device %d is out of memory for a copy of %zu and %zu bytes",
                      g->rank, g->host->collective_string(c->call.collective), g->device,
                      c->in.bytes, c->out.bytes);
    return ready;
}

static int call_copy_in(struct hccl_group *g, struct hccl_call *c, bool copies_input)
{
    if (copies_input)
        return g->api->acl.memcpy_async(c->in.device, c->in.bytes, c->in.user, c->in.bytes,
                                        HCCL_ACL_WITHIN, c->stream);
    return c->in.on_host && call_reads_input(g, c) ? call_copy(g, c, &c->in, true) : 0;
}

/* ---- issue on a stream ---- */

/*
 * Chooses the stream: the program's, if the call requests it. Makes it wait for the program's
 * stream and for the previous call.
 */
static int call_place(struct hccl_group *g, struct hccl_call *c)
{
    bool follows = c->in.on_device || c->out.on_device || c->call.collective == DIST_COLL_BARRIER;
    int error = 0;

    c->stream = c->on_stream && c->call.waits ? c->call.stream : g->stream;
    if (follows)
        error = call_follow(g, c->stream, c->call.stream);
    if (!error && g->newest && g->newest->stream != c->stream)
        error = g->api->acl.stream_wait(c->stream, g->newest->end);
    return error;
}

static bool call_submit(struct hccl_group *g, struct hccl_call *c)
{
    bool copies_input = call_overlaps(c);
    const char *what = "";
    int error;

    if (!call_prepare(g, c, copies_input))
        return false;
    error = call_place(g, c);
    if (!error)
        error = call_copy_in(g, c, copies_input);
    if (error) {
        call_fail(g, c, true, error, "copying the input");
        return false;
    }
    error = hccl_issue(g, c, &what);
    if (error) {
        call_fail(g, c, false, error, what);
        return false;
    }
    c->end = hccl_event(g, c->stream, &error);
    if (error)
        call_fail(g, c, true, error, "aclrtRecordEvent");
    return error == 0;
}

/* Returns 1 if the device has completed the call, 0 if not yet, a negative value if it failed. */
static int call_query(struct hccl_group *g, struct hccl_call *c)
{
    int recorded = 0, wrong = 0, error = g->api->acl.event_status(c->end, &recorded);

    if (error) {
        call_fail(g, c, true, error, "aclrtQueryEventStatus");
        return -1;
    }
    if (recorded == HCCL_ACL_RECORDED || !g->comm || hccl_now_ns() < g->next_check_ns)
        return recorded == HCCL_ACL_RECORDED;
    g->next_check_ns = hccl_now_ns() + CALL_CHECK_NS;
    if (!g->api->comm_error || g->api->comm_error(g->comm, &wrong) || !wrong)
        return 0;
    call_fail(g, c, false, wrong, "HCCL reports");
    return -1;
}

void hccl_call_clear(struct hccl_group *g, struct hccl_call *c)
{
    void *end;

    pthread_mutex_lock(&g->lock); /* hccl_join may be using the event */
    end = c->end;
    c->end = NULL;
    pthread_mutex_unlock(&g->lock);
    hccl_retire(g, end);
    hccl_region_release(g, c->in.region);
    hccl_region_release(g, c->out.region);
    hccl_region_release(g, c->spare);
    free(c->arrays);
    c->arrays = NULL;
    c->in.region = c->out.region = c->spare = NULL;
    if (g->newest == c)
        g->newest = NULL;
}

static void call_end(struct hccl_group *g, struct hccl_call *c)
{
    int error = 0;

    if (c->job.status == DIST_OK && c->out.on_host &&
        (c->call.collective != DIST_COLL_BROADCAST || !call_reads_input(g, c)))
        error = call_copy(g, c, &c->out, false);
    if (error)
        call_fail(g, c, true, error, "copying the output to the host");
    hccl_call_clear(g, c);
    hccl_job_reach(g, &c->job, HCCL_DONE);
}

static void call_sleep(struct timespec *interval)
{
    nanosleep(interval, NULL);
    if (interval->tv_nsec < 500 * 1000)
        interval->tv_nsec *= 2;
}

/*
 * Completes a call on host memory. The thread starts the next call only afterwards, because both
 * calls may use the same memory.
 */
static void call_finish(struct hccl_group *g, struct hccl_call *c)
{
    struct timespec interval = {.tv_nsec = 5 * 1000};
    int done = 0;

    while (g->issued && !hccl_stopped(g)) {
        if (!hccl_call_poll(g))
            call_sleep(&interval);
    }
    while (!hccl_stopped(g) && (done = call_query(g, c)) == 0)
        call_sleep(&interval);
    if (done)
        call_end(g, c);
    else
        hccl_call_clear(g, c);
}

void hccl_call_run(struct hccl_group *g, struct hccl_job *job)
{
    struct hccl_call *c = (struct hccl_call *)job;
    bool on_host = c->in.on_host || c->out.on_host;

    if (!call_submit(g, c)) {
        hccl_call_clear(g, c);
        hccl_job_reach(g, job, HCCL_FAILED);
        return;
    }
    g->newest = c;
    if (!on_host) {
        *g->issued_end = c;
        g->issued_end = &c->next_issued;
    }
    hccl_job_reach(g, job, HCCL_ISSUED);
    if (on_host)
        call_finish(g, c);
}

bool hccl_call_poll(struct hccl_group *g)
{
    struct hccl_call *c = g->issued;
    bool moved = false;

    while (c && call_query(g, c) != 0) {
        g->issued = c->next_issued;
        call_end(g, c);
        c = g->issued;
        moved = true;
    }
    if (!g->issued)
        g->issued_end = &g->issued;
    return moved;
}
