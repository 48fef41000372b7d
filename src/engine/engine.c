/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine: a queue of calls, each a task, run side by side over the links or on the boards. */
#include "engine/engine.h"
#include "base/checked.h"
#include "base/collective.h"
#include "base/dtype.h"
#include "base/kernels/sink.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "engine/state.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* From a call to memory: where its blocks lie, and which memory it touches. */

void disti_bind_layouts(const struct dist_call *call, int rank, struct disti_layout layouts[2])
{
    layouts[DISTI_IN] = (struct disti_layout){call->count, call->in_counts, call->in_offsets};
    layouts[DISTI_OUT] = (struct disti_layout){call->count, call->out_counts, call->out_offsets};
    if (call->collective == DIST_COLL_ALL_GATHER_V)
        layouts[DISTI_IN].count = call->out_counts[rank];
    if (call->collective == DIST_COLL_REDUCE_SCATTER_V)
        layouts[DISTI_OUT].count = call->in_counts[rank];
}

/* The elements from *first_p to the returned end; equal: there are none. */
static size_t bind_extent(const struct disti_layout *layout, uint32_t blocks, size_t *first_p)
{
    size_t first = SIZE_MAX, end = 0;

    if (!layout->counts || !blocks) {
        *first_p = 0;
        return layout->count * blocks;
    }
    for (uint32_t b = 0; b < blocks; b++) {
        size_t block_end = layout->offsets[b] + layout->counts[b];

        if (!layout->counts[b])
            continue;
        first = layout->offsets[b] < first ? layout->offsets[b] : first;
        end = block_end > end ? block_end : end;
    }
    *first_p = end ? first : 0;
    return end;
}

void disti_bind_spans(const struct disti_plan *plan, const struct dist_call *call,
                      const struct disti_layout layouts[2], struct engine_span spans[2])
{
    size_t element_bytes = dist_dtype_size(call->dtype);

    for (uint8_t space = DISTI_IN; space <= DISTI_OUT; space++) {
        const char *base = space == DISTI_IN ? call->in : call->out;
        size_t first;
        size_t end = bind_extent(&layouts[space], disti_plan_blocks(plan, space), &first);

        spans[space] = (struct engine_span){.bytes = (end - first) * element_bytes};
        if (spans[space].bytes)
            spans[space].start = base + first * element_bytes;
    }
}

static bool bind_meet(const struct engine_span *a, const struct engine_span *b)
{
    return a->bytes && b->bytes && (uintptr_t)a->start < (uintptr_t)b->start + b->bytes &&
           (uintptr_t)b->start < (uintptr_t)a->start + a->bytes;
}

bool disti_spans_clash(const struct engine_span a[2], const struct engine_span b[2])
{
    return bind_meet(&a[DISTI_OUT], &b[DISTI_OUT]) || bind_meet(&a[DISTI_OUT], &b[DISTI_IN]) ||
           bind_meet(&a[DISTI_IN], &b[DISTI_OUT]);
}

size_t disti_bind_bytes(const struct dist_call *call, int ranks)
{
    const size_t *counts = call->collective == DIST_COLL_ALL_GATHER_V       ? call->out_counts
                           : call->collective == DIST_COLL_REDUCE_SCATTER_V ? call->in_counts
                                                                            : NULL;
    size_t count = 0;

    for (int r = 0; counts && r < ranks; r++)
        count += counts[r];
    if (counts)
        count /= (size_t)ranks;
    else if (!disti_collective_uneven(call->collective)) /* of those no rank knows the others' */
        count = call->count;
    return count * dist_dtype_size(call->dtype);
}

/* Plans are written once and kept, so that a repeated call pays nothing for its plan. */

