/* SPDX-License-Identifier: BSD-3-Clause */
/* Tasks: what a call needs before its first step, and after its last. */
#include "base/checked.h"
#include "base/collective.h"
#include "base/dtype.h"
#include "base/kernels/sink.h"
#include "base/log.h"
#include "engine/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The arrows of the drawing in state.h, by where they begin. */
static const uint8_t task_arrows[] = {
    [TASK_IDLE] = 1 << TASK_POSTED,
    [TASK_POSTED] = 1 << TASK_RUNS,
    [TASK_RUNS] = 1 << TASK_IDLE,
};

dist_status disti_task_go(struct engine_task *task, enum engine_task_state to)
{
    if (!(task_arrows[task->state] & 1 << to))
        return disti_fail(DIST_ERR_INTERNAL, "a task cannot go from state %d to %d",
                          (int)task->state, (int)to);
    task->state = to;
    return DIST_OK;
}

/* ---- memory ---- */

static dist_status task_reserve_lanes(struct engine_task *task, uint32_t count)
{
    struct engine_lane *lanes;
    uint32_t *active;

    if (count <= task->lane_capacity)
        return DIST_OK;
    lanes = realloc(task->lanes, count * sizeof(*lanes));
    if (lanes)
        task->lanes = lanes;
    active = realloc(task->active, count * sizeof(*active));
    if (active)
        task->active = active;
    if (!lanes || !active)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %u lanes of a plan", count);
    task->lane_capacity = count;
    return DIST_OK;
}

/* Makes *memory_p at least `bytes` bytes; what was in it is lost. */
static dist_status task_reserve(const struct engine_task *task, size_t bytes, char **memory_p,
                                size_t *bytes_p)
{
    if (bytes <= *bytes_p)
        return DIST_OK;
    free(*memory_p);
    *bytes_p = 0;
    *memory_p = malloc(bytes);
    if (!*memory_p)
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "no memory for the %zu bytes of scratch that %s needs: choose another "
                          "algorithm with DIST_ALGO, or split the call",
                          bytes, task->plan->algorithm);
    *bytes_p = bytes;
    return DIST_OK;
}

static dist_status task_reserve_scratch(struct engine_task *task)
{
    size_t bytes;

    task->slot_bytes = disti_slot_elements(task->plan, task->layouts) * task->element_bytes;
    if (!disti_mul(task->slot_bytes, task->plan->scratch_chunks, &bytes))
        return disti_fail(DIST_ERR_NO_MEMORY, "scratch memory of %s overflows",
                          task->plan->algorithm);
    return task_reserve(task, bytes, &task->scratch, &task->scratch_bytes);
}

/* ---- PREMUL_SUM: IN is scaled before the first step; so are bools of one rank made 0 or 1 ---- */

/* Bytes from where IN begins to its end. */
static size_t task_in_bytes(const struct engine_task *task)
{
    const struct engine_span *in = &task->spans[DISTI_IN];

    return in->bytes ? (size_t)(in->start - (const char *)task->call.in) + in->bytes : 0;
}

/* Scaled in OUT where that is as large and this rank's to write, else in memory of the task. */
static dist_status task_reserve_scaled(struct engine_task *task)
{
    bool in_out = task->spans[DISTI_OUT].bytes == task->spans[DISTI_IN].bytes &&
                  task->call.collective != DIST_COLL_REDUCE_SCATTER &&
                  task->call.collective != DIST_COLL_REDUCE_SCATTER_V;
    dist_status status;

    if (in_out) {
        task->base[DISTI_IN] = task->base[DISTI_OUT];
        return DIST_OK;
    }
    status = task_reserve(task, task_in_bytes(task), &task->scaled, &task->scaled_bytes);
    task->base[DISTI_IN] = task->scaled;
    return status;
}

static bool task_scales(const struct engine_task *task)
{
    return disti_algorithm_reduces(task->call.collective) &&
           (task->call.op == DIST_PREMUL_SUM ||
            (task->plan->ranks == 1 && task->call.dtype == DIST_BOOL &&
             task->call.op != DIST_USER));
}

/* ---- life ---- */

void disti_ticket_end(struct dist_ticket **ticket, dist_status status)
{
    if (*ticket)
        (*ticket)->status = status;
    *ticket = NULL;
}

