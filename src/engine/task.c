/* SPDX-License-Identifier: BSD-3-Clause */
/* The executor: binds a plan to a call's memory and runs its steps. */
#include "base/checked.h"
#include "base/dtype.h"
#include "base/log.h"
#include "engine/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- binding: from chunks to addresses ---- */

/* Collectives whose blocks are all alike; IN's and OUT's layout is the same. */
static struct disti_layout task_layout(const struct engine_task *task)
{
    return (struct disti_layout){.count = task->call.count};
}

static size_t task_offset(const struct engine_task *task, uint32_t chunk)
{
    struct disti_layout layout = task_layout(task);
    size_t offset;

    disti_place_extent(task->plan, &layout, chunk, 0, &offset);
    return offset * task->element_bytes;
}

static char *task_address(const struct engine_task *task, struct disti_at place)
{
    switch (place.space) {
    case DISTI_IN:
        return (char *)task->call.in + task_offset(task, place.at);
    case DISTI_OUT:
        return (char *)task->call.out + task_offset(task, place.at);
    default:
        return task->scratch + place.at * task->slot_bytes;
    }
}

static size_t task_elements(const struct engine_task *task, const struct disti_step *step)
{
    struct disti_layout layouts[2] = {task_layout(task), task_layout(task)};

    return disti_step_elements(task->plan, layouts, step);
}

/* ---- steps ---- */

static void task_send(struct dist_engine *engine, struct engine_task *task,
                      const struct disti_step *step, struct dist_request *request)
{
    struct engine_link *link = &engine->links[engine->route[step->peer]];

    request->data = task_address(task, step->src);
    link->transport->send(link->state, request);
}

static void task_recv(struct dist_engine *engine, struct engine_task *task,
                      const struct disti_step *step, struct dist_request *request)
{
    struct engine_link *link = &engine->links[engine->route[step->peer]];
    struct dist_sink *sink = &request->sink;

    sink->dst = task_address(task, step->dst);
    sink->src = step->kind == DISTI_RECV_REDUCE ? task_address(task, step->src) : NULL;
    sink->bytes = request->envelope.bytes;
    sink->dtype = task->call.dtype;
    sink->op = task->call.op;
    sink->finish_ranks = step->finish ? task->plan->ranks : 0;
    link->transport->recv(link->state, request);
}

static void task_local(struct engine_task *task, const struct disti_step *step, size_t elements)
{
    char *dst = task_address(task, step->dst);
    const char *src = task_address(task, step->src);

    if (step->kind == DISTI_COPY) {
        if (dst != src && elements)
            memcpy(dst, src, elements * task->element_bytes);
        return;
    }
    disti_reduce_kernel(task->call.dtype, task->call.op)(dst, dst, src, elements);
    if (step->finish)
        disti_finish(dst, elements, task->call.dtype, task->call.op, task->plan->ranks);
}

/* Tag: group, sequence and channel, so that calls under way side by side cannot mix. */
static uint64_t task_tag(const struct dist_engine *engine, const struct engine_task *task,
                         uint16_t channel)
{
    return (uint64_t)(engine->config->group & 0xffff) << 48 |
           (task->call.sequence & 0xffffffff) << 16 | channel;
}

/* Starts a step. True: it has ended already. */
static bool task_begin(struct dist_engine *engine, struct engine_task *task,
                       const struct disti_lane *lane, const struct disti_step *step,
                       struct engine_lane *at)
{
    size_t elements = task_elements(task, step);
    struct dist_request *request = &at->request;

    if (!elements && task->call.collective != DIST_COLL_BARRIER)
        return true;
    if (step->kind == DISTI_COPY || step->kind == DISTI_REDUCE) {
        task_local(task, step, elements);
        return true;
    }
    request->status = DIST_IN_PROGRESS;
    request->peer = step->peer;
    request->envelope.tag = task_tag(engine, task, lane->channel);
    request->envelope.fingerprint = disti_fingerprint(&task->call);
    request->envelope.bytes = elements * task->element_bytes;
    request->next = request->prev = NULL;
    request->moved = 0;
    if (step->kind == DISTI_SEND)
        task_send(engine, task, step, request);
    else
        task_recv(engine, task, step, request);
    at->busy = true;
    return false;
}