static dist_status cache_plan(struct dist_engine *engine, const struct dist_call *call,
                              const struct disti_plan **plan_p)
{
    int root = disti_collective_rooted(call->collective) ? call->root : 0;
    const struct disti_algorithm *algorithm;
    struct engine_cached **bucket;
    uint32_t segments;
    dist_status status = disti_chooser_pick(&engine->chooser, call->collective,
                                            disti_bind_bytes(call, engine->config->world_size),
                                            &algorithm, &segments);

    if (status != DIST_OK)
        return status;
    uintptr_t hash =
        (uintptr_t)algorithm / sizeof(*algorithm) + (unsigned)root * 7u + segments * 31u;
    bucket = &engine->cache[hash % ENGINE_CACHE_BUCKETS];
    for (struct engine_cached *e = *bucket; e; e = e->next) {
        if (e->algorithm == algorithm && e->root == root && e->segments == segments) {
            *plan_p = e->plan;
            return DIST_OK;
        }
    }
    bool flat = engine->flat && disti_algorithm_reduces(algorithm->collective);
    const struct disti_shape shape = {.collective = algorithm->collective,
                                      .ranks = engine->config->world_size,
                                      .rank = engine->config->rank,
                                      .root = root,
                                      .segments = segments,
                                      .topology = flat ? engine->flat : engine->topology};
    struct engine_cached *entry = malloc(sizeof(*entry));
    if (!entry)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a plan of %s", algorithm->name);
    status = disti_plan_write(algorithm, &shape, &entry->plan);
    if (status != DIST_OK) {
        free(entry);
        return status;
    }
    entry->algorithm = algorithm;
    entry->root = root;
    entry->segments = segments;
    entry->next = *bucket;
    *bucket = entry;
    *plan_p = entry->plan;
    disti_info("plan %s:%s, %d ranks, root %d, %u segments: %u lanes, %u steps",
               dist_collective_string(algorithm->collective), algorithm->name, shape.ranks, root,
               segments, entry->plan->lane_count, entry->plan->step_count);
    return DIST_OK;
}

/* Calls that need no messages: all ranks are on one machine and share memory. */

/*
 * Looks at the boards in a row before the call becomes a task: with a CPU for each rank the others
 * come within some hundred nanoseconds, which is about what a task costs.
 */
#define NODE_LOOKS 256
/* If the caller has something else to do. */
#define NODE_LOOKS_ASYNC 8
/* With less CPUs than ranks one of those that are waited for wants this very CPU: it is given up
 * after each look, which costs less than a task. */
#define NODE_TURNS 32
/* A call of more bytes a block is work for microseconds, during which others may want their turn.
 */
#define NODE_TRY_MAX ((size_t)32 << 10)

/*
 * The last that is done together: the node becomes the engine's if all ranks can use it, else it is
 * closed. NULL: there is none. No rank goes on before all have come.
 */
static dist_status node_open(struct dist_engine *engine, struct disti_node *node)
{
    const struct dist_backend_config *config = engine->config;
    size_t ranks = (size_t)config->world_size;
    unsigned char mine = node && disti_node_map(node), *all = calloc(ranks, 1);
    dist_status status;

    if (all)
        status = config->all_gather(config->all_gather_arg, &mine, all, 1);
    else
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for a group of %zu ranks", ranks);
    if (status == DIST_OK && !memchr(all, 0, ranks))
        engine->node = node;
    else
        disti_node_close(node);
    free(all);
    return status;
}

static bool node_takes(const struct dist_engine *engine, const struct dist_call *call)
{
    const struct disti_choice *choice = &engine->choice;

    return engine->node && disti_node_supports(call->collective) &&
           !choice->forced[call->collective] && !choice->forced_segments;
}

/* A call that may end at once: true, it has been noted and started in `op`; *status_p as advance
 * gives it. */
static bool node_begin(struct dist_engine *engine, const struct dist_call *call,
                       uint64_t fingerprint, struct disti_node_op *op, dist_status *status_p)
{
    uint64_t history;
    int moved = 0;

    if (engine->head || engine->p2p_head || call->op == DIST_PREMUL_SUM ||
        !node_takes(engine, call))
        return false;
    history = disti_mismatch_called(&engine->calls, call->sequence, fingerprint);
    disti_node_start(engine->node, call, fingerprint, history, op);
    *status_p = disti_node_advance(engine->node, op, &moved);
    return true;
}

static dist_status node_mismatch(const struct dist_engine *engine, const struct engine_task *task)
{
    const struct disti_node_op *op = &task->node_op;
    struct dist_request request = {.peer = op->peer,
                                   .envelope = {.fingerprint = op->mine, .bytes = op->expected},
                                   .arrived = {.fingerprint = op->theirs, .bytes = op->sent}};

    return disti_mismatch(&request, engine->config->rank, op->sequence);
}

static struct engine_task *node_first(const struct dist_engine *engine)
{
    struct engine_task *task = engine->node_tasks ? engine->head : NULL;

    while (task && !task->on_node)
        task = task->next;
    return task;
}

