/* SPDX-License-Identifier: BSD-3-Clause */
/* The executor: runs the steps of a call's plan. */
#include "base/kernels/sink.h"
#include "engine/state.h"

#include <stdio.h>
#include <string.h>

static char *task_address(const struct engine_task *task, struct disti_chunk_ref ref)
{
    size_t offset;

    if (ref.space == DISTI_SCRATCH)
        return task->scratch + ref.chunk * task->slot_bytes;
    disti_chunks_extent(task->plan, &task->layouts[ref.space], ref.chunk, 0, &offset);
    return task->base[ref.space] + offset * task->element_bytes;
}

/* ---- steps ---- */

static void task_send(struct dist_engine *engine, struct engine_task *task,
                      const struct disti_step *step, struct engine_request *request)
{
    struct engine_attachment *link = &engine->links[engine->route[step->peer]];

    request->request.data = task_address(task, step->src);
    disti_attachment_send(link, (int)step->peer, request);
}

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

static void task_recv(struct dist_engine *engine, struct engine_task *task,
                      const struct disti_step *step, struct engine_request *request)
{
    struct engine_attachment *link = &engine->links[engine->route[step->peer]];
    struct dist_request *inner = &request->request;

    inner->sink = task_sink(task, step, (size_t)inner->envelope.bytes);
    if (step->kind == DISTI_RECV_REDUCE)
        inner->sink.src = task_address(task, step->src);
    disti_attachment_recv(link, (int)step->peer, request);
}

static void task_local(const struct engine_task *task, const struct disti_step *step, size_t bytes)
{
    struct dist_sink sink = task_sink(task, step, bytes);
    const char *src = task_address(task, step->src);

    if (step->kind == DISTI_REDUCE)
        sink.src = sink.dst;
    if (step->kind == DISTI_REDUCE || sink.dst != src)
        disti_sink_apply(&sink, 0, src, bytes);
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
        task_local(task, step, bytes);
        return true;
    }
    envelope->tag = disti_tag_collective(engine->config->group, task->number, lane->channel);
    envelope->fingerprint = task->fingerprint;
    envelope->bytes = bytes;
    if (step->kind == DISTI_SEND)
        task_send(engine, task, step, &at->request);
    else
        task_recv(engine, task, step, &at->request);
    at->busy = true;
    return false;
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
            if (at->request.status == DIST_ERR_MISMATCH)
                return disti_mismatch(&at->request.request, engine->config->rank,
                                      task->call.sequence);
            if (at->request.status != DIST_OK)
                return at->request.status;
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