static dist_status task_failure(const struct dist_engine *engine, const struct engine_task *task,
                                const struct dist_request *request)
{
    char mine[128], theirs[128];

    if (request->status != DIST_ERR_MISMATCH)
        return request->status;
    disti_fingerprint_text(request->envelope.fingerprint, mine, sizeof(mine));
    disti_fingerprint_text(request->arrived.fingerprint, theirs, sizeof(theirs));
    return disti_fail(DIST_ERR_MISMATCH,
                      "rank %d called %s as operation %llu, but rank %d called %s: make every rank "
                      "call the same collectives with the same arguments in the same order",
                      engine->config->rank, mine, (unsigned long long)task->call.sequence,
                      request->peer, theirs);
}

static bool task_waits(const struct engine_task *task, const struct disti_step *step)
{
    return step->wait_lane != DISTI_NO_LANE && task->lanes[step->wait_lane].next <= step->wait_step;
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
            if (at->request.status != DIST_OK)
                return task_failure(engine, task, &at->request);
            at->busy = false;
        } else {
            if (task_waits(task, step))
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

/* ---- life ---- */

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

static dist_status task_reserve_scratch(struct engine_task *task)
{
    struct disti_layout layouts[2] = {task_layout(task), task_layout(task)};
    size_t bytes;

    task->slot_bytes = disti_slot_elements(task->plan, layouts) * task->element_bytes;
    if (!disti_mul(task->slot_bytes, task->plan->scratch_chunks, &bytes))
        return disti_fail(DIST_ERR_NO_MEMORY, "scratch memory of %s overflows",
                          task->plan->algorithm);
    if (bytes <= task->scratch_bytes)
        return DIST_OK;
    free(task->scratch);
    task->scratch_bytes = 0;
    task->scratch = malloc(bytes);
    if (!task->scratch)
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "no memory for %zu bytes of scratch of %s: choose "
                          "another algorithm with DIST_ALGO",
                          bytes, task->plan->algorithm);
    task->scratch_bytes = bytes;
    return DIST_OK;
}

dist_status disti_task_create(struct dist_engine *engine, const struct dist_call *call,
                              struct dist_ticket *ticket, struct engine_task **task_p)
{
    struct engine_task *task = engine->idle;
    dist_status status;

    if (task)
        engine->idle = task->next;
    else
        task = calloc(1, sizeof(*task));
    if (!task)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to start %s",
                          dist_collective_string(call->collective));
    task->next = NULL;
    task->call = *call;
    task->ticket = ticket;
    task->running = false;
    task->element_bytes = dist_dtype_size(call->dtype);
    status = disti_cache_plan(engine, call, &task->plan);
    if (status == DIST_OK)
        status = task_reserve_lanes(task, task->plan->lane_count);
    if (status == DIST_OK)
        status = task_reserve_scratch(task);
    if (status != DIST_OK) {
        task->next = engine->idle;
        engine->idle = task;
        return status;
    }
    *task_p = task;
    return DIST_OK;
}

void disti_task_start(struct engine_task *task)
{
    for (uint32_t i = 0; i < task->plan->lane_count; i++) {
        task->lanes[i].next = 0;
        task->lanes[i].busy = false;
        task->active[i] = i;
    }
    task->active_count = task->plan->lane_count;
    task->running = true;
}

/* ---- hazards ---- */

static bool task_ranges_meet(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return a_bytes && b_bytes && (uintptr_t)a < (uintptr_t)b + b_bytes &&
           (uintptr_t)b < (uintptr_t)a + a_bytes;
}

static size_t task_out_bytes(const struct engine_task *task)
{
    size_t blocks = task->call.collective == DIST_COLL_ALL_GATHER ? (size_t)task->plan->ranks : 1;

    return task->call.count * task->element_bytes * blocks;
}

bool disti_task_overlaps(const struct engine_task *a, const struct engine_task *b)
{
    size_t a_in = a->call.count * a->element_bytes, a_out = task_out_bytes(a);
    size_t b_in = b->call.count * b->element_bytes, b_out = task_out_bytes(b);

    return task_ranges_meet(a->call.out, a_out, b->call.out, b_out) ||
           task_ranges_meet(a->call.out, a_out, b->call.in, b_in) ||
           task_ranges_meet(a->call.in, a_in, b->call.out, b_out);
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

void disti_task_describe(const struct engine_task *task, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int sends = 0; sends < 2 && !used; sends++) {
        for (int peer = 0; peer < task->plan->ranks && used + 16 < size; peer++) {
            if (task_waits_for(task, peer, sends))
                used +=
                    (size_t)snprintf(text + used, size - used, "%srank %d", used ? ", " : "", peer);
        }
    }
}

void disti_task_free(struct engine_task *task)
{
    if (!task)
        return;
    free(task->lanes);
    free(task->active);
    free(task->scratch);
    free(task);
}