struct engine_task *disti_on_node_first(const struct dist_engine *engine)
{
    struct engine_task *task = node_first(engine);

    return task && task->state == TASK_RUNS ? task : NULL;
}

/* Tasks: what a call needs before its first step, and after its last. */

/* The arrows of the drawing in state.h, by where they begin. */
static const uint8_t task_arrows[] = {
    [TASK_IDLE] = 1 << TASK_POSTED,
    [TASK_POSTED] = 1 << TASK_RUNS,
    [TASK_RUNS] = 1 << TASK_IDLE,
};

dist_status disti_task_go(struct engine_task *task, enum engine_task_state to)
{
    if (!(task_arrows[task->state] & 1 << to))
        return disti_fail_transition("a task", (int)task->state, (int)to);
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
        status = cache_plan(engine, call, &task->plan);
    if (status != DIST_OK)
        return status;
    task->call = *call;
    if (task->on_node) {
        /* The plan without steps. */
        task->no_plan = (struct disti_plan){.collective = task->call.collective,
                                            .algorithm = "shared memory",
                                            .ranks = engine->config->world_size,
                                            .rank = engine->config->rank,
                                            .root = task->call.root,
                                            .chunks = 1};
        task->plan = &task->no_plan;
    }
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
    dist_status status;

    if (task)
        engine->idle = task->next;
    else
        task = calloc(1, sizeof(*task));
    if (!task)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to start an operation");
    task->on_node = node_takes(engine, call);
    status = task_bind(engine, task, call);
    if (status == DIST_OK)
        *task_p = task;
    else
        task_keep(engine, task);
    return status;
}

static dist_status task_create(struct dist_engine *engine, const struct dist_call *call,
                               struct dist_ticket *ticket, struct engine_task **task_p)
{
    struct engine_task *task = call->prepared;
    dist_status status = DIST_OK;

