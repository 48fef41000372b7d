/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend hccl: the functions that libdist calls. */
#include "hccl.h"

#include <stdlib.h>

static dist_status backend_probe(char *reason, size_t reason_size)
{
    return hccl_load(reason, reason_size) ? DIST_OK : DIST_ERR_NO_BACKEND;
}

/* Collectives without a reduction support any type, because they move bytes. */
static dist_status backend_query(const void *state, dist_collective collective, dist_dtype dtype,
                                 dist_op op)
{
    (void)state;
    if ((unsigned)collective >= DIST_COLL_COUNT)
        return DIST_ERR_UNSUPPORTED;
    switch (collective) {
    case DIST_COLL_ALL_REDUCE:
    case DIST_COLL_REDUCE:
    case DIST_COLL_REDUCE_SCATTER:
    case DIST_COLL_REDUCE_SCATTER_V:
        return hccl_dtype(dtype) != HCCL_TYPE_NONE && hccl_op(op, dtype) != HCCL_OP_NONE
                   ? DIST_OK
                   : DIST_ERR_UNSUPPORTED;
    default:
        return DIST_OK;
    }
}

static bool backend_is_pair(const struct dist_call *call)
{
    return call->collective == DIST_COLL_SEND || call->collective == DIST_COLL_RECV;
}

static void backend_side(const struct hccl_group *g, const struct dist_call *call,
                         const void *memory, const struct hccl_blocks *blocks,
                         struct hccl_side *side_p)
{
    *side_p = (struct hccl_side){.blocks = *blocks};
    side_p->bytes = hccl_extent(blocks) * g->host->dtype_size(call->dtype);
    if (side_p->bytes)
        side_p->user = (char *)(uintptr_t)memory;
    side_p->on_device = side_p->bytes && hccl_is_device(g, memory);
    side_p->on_host = side_p->bytes && !side_p->on_device;
}

static void backend_sides(const struct hccl_group *g, const struct dist_call *call,
                          struct hccl_side *in_p, struct hccl_side *out_p)
{
    struct hccl_blocks in, out;

    hccl_shape(call, g->rank, g->ranks, &in, &out);
    backend_side(g, call, call->in, &in, in_p);
    backend_side(g, call, call->out, &out, out_p);
}

/* Returns STREAM if all memory is on the device, HOST if any memory is on the host. */
static dist_manner backend_manner(const void *state, const struct dist_call *call)
{
    const struct hccl_state *s = state;
    struct hccl_side in, out;

    if (backend_is_pair(call) || !s->group)
        return DIST_MANNER_HOST;
    backend_sides(s->group, call, &in, &out);
    return (in.on_device || out.on_device) && !in.on_host && !out.on_host ? DIST_MANNER_STREAM
                                                                          : DIST_MANNER_HOST;
}

/* ---- calls ---- */

static void backend_add(struct hccl_state *s, struct hccl_call *c)
{
    struct hccl_call **link = &s->calls;

    while (*link)
        link = &(*link)->next;
    *link = c;
}

static dist_status backend_post(void *state, const struct dist_call *call,
                                struct dist_ticket *ticket)
{
    struct hccl_state *s = state;
    struct hccl_call *c;
    dist_status status = DIST_OK;

    if (backend_is_pair(call))
        return hccl_pair_post(s, call, ticket);
    if (hccl_is_empty(call)) {
        ticket->status = DIST_OK;
        return DIST_OK;
    }
    c = calloc(1, sizeof(*c));
    if (!c)
        return s->host->fail(DIST_ERR_NO_MEMORY, "rank %d is out of memory for a call",
                             s->group->rank);
    c->job.run = hccl_call_run;
    c->call = *call;
    c->ticket = ticket;
    ticket->own = c;
    backend_sides(s->group, call, &c->in, &c->out);
    c->on_stream = (c->in.on_device || c->out.on_device) && !c->in.on_host && !c->out.on_host;
    backend_add(s, c);
    hccl_enqueue(s->group, &c->job);
    if (c->on_stream && call->waits) {
        status = hccl_wait(s->group, &c->job, HCCL_ISSUED);
        if (status != DIST_OK)
            c->ticket = NULL; /* the core frees it when post fails */
    }
    return status;
}

