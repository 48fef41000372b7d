/* SPDX-License-Identifier: BSD-3-Clause */
/* Tasks: what a call needs before its first step, and after its last. */
#include "base/checked.h"
#include "base/dtype.h"
#include "base/log.h"
#include "engine/state.h"

#include <stdlib.h>

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

/* Nothing is reduced in a world of one, which else makes any byte 0 or 1. */
static bool task_makes_bools(const struct engine_task *task)
{
    return task->plan->ranks == 1 && task->call.dtype == DIST_BOOL && task->call.op != DIST_USER;
}

static bool task_scales(const struct engine_task *task)
{
    return disti_algorithm_reduces(task->call.collective) &&
           (task->call.op == DIST_PREMUL_SUM || task_makes_bools(task));
}

static void task_scale(struct engine_task *task)
{
    size_t count = task_in_bytes(task) / task->element_bytes;
    char *to = task->base[DISTI_IN];

    if (task->call.dtype == DIST_BOOL)
        disti_reduce(DIST_BOOL, DIST_BOR, to, task->call.in, task->call.in, count);
    else
        disti_scale(to, task->call.in, count, task->call.dtype, task->call.reduction->factor);
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
    if (task_scales(task))
        task_scale(task);
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
