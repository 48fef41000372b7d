/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: from a posted call to its place on a stream. */
#include "backends/nccl/nccl.h"
#include "base/clock.h"
#include "base/collective.h"

#include <stdlib.h>

/*
 * Sends and receives that are posted one by one wait so long for the next, unless the program waits
 * for one: in a group NCCL does them side by side, one after the other each would wait for its
 * peer's.
 */
#define POST_QUIET_NS (2000 * 1000)

void disti_nccl_queue_add(struct disti_nccl_queue *queue, struct disti_nccl_call *c)
{
    c->next = NULL;
    if (queue->first)
        queue->last->next = c;
    else
        queue->first = c;
    queue->last = c;
}

void disti_nccl_call_free(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    if (c->parcel)
        disti_nccl_call_free(nccl, c->parcel);
    disti_nccl_event_drop(nccl, c->end);
    disti_nccl_stage_free(c->stage);
    free(c);
}

/* Nothing is to be moved, and every rank concerned knows that. */
static bool post_is_empty(const struct dist_call *call)
{
    return call->count == 0 && call->collective != DIST_COLL_BARRIER &&
           !disti_collective_uneven(call->collective);
}

/* ---- after NCCL has it ---- */

dist_status disti_nccl_mark(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    dist_status status;
    int error;

    if (c->captured) {
        c->ticket->own = NULL;
        c->ticket->status = DIST_OK;
        disti_nccl_call_free(nccl, c);
        return DIST_OK;
    }
    disti_nccl_queue_add(&nccl->issued, c);
    status = disti_nccl_event_take(nccl, &c->end);
    if (status != DIST_OK)
        return status;
    error = nccl->driver->event_record(c->end, c->stream);
    return error ? disti_nccl_driver_fail(nccl, error, "mark the end of a call") : DIST_OK;
}

static dist_status post_mark_all(struct disti_nccl_state *nccl, struct disti_nccl_call *calls)
{
    dist_status status = DIST_OK;

    while (calls) {
        struct disti_nccl_call *c = calls;

        calls = c->next;
        if (status == DIST_OK)
            status = disti_nccl_mark(nccl, c);
        else
            disti_nccl_call_free(nccl, c);
    }
    return status;
}

/* Hands calls to NCCL as one group. Frees them if that fails: the core then ends the group. */
static dist_status post_start(struct disti_nccl_state *nccl, struct disti_nccl_call *calls)
{
    dist_status status = disti_nccl_issue(nccl, calls);

    if (status == DIST_OK)
        return post_mark_all(nccl, calls);
    while (calls) {
        struct disti_nccl_call *c = calls;

        calls = c->next;
        disti_nccl_call_free(nccl, c);
    }
    return status;
}

/* ---- held calls ---- */

/* NCCL's groups are captured as a whole or not at all. */
static struct disti_nccl_call *post_take(struct disti_nccl_queue *held, bool captured)
{
    struct disti_nccl_queue kept = {0}, taken = {0};
    struct disti_nccl_call *c;

    while ((c = held->first)) {
        held->first = c->next;
        disti_nccl_queue_add(c->captured == captured ? &taken : &kept, c);
    }
    *held = kept;
    return taken.first;
}

dist_status disti_nccl_flush(struct disti_nccl_state *nccl)
{
    struct disti_nccl_call *direct = post_take(&nccl->held, false);
    struct disti_nccl_call *captured = post_take(&nccl->held, true);
    dist_status status = direct ? post_start(nccl, direct) : DIST_OK;

    if (captured && status == DIST_OK)
        status = post_start(nccl, captured);
    return status;
}

/* Sends and receives may wait for more of their kind; a stream that is captured ends unseen. */
static bool post_can_wait(const struct disti_nccl_state *nccl, const struct disti_nccl_call *c)
{
    return nccl->batch ||
           (disti_collective_pair(c->call.collective) && !c->call.waits && !c->captured);
}

static dist_status post_enqueue(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    dist_status status = DIST_OK;

    /* Pairs join what is held; a collective comes after it. */
    if (!nccl->batch && !disti_collective_pair(c->call.collective))
        status = disti_nccl_flush(nccl);
    if (status != DIST_OK) {
        disti_nccl_call_free(nccl, c);
        return status;
    }
    disti_nccl_queue_add(&nccl->held, c);
    nccl->quiet_ns = disti_now_ns() + POST_QUIET_NS;
    return post_can_wait(nccl, c) ? DIST_OK : disti_nccl_flush(nccl);
}