/* Removes completed calls. A failure ends the group. */
static int backend_collectives(struct hccl_state *s)
{
    struct hccl_call **link = &s->calls, *c;
    int moved = 0;

    while ((c = *link)) {
        int stage = atomic_load(&c->job.stage);

        if (stage == HCCL_FAILED)
            return s->host->fail(c->job.status, "%s", c->job.text);
        if (stage != HCCL_DONE) {
            link = &c->next;
            continue;
        }
        *link = c->next;
        if (c->ticket) {
            c->ticket->own = NULL;
            c->ticket->status = DIST_OK;
        }
        free(c);
        moved++;
    }
    return moved;
}

static int backend_progress(void *state)
{
    struct hccl_state *s = state;
    int engine, pairs, collectives;

    if (!s->engine)
        return 0;
    engine = s->host->engine_progress(s->engine);
    if (engine < 0)
        return engine;
    pairs = s->pairs ? hccl_pair_progress(s) : 0;
    if (pairs < 0)
        return pairs;
    collectives = backend_collectives(s);
    return collectives < 0 ? collectives : engine + pairs + collectives;
}

static dist_status backend_join(void *state, struct dist_ticket *ticket, void *stream)
{
    struct hccl_state *s = state;
    struct hccl_call *c = ticket->own;
    dist_status status;
    void *previous;
    int error = 0;

    if (!c)
        return DIST_OK;
    status = hccl_wait(s->group, &c->job, HCCL_ISSUED);
    if (status != DIST_OK)
        return status;
    if (!hccl_enter(s->group, &previous))
        return s->host->fail(DIST_ERR_SYSTEM, "rank %d cannot use device %d", s->group->rank,
                             s->group->device);
    pthread_mutex_lock(
        &s->group->lock); /* protects the event, which exists until the call has completed */
    if (c->end)
        error = s->group->api->acl.stream_wait(stream, c->end);
    pthread_mutex_unlock(&s->group->lock);
    hccl_leave(s->group, previous);
    return error ? s->host->fail(DIST_ERR_SYSTEM,
                                 "rank %d: aclrtStreamWaitEvent failed: runtime error %d",
                                 s->group->rank, error)
                 : DIST_OK;
}

static void backend_describe(const void *state, char *text, size_t size)
{
    const struct hccl_state *s = state;

    if (size)
        text[0] = '\0';
    if (s->engine && !s->calls)
        s->host->engine_describe(s->engine, text, size);
}

/* ---- end of the group ---- */

static void backend_leave(struct hccl_state *s)
{
    struct hccl_call *c;

    if (s->engine)
        s->host->engine_close(s->engine);
    s->engine = NULL;
    hccl_pair_drop(s);
    if (!s->group || s->is_stopping)
        return;
    s->is_stopping = true;
    s->thread_lost = !hccl_end(s->group);
    if (s->thread_lost)
        s->host->log(DIST_LOG_WARN,
                     "rank %d: HCCL does not return on device %d: its thread is abandoned",
                     s->group->rank, s->group->device);
    while (!s->thread_lost && (c = s->calls)) {
        s->calls = c->next;
        free(c);
    }
    s->calls = NULL;
}

/* Keeps the group for memory that is freed later. */
static void backend_abort(void *state)
{
    backend_leave(state);
}

static void backend_close(void *state)
{
    struct hccl_state *s = state;

    backend_leave(s);
    if (s->group && !s->thread_lost) {
        pthread_cond_destroy(&s->group->changed);
        pthread_mutex_destroy(&s->group->lock);
        free(s->group);
    }
    s->group = NULL;
}

static const struct dist_backend backend_hccl = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_backend),
    .name = "hccl",
    .summary = "Ascend's HCCL, on memory of its devices",
    .state_size = sizeof(struct hccl_state),
    .probe = backend_probe,
    .query = backend_query,
    .open = hccl_open,
    .close = backend_close,
    .post = backend_post,
    .progress = backend_progress,
    .abort = backend_abort,
    .describe = backend_describe,
    .alloc = hccl_alloc,
    .free = hccl_free,
    .lacks = DIST_LACKS_NAN,
    .manner = backend_manner,
    .join = backend_join,
};

__attribute__((visibility("default"))) extern const struct dist_module dist_module_entry;
const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .backend = &backend_hccl,
};