/* The plan, and all memory that the call needs. */
static dist_status task_bind(struct dist_engine *engine, struct engine_task *task,
                             const struct dist_call *call)
{
    dist_status status = DIST_OK;

    if (!task->on_node)
        status = disti_cache_plan(engine, call, &task->plan);
    if (status != DIST_OK)
        return status;
    task->call = *call;
    if (task->on_node)
        disti_on_node_bind(engine, task);
    task->element_bytes = dist_dtype_size(call->dtype);
    task->skips = call->count != 0 && !disti_collective_uneven(call->collective);
    task->fingerprint = disti_fingerprint(call, engine->config->world_size);
    disti_bind_layouts(call, engine->config->rank, task->layouts);
    disti_bind_spans(task->plan, call, task->layouts, task->spans);
    task->base[DISTI_IN] = (char *)(uintptr_t)call->in;
    task->base[DISTI_OUT] = call->out;
    status = task_reserve_lanes(task, task->plan->lane_count);
    if (status == DIST_OK)
        status = task_reserve_scratch(task);
    if (status == DIST_OK && task_scales(task))
        status = task_reserve_scaled(task);
    return status;
}

static dist_status task_new(struct engine_task **task_p)
{
    struct engine_task *task = calloc(1, sizeof(*task));

    if (!task)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to start an operation");
    *task_p = task;
    return DIST_OK;
}

/* For another call. */
static void task_keep(struct dist_engine *engine, struct engine_task *task)
{
    task->next = engine->idle;
    engine->idle = task;
}

/* One with the call's plan and memory: an idle one, or a new one. */
static dist_status task_take(struct dist_engine *engine, const struct dist_call *call,
                             struct engine_task **task_p)
{
    struct engine_task *task = engine->idle;
    dist_status status = DIST_OK;

    if (task)
        engine->idle = task->next;
    else
        status = task_new(&task);
    if (status != DIST_OK)
        return status;
    task->on_node = disti_on_node(engine, call);
    status = task_bind(engine, task, call);
    if (status == DIST_OK)
        *task_p = task;
    else
        task_keep(engine, task);
    return status;
}

static dist_status task_post(const struct dist_engine *engine, struct engine_task *task,
                             uint64_t sequence, struct dist_ticket *ticket)
{
    dist_status status = disti_task_go(task, TASK_POSTED);

    if (status != DIST_OK)
        return status;
    task->next = NULL;
    task->call.sequence = sequence;
    task->number = disti_mismatch_number(engine, sequence);
    task->ticket = ticket;
    return DIST_OK;
}

dist_status disti_task_create(struct dist_engine *engine, const struct dist_call *call,
                              struct dist_ticket *ticket, struct engine_task **task_p)
{
    struct engine_task *task = call->prepared;
    dist_status status = DIST_OK;

    if (!task)
        status = task_take(engine, call, &task);
    if (status == DIST_OK)
        status = task_post(engine, task, call->sequence, ticket);
    if (status != DIST_OK)
        return status;
    *task_p = task;
    return DIST_OK;
}

dist_status disti_task_start(struct engine_task *task)
{
    dist_status status = disti_task_go(task, TASK_RUNS);

    if (status != DIST_OK)
        return status;
    for (uint32_t i = 0; i < task->plan->lane_count; i++) {
        task->lanes[i].next = 0;
        task->lanes[i].busy = false;
        task->active[i] = i;
    }
    task->active_count = task->plan->lane_count;
    if (task_scales(task)) {
        size_t count = task_in_bytes(task) / task->element_bytes;
        char *to = task->base[DISTI_IN];
        if (task->call.dtype == DIST_BOOL)
            disti_reduce(DIST_BOOL, DIST_BOR, to, task->call.in, task->call.in, count);
        else
            disti_scale(to, task->call.in, count, task->call.dtype, task->call.reduction->factor);
    }
    return DIST_OK;
}

void disti_task_retire(struct dist_engine *engine, struct engine_task *task)
{
    if (disti_task_go(task, TASK_IDLE) == DIST_OK && !task->prepared)
        task_keep(engine, task);
}

dist_status disti_task_prepare(struct dist_engine *engine, const struct dist_call *call,
                               struct engine_task **task_p)
{
    struct engine_task *task;
    dist_status status = task_take(engine, call, &task);

    if (status != DIST_OK)
        return status;
    task->prepared = true;
    task->next_prepared = engine->prepared;
    engine->prepared = task;
    *task_p = task;
    return DIST_OK;
}

static void task_free(struct engine_task *task)
{
    free(task->lanes);
    free(task->active);
    free(task->scratch);
    free(task->scaled);
    free(task);
}