/* ---- posting ---- */

/* What the host waits for has no place on the program's stream, but may use what that makes. */
static bool post_follows(const struct disti_nccl_state *nccl, const struct dist_call *call)
{
    int status = 0;

    if (call->memory == DIST_MEMORY_DEVICE)
        return true;
    return (call->memory == DIST_MEMORY_MIXED || call->collective == DIST_COLL_BARRIER) &&
           nccl->driver->stream_capturing(call->stream, &status) == 0 && status == 0;
}

/* Which stream, and what comes before the call there. */
static dist_status post_choose_stream(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    const struct dist_call *call = &c->call;

    c->stream = nccl->gpu->stream;
    if (call->memory == DIST_MEMORY_DEVICE && call->collective != DIST_COLL_BARRIER) {
        c->captured = disti_nccl_capturing(nccl, call->stream);
        if (c->captured || call->waits)
            c->stream = call->stream;
    }
    if (c->stream == call->stream || !post_follows(nccl, call))
        return DIST_OK;
    return disti_nccl_follow(nccl, c->stream, call->stream);
}

static dist_status post_call(struct disti_nccl_state *nccl, struct disti_nccl_call *c)
{
    dist_status status = post_choose_stream(nccl, c);

    if (status == DIST_OK && disti_nccl_stage_needed(&c->call))
        status = disti_nccl_stage_in(nccl, c);
    if (status != DIST_OK) {
        disti_nccl_call_free(nccl, c);
        return status;
    }
    if (disti_collective_pair(c->call.collective) && c->call.root == nccl->rank)
        return disti_nccl_self(nccl, c);
    return post_enqueue(nccl, c);
}

dist_status disti_nccl_post(void *state, const struct dist_call *call, struct dist_ticket *ticket)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    struct disti_nccl_call *c;
    dist_status status;

    /* Where it comes from is known, and on a stream nobody waits for the end to read it. */
    if (call->collective == DIST_COLL_RECV)
        *call->source = call->root;
    if (post_is_empty(call)) {
        ticket->status = DIST_OK;
        return DIST_OK;
    }
    c = calloc(1, sizeof(*c));
    if (!c)
        return disti_nccl_no_memory(nccl);
    c->call = *call;
    c->ticket = ticket;
    ticket->own = c;
    if (!disti_nccl_enter(nccl->gpu, &visit)) {
        free(c);
        return disti_nccl_no_device(nccl);
    }
    status = post_call(nccl, c);
    disti_nccl_exit(nccl->gpu, &visit);
    return status;
}

dist_status disti_nccl_join(void *state, struct dist_ticket *ticket, void *stream)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    struct disti_nccl_call *c;
    dist_status status;
    int error;

    if (!disti_nccl_enter(nccl->gpu, &visit))
        return disti_nccl_no_device(nccl);
    status = disti_nccl_flush(nccl);
    c = ticket->own; /* NULL: it has just ended */
    if (status == DIST_OK && c && !c->end)
        status = nccl->host->fail(
            DIST_ERR_INVALID_ARGUMENT,
            "rank %d waits to receive from itself before it has sent: send first", nccl->rank);
    if (status == DIST_OK && c) {
        error = nccl->driver->stream_wait(stream, c->end, 0);
        status =
            error ? disti_nccl_driver_fail(nccl, error, "wait for a work on a stream") : DIST_OK;
    }
    disti_nccl_exit(nccl->gpu, &visit);
    return status;
}

dist_status disti_nccl_batch(void *state, bool begin)
{
    struct disti_nccl_state *nccl = state;
    struct disti_nccl_visit visit;
    dist_status status;

    nccl->batch = begin;
    if (begin || !nccl->held.first)
        return DIST_OK;
    if (!disti_nccl_enter(nccl->gpu, &visit))
        return disti_nccl_no_device(nccl);
    status = disti_nccl_flush(nccl);
    disti_nccl_exit(nccl->gpu, &visit);
    return status;
}