    if (!task)
        status = task_take(engine, call, &task);
    if (status == DIST_OK)
        status = disti_task_go(task, TASK_POSTED);
    if (status != DIST_OK)
        return status;
    task->next = NULL;
    task->call.sequence = call->sequence;
    task->number = disti_mismatch_number(engine, call->sequence);
    task->ticket = ticket;
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

static void task_free_list(struct engine_task *task)
{
    while (task) {
        struct engine_task *next = task->next;

        if (!task->prepared)
            task_free(task);
        task = next;
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

/* Runs every step that can run. IN_PROGRESS, OK at the end, or the failure. */
static dist_status task_advance(struct dist_engine *engine, struct engine_task *task, int *moved)
{
    int before;

    if (task->on_node) {
        /* Looks a few times more for the end of what has begun, if it is short. */
        dist_status status = disti_node_advance(engine->node, &task->node_op, moved);
        return status == DIST_ERR_MISMATCH ? node_mismatch(engine, task) : status;
    }
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

/* A short call that comes again: begun as it was the last time, without a task. */

/* Remembers a call that post was given, as at_once is to find it. */
static void again_learn(struct dist_engine *engine, const struct dist_call *call,
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
    if (!node_begin(engine, call, fingerprint, op, &status))
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

/* The engine: a queue of calls, run side by side over the links. */

/* No peer is reached through the link: its doorbell, which does not ring, is enough. */
#define LINK_UNUSED DISTI_ATTACHMENT_DOORBELL

dist_status disti_engine_open(const struct dist_backend_config *config,
                              const struct dist_engine_config *engine_config,
                              struct dist_engine **engine_p)
{
    struct dist_engine *engine = calloc(1, sizeof(*engine));
    struct disti_node *node = NULL;
    struct disti_tune_offer offer;
    dist_status status = DIST_OK;

    if (!engine)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the engine of rank %d", config->rank);
    engine->config = config;
    disti_mismatch_open(engine);
    status = disti_choice_parse(disti_env("DIST_ALGO"), config->reproducible, &engine->choice);
    if (status != DIST_OK)
        goto out;
    status = disti_topology_create(config->places, config->world_size, &engine->topology);
    if (status == DIST_OK && engine->choice.reproducible)
        status = disti_topology_flat(config->world_size, &engine->flat);
    if (status != DIST_OK)
        goto out;
    status = disti_tune_offer(config, engine_config->transports, &offer);
    if (status == DIST_OK)
        status = disti_route_open(engine, engine_config, &offer, &node);
    if (status == DIST_OK)
        status = disti_tune_decide(engine, engine_config->transports, &offer);
    if (status != DIST_OK)
        goto out;
    status = node_open(engine, node);
    node = NULL;
    if (status != DIST_OK)
        goto out;
    engine->chooser.choice = &engine->choice;
    engine->chooser.tuning = &engine->tuning;
    engine->chooser.topology = engine->topology;
    *engine_p = engine;
    engine = NULL;
out:
    disti_node_close(node);
    disti_engine_close(engine);
    return status;
}

/* Takes the task behind `before` (NULL: the first) out of the queue: it has ended, and is kept for
 * another call, or for its own. */
static void engine_retire(struct dist_engine *engine, struct engine_task *before)
{
    struct engine_task *task = before ? before->next : engine->head;

    if (before)
        before->next = task->next;
    else
        engine->head = task->next;
    if (engine->tail == task)
        engine->tail = before;
    engine->tasks--;
    engine->node_tasks -= task->on_node;
    if (disti_task_go(task, TASK_IDLE) == DIST_OK && !task->prepared)
        task_keep(engine, task);
}

/* May this task run beside those that were posted before it? */
static bool engine_may_start(const struct dist_engine *engine, const struct engine_task *task)
{
    for (const struct engine_task *t = engine->head; t != task; t = t->next) {
        if (disti_spans_clash(t->spans, task->spans))
            return false;
    }
    return !disti_p2p_clash(engine, task);
}

/* One task's turn. IN_PROGRESS, OK at its end, or its failure. */
static dist_status engine_step(struct dist_engine *engine, struct engine_task *task, bool node_busy,
                               int *moved)
{
    dist_status status = DIST_OK;

    if (task->state == TASK_POSTED && engine_may_start(engine, task)) {
        status = disti_task_go(task, TASK_RUNS);
        if (status == DIST_OK) {
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
                    disti_scale(to, task->call.in, count, task->call.dtype,
                                task->call.reduction->factor);
            }
        }
    }
    if (status != DIST_OK)
        return status;
    if (task->state != TASK_RUNS || (task->on_node && node_busy))
        return DIST_IN_PROGRESS;
    return task_advance(engine, task, moved);
}

/*
 * Runs every task that can run; ended ones leave the queue. Only the oldest may run, so that the
 * rest, however many, costs nothing. Returns how much happened.
 */
static int engine_run(struct dist_engine *engine)
{
    struct engine_task *before = NULL;
    bool node_busy = false;
    int moved = 0, pending = 0;

    for (struct engine_task *task = engine->head; task && pending < ENGINE_RUNNING_MAX;) {
        struct engine_task *next = task->next;
        dist_status status = engine_step(engine, task, node_busy, &moved);

        if (status == DIST_OK && disti_mismatch_look(engine, DISTI_MISMATCH_FEW))
            status = disti_mismatch_report(engine);
        node_busy |= task->on_node && status == DIST_IN_PROGRESS;
        if (status == DIST_IN_PROGRESS) {
            before = task;
            pending++;
        } else if (status == DIST_OK) {
            disti_ticket_end(&task->ticket, DIST_OK);
            engine_retire(engine, before);
            moved++;
        } else {
            disti_ticket_end(&task->ticket, status);
            return status; /* its requests are still out: it stays until close */
        }
        task = next;
    }
    return moved;
}

/* The same as begin, or at_once has done it. What is to be learned is learned while the other
 * ranks' data are on their way. */
static bool engine_begin(struct dist_engine *engine, const struct dist_call *call,
                         uint64_t fingerprint, struct disti_node_op *op, dist_status *status_p)
{
    if (engine->begun) {
        *op = *engine->begun;
        engine->begun = NULL;
        *status_p = DIST_IN_PROGRESS;
    } else {
        if (!node_begin(engine, call, fingerprint, op, status_p))
            return false;
        again_learn(engine, call, op);
    }
    if (*status_p == DIST_IN_PROGRESS) {
        bool crowded = call->waits && disti_node_is_crowded(engine->node);
        bool is_long = op->largest * op->element_bytes > NODE_TRY_MAX;
        int looks = crowded ? NODE_TURNS : call->waits ? NODE_LOOKS : NODE_LOOKS_ASYNC;
        dist_status status = DIST_IN_PROGRESS;
        int moved = 0;
        if (crowded)
            disti_node_yield_learn(engine->node, op);
        for (int i = is_long ? 0 : looks; i > 0 && status == DIST_IN_PROGRESS; i--) {
            if (crowded)
                sched_yield();
            status = disti_node_advance(engine->node, op, &moved);
        }
        *status_p = status;
    }
    if (*status_p == DIST_OK && call->collective == DIST_COLL_BARRIER && call->waits)
        disti_node_yield_after_barrier(engine->node, op);
    return true;
}

dist_status disti_engine_post(struct dist_engine *engine, const struct dist_call *call,
                              struct dist_ticket *ticket)
{
    struct disti_node_op op;
    struct engine_task *task;
    uint64_t fingerprint;
    dist_status status;
    bool begun;

    if (disti_collective_pair(call->collective))
        return disti_p2p_post(engine, call, ticket);
    /*
     * Calls that end at once would never poll: each second one does, before it begins, so that what
     * other ranks called instead is seen by the next call.
     */
    int moved = engine->calls.unpolled ? disti_engine_progress(engine) : 0;
    status = moved < 0 ? (dist_status)moved : DIST_OK;
    if (status != DIST_OK)
        return status;
    fingerprint = disti_fingerprint(call, engine->config->world_size);
    begun = engine_begin(engine, call, fingerprint, &op, &status);
    if (begun && status == DIST_OK) {
        ticket->status = DIST_OK;
        return DIST_OK;
    }
    status = task_create(engine, call, ticket, &task);
    if (status != DIST_OK)
        return status;
    if (!begun)
        disti_mismatch_called(&engine->calls, call->sequence, fingerprint);
    if (begun) {
        task->node_op = op;
    } else if (task->on_node) {
        struct dist_call bound = task->call;

        bound.in = task->base[DISTI_IN];
        bound.out = task->base[DISTI_OUT];
        disti_node_start(engine->node, &bound, task->fingerprint, engine->calls.history,
                         &task->node_op);
    }
    engine->calls.unpolled = true;
    task->order = engine->posted++;
    if (engine->tail)
        engine->tail->next = task;
    else
        engine->head = task;
    engine->tail = task;
    engine->tasks++;
    engine->node_tasks += task->on_node;
    ticket->status = DIST_IN_PROGRESS;
    engine_run(engine); /* a failure shows in a ticket */
    return DIST_OK;
}

dist_status disti_engine_prepare(struct dist_engine *engine, const struct dist_call *call,
                                 void **prepared_p)
{
    struct engine_task *task;
    dist_status status;

    if (disti_collective_pair(call->collective)) {
        *prepared_p = NULL;
        return DIST_OK;
    }
    status = task_take(engine, call, &task);
    if (status != DIST_OK)
        return status;
    task->prepared = true;
    task->next_prepared = engine->prepared;
    *prepared_p = engine->prepared = task;
    return DIST_OK;
}

/* Frees a prepared task that is not posted, else leaves it until the engine closes. */
void disti_engine_release(struct dist_engine *engine, void *prepared)
{
    struct engine_task **at = &engine->prepared, *task = prepared;

    if (!task || task->state != TASK_IDLE) /* its requests may be with a transport */
        return;
    while (*at && *at != task)
        at = &(*at)->next_prepared;
    if (!*at)
        return;
    *at = task->next_prepared;
    task_free(task);
}

/* Polls that find nothing between two looks at what other ranks may have called instead. */
#define ENGINE_IDLE_POLLS 1024
/* Polls of the boards between two polls of the links, which cost more, if nobody needs those. */
#define ENGINE_NODE_POLLS 64

/* True: the boards alone have been polled, and that will do this time. */
static bool engine_polled_node(struct dist_engine *engine, int *ran_p)
{
    const struct engine_task *task = engine->head;

    if (!task || !task->on_node)
        return false;
    *ran_p = engine_run(engine);
    return *ran_p != 0 || (engine->node_tasks == engine->tasks && !engine->p2p_head &&
                           ++engine->polls % ENGINE_NODE_POLLS);
}

int disti_engine_progress(struct dist_engine *engine)
{
    /* Called for what other ranks ask alone. */
    const bool rests = !engine->calls.unpolled && !engine->head && !engine->p2p_head;
    int moved = 0, ran;

    if (engine->calls.found.peer >= 0)
        return disti_mismatch_report(engine);
    if (engine_polled_node(engine, &ran))
        return ran;
    engine->calls.unpolled = false;
    for (int i = 0; i < engine->link_count; i++) {
        struct engine_attachment *link = &engine->links[i];
        int got = link->peers ? disti_attachment_progress(link) : 0;

        if (got < 0)
            return got;
        moved += got;
    }
    ran = engine_run(engine);
    if (ran < 0)
        return ran;
    moved += ran;
    ran = disti_p2p_run(engine);
    if (moved + ran != 0)
        return ran < 0 ? ran : moved + ran;
    disti_node_migrate_cpu(engine->node);
    if ((rests || ++engine->calls.idle % ENGINE_IDLE_POLLS == 0) && disti_mismatch_rest(engine))
        return disti_mismatch_report(engine);
    return 0;
}

int disti_engine_arm(struct dist_engine *engine, int *fds, int room)
{
    bool from_any = disti_p2p_waits_for_any(engine);
    struct engine_task *task;
    int count = 0;

    if (disti_mismatch_rest(engine))
        return DIST_ARM_READY;
    task = disti_on_node_first(engine);
    if (task) {
        int fd = disti_node_arm(engine->node, &task->node_op);

        engine->node_armed = true;
        if (fd == DIST_ARM_READY)
            return DIST_ARM_READY;
        fds[count++] = fd;
    }
    while (engine->armed < engine->link_count) {
        struct engine_attachment *link = &engine->links[engine->armed++];
        int fd = link->peers ? disti_attachment_arm(link, from_any) : LINK_UNUSED;

        if (fd == DIST_ARM_READY)
            return DIST_ARM_READY;
        if (fd == DISTI_ATTACHMENT_DOORBELL)
            continue;
        if (fd < 0 || count == room)
            return DIST_ARM_BLIND;
        fds[count++] = fd;
    }
    return count;
}

void disti_engine_disarm(struct dist_engine *engine)
{
    if (engine->node_armed)
        disti_node_disarm(engine->node);
    engine->node_armed = false;
    while (engine->armed > 0) {
        struct engine_attachment *link = &engine->links[--engine->armed];

        if (link->peers)
            disti_attachment_disarm(link);
    }
}

size_t disti_engine_name(const struct dist_engine *engine, int rank, char *text, size_t size)
{
    const bool away = engine->route && rank != engine->config->rank &&
                      disti_attachment_unreachable(&engine->links[engine->route[rank]], rank);
    const int length = snprintf(text, size, "rank %d%s", rank, away ? " (unreachable)" : "");

    return (size_t)length < size ? (size_t)length : size - 1;
}

void disti_engine_describe(const struct dist_engine *engine, char *text, size_t size)
{
    const struct engine_task *task = engine ? engine->head : NULL;
    const struct engine_p2p *p2p = engine ? engine->p2p_head : NULL;

    text[0] = '\0';
    if (!engine)
        return;
    if (p2p && (!task || p2p->order < task->order))
        task = NULL;
    else
        p2p = NULL;
    if (p2p)
        disti_p2p_describe(engine, p2p, text, size);
    else if (task && task->state == TASK_RUNS) {
        /* The peers whose messages have not come or gone, each once: "rank 2, rank 5". */
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
    if (!task || task->state == TASK_RUNS)
        disti_engine_hint(engine, task, p2p, text + strlen(text), size - strlen(text));
}

void disti_engine_close(struct dist_engine *engine)
{
    if (!engine)
        return;
    disti_route_close(engine); /* first: from here on no transport touches a task */
    disti_mismatch_close(engine);
    disti_tune_links_free(engine);
    /* Those that have not ended never will. */
    const struct engine_task *task = node_first(engine);
    const struct disti_node_op *op = task ? &task->node_op : engine->begun;
    if (op)
        disti_node_abandon(engine->node, op);
    disti_node_close(engine->node);
    task_free_list(engine->head);
    task_free_list(engine->idle);
    while (engine->prepared) {
        struct engine_task *prepared = engine->prepared;

        engine->prepared = prepared->next_prepared;
        task_free(prepared);
    }
    disti_p2p_clear(engine);
    for (int i = 0; i < ENGINE_CACHE_BUCKETS; i++) {
        while (engine->cache[i]) {
            struct engine_cached *entry = engine->cache[i];
            engine->cache[i] = entry->next;
            disti_plan_free(entry->plan);
            free(entry);
        }
    }
    disti_topology_free(engine->topology);
    disti_topology_free(engine->flat);
    free(engine);
}