void disti_task_release(struct dist_engine *engine, struct engine_task *task)
{
    struct engine_task **at = &engine->prepared;

    if (task->state != TASK_IDLE) /* its requests may be with a transport */
        return;
    while (*at && *at != task)
        at = &(*at)->next_prepared;
    if (!*at)
        return;
    *at = task->next_prepared;
    task_free(task);
}

static void task_free_list(struct engine_task *task)
{
    while (task) {
        struct engine_task *next = task->next;

        if (!task->prepared)
            task_free(task);
        task = next;
    }
}

void disti_task_clear(struct dist_engine *engine)
{
    task_free_list(engine->head);
    task_free_list(engine->idle);
    while (engine->prepared) {
        struct engine_task *task = engine->prepared;

        engine->prepared = task->next_prepared;
        task_free(task);
    }
}

/* The executor: runs the steps of a call's plan. */

static char *task_address(const struct engine_task *task, struct disti_chunk_ref ref)
{
    size_t offset;

    if (ref.space == DISTI_SCRATCH)
        return task->scratch + ref.chunk * task->slot_bytes;
    disti_chunks_extent(task->plan, &task->layouts[ref.space], ref.chunk, 0, &offset);
    return task->base[ref.space] + offset * task->element_bytes;
}

/* ---- steps ---- */

static struct dist_sink task_sink(const struct engine_task *task, const struct disti_step *step,
                                  size_t bytes)
{
    return (struct dist_sink){.dst = task_address(task, step->dst),
                              .bytes = bytes,
                              .dtype = task->call.dtype,
                              .op = task->call.op,
                              .finish_ranks = step->finish ? task->plan->ranks : 0,
                              .reduction = task->call.reduction};
}

/* Starts a step. True: it has ended already. */
static bool task_begin(struct dist_engine *engine, struct engine_task *task,
                       const struct disti_lane *lane, const struct disti_step *step,
                       struct engine_lane *at)
{
    size_t elements = disti_step_elements(task->plan, task->layouts, step);
    size_t bytes = elements * task->element_bytes;
    struct dist_envelope *envelope = &at->request.request.envelope;

    if (!elements && task->skips)
        return true;
    if (step->kind == DISTI_COPY || step->kind == DISTI_REDUCE) {
        struct dist_sink sink = task_sink(task, step, bytes);
        const char *src = task_address(task, step->src);
        if (step->kind == DISTI_REDUCE)
            sink.src = sink.dst;
        if (step->kind == DISTI_REDUCE || sink.dst != src)
            disti_sink_apply(&sink, 0, src, bytes);
        return true;
    }
    envelope->tag = disti_tag_collective(engine->config->group, task->number, lane->channel);
    envelope->fingerprint = task->fingerprint;
    envelope->bytes = bytes;
    if (step->kind == DISTI_SEND) {
        struct engine_attachment *link = &engine->links[engine->route[step->peer]];
        at->request.request.data = task_address(task, step->src);
        disti_attachment_send(link, (int)step->peer, &at->request);
    } else {
        struct engine_attachment *link = &engine->links[engine->route[step->peer]];
        struct dist_request *inner = &at->request.request;
        inner->sink = task_sink(task, step, (size_t)inner->envelope.bytes);
        if (step->kind == DISTI_RECV_REDUCE)
            inner->sink.src = task_address(task, step->src);
        disti_attachment_recv(link, (int)step->peer, &at->request);
    }
    at->busy = true;
    return false;
}

/* Runs one lane as far as it goes. *moved counts the steps that ended or began. */
static dist_status task_lane(struct dist_engine *engine, struct engine_task *task, uint32_t number,
                             int *moved)
{
    const struct disti_lane *lane = &task->plan->lanes[number];
    struct engine_lane *at = &task->lanes[number];

    while (at->next < lane->count) {
        const struct disti_step *step = &task->plan->steps[lane->first + at->next];

        if (at->busy) {
            if (at->request.status == DIST_IN_PROGRESS)
                return DIST_IN_PROGRESS;
            if (at->request.status == DIST_ERR_MISMATCH)
                return disti_mismatch(&at->request.request, engine->config->rank,
                                      task->call.sequence);
            if (at->request.status != DIST_OK)
                return at->request.status;
            at->busy = false;
        } else {
            if (step->wait_lane != DISTI_NO_LANE &&
                task->lanes[step->wait_lane].next <= step->wait_step)
                return DIST_IN_PROGRESS;
            ++*moved;
            if (!task_begin(engine, task, lane, step, at))
                continue;
        }
        ++*moved;
        at->next++;
    }
    return DIST_OK;
}

dist_status disti_task_advance(struct dist_engine *engine, struct engine_task *task, int *moved)
{
    int before;

    if (task->on_node)
        return disti_on_node_advance(engine, task, moved);
    do {
        before = *moved;
        for (uint32_t i = 0; i < task->active_count;) {
            dist_status status = task_lane(engine, task, task->active[i], moved);

            if (status < 0)
                return status;
            if (status == DIST_OK)
                task->active[i] = task->active[--task->active_count];
            else
                i++;
        }
    } while (*moved != before && task->active_count);
    return task->active_count ? DIST_IN_PROGRESS : DIST_OK;
}

/* Receives come first in the search for who is missing: a send may just be unread. */
static bool task_waits_for(const struct engine_task *task, int peer, bool sends)
{
    for (uint32_t i = 0; i < task->active_count; i++) {
        uint32_t number = task->active[i];
        const struct engine_lane *at = &task->lanes[number];
        const struct disti_step *step =
            &task->plan->steps[task->plan->lanes[number].first + at->next];

        if (at->busy && at->request.status == DIST_IN_PROGRESS && at->request.peer == peer &&
            (step->kind == DISTI_SEND) == sends)
            return true;
    }
    return false;
}

bool disti_task_waits_for(const struct dist_engine *engine, const struct engine_task *task,
                          int peer)
{
    return task->on_node ? disti_node_waits_for(engine->node, &task->node_op, peer)
                         : task_waits_for(task, peer, false);
}

void disti_task_describe(const struct dist_engine *engine, const struct engine_task *task,
                         char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    if (task->on_node)
        disti_node_describe(engine->node, &task->node_op, text, size);
    for (int sends = 0; sends < 2 && !used; sends++) {
        for (int peer = 0; peer < task->plan->ranks && used + 40 < size; peer++) {
            if (!task_waits_for(task, peer, sends))
                continue;
            used += (size_t)snprintf(text + used, size - used, "%s", used ? ", " : "");
            used += disti_engine_name(engine, peer, text + used, size - used);
        }
    }
}

/* A short call that comes again: begun as it was the last time, without a task. */

void disti_again_learn(struct dist_engine *engine, const struct dist_call *call,
                       const struct disti_node_op *op)
{
    struct engine_again *again = &engine->again[call->collective];

    if ((again->repeats && again->repeats == call->repeats) ||
        disti_collective_uneven(call->collective)) /* its lists may be gone by then */
        return;
    again->repeats = 0;
    if (!call->waits || !disti_node_can_start_again(engine->node, op))
        return;
    again->repeats = call->repeats;
    again->op = *op;
}

/* A v-form that is not the last one: whole, but without a task. Its lists are the core's, and stay
 * while calls have its number. */
__attribute__((noinline)) static dist_status
again_uneven(struct dist_engine *engine, const struct dist_call *call, struct engine_again *again)
{
    struct disti_node_op *op = &again->op;
    uint64_t fingerprint;
    dist_status status;

    if (!disti_collective_uneven(call->collective))
        return DIST_ERR_UNSUPPORTED;
    fingerprint = disti_fingerprint(call, engine->config->world_size);
    if (!disti_on_node_begin(engine, call, fingerprint, op, &status))
        return DIST_ERR_UNSUPPORTED;
    again->repeats = disti_node_can_start_again(engine->node, op) ? call->repeats : 0;
    engine->begun = status == DIST_OK ? NULL : op;
    return status;
}

/* The others are not there yet, or something is wrong: the post will see. */
__attribute__((cold, noinline)) static dist_status
again_left(struct dist_engine *engine, struct disti_node_op *op, dist_status status)
{
    if (status == DIST_ERR_UNSUPPORTED)
        disti_mismatch_uncalled(&engine->calls);
    else
        engine->begun = op;
    return status;
}

dist_status disti_engine_at_once(struct dist_engine *engine, const struct dist_call *call)
{
    struct engine_again *again = &engine->again[call->collective];
    uint64_t history;
    dist_status status;

    if (engine->calls.unpolled || engine->calls.next != call->sequence)
        return DIST_ERR_UNSUPPORTED;
    if (again->repeats != call->repeats)
        return again_uneven(engine, call, again);
    history = disti_mismatch_next(&engine->calls, call->sequence, again->op.fingerprint);
    status = disti_node_start_again(engine->node, call, history, &again->op);
    return status == DIST_OK ? DIST_OK : again_left(engine, &again->op, status);
}
