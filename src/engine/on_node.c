/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that need no messages: all ranks are on one machine and share memory. */
#include "base/dtype.h"
#include "base/log.h"
#include "engine/state.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

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

dist_status disti_on_node_open(struct dist_engine *engine, struct disti_node *node)
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

bool disti_on_node(const struct dist_engine *engine, const struct dist_call *call)
{
    const struct disti_choice *choice = &engine->choice;

    return disti_node_takes(engine->node, call) && !choice->forced[call->collective] &&
           !choice->forced_segments;
}

void disti_on_node_bind(struct dist_engine *engine, struct engine_task *task)
{
    task->no_plan = (struct disti_plan){.collective = task->call.collective,
                                        .algorithm = "shared memory",
                                        .ranks = engine->config->world_size,
                                        .rank = engine->config->rank,
                                        .root = task->call.root,
                                        .chunks = 1};
    task->plan = &task->no_plan;
}

void disti_on_node_post(struct dist_engine *engine, struct engine_task *task)
{
    struct dist_call call = task->call;

    call.in = task->base[DISTI_IN];
    call.out = task->base[DISTI_OUT];
    disti_node_start(engine->node, &call, task->fingerprint, engine->calls.history, &task->node_op);
}

bool disti_on_node_begin(struct dist_engine *engine, const struct dist_call *call,
                         uint64_t fingerprint, struct disti_node_op *op, dist_status *status_p)
{
    uint64_t history;
    int moved = 0;

    if (engine->head || engine->p2p_head || call->op == DIST_PREMUL_SUM ||
        !disti_on_node(engine, call))
        return false;
    history = disti_mismatch_called(&engine->calls, call->sequence, fingerprint);
    disti_node_start(engine->node, call, fingerprint, history, op);
    *status_p = disti_node_advance(engine->node, op, &moved);
    return true;
}

dist_status disti_on_node_look(struct dist_engine *engine, const struct dist_call *call,
                               struct disti_node_op *op)
{
    bool crowded = call->waits && disti_node_is_crowded(engine->node);
    bool is_long = op->largest * op->element_bytes > NODE_TRY_MAX;
    int looks = crowded ? NODE_TURNS : call->waits ? NODE_LOOKS : NODE_LOOKS_ASYNC;
    dist_status status = DIST_IN_PROGRESS;
    int moved = 0;

    if (crowded)
        disti_node_lead_learn(engine->node, op);
    for (int i = is_long ? 0 : looks; i > 0 && status == DIST_IN_PROGRESS; i--) {
        if (crowded)
            sched_yield();
        status = disti_node_advance(engine->node, op, &moved);
    }
    return status;
}

static dist_status node_mismatch(const struct dist_engine *engine, const struct engine_task *task)
{
    const struct disti_node_op *op = &task->node_op;
    struct dist_request request = {.peer = op->peer,
                                   .envelope = {.fingerprint = op->mine, .bytes = op->expected},
                                   .arrived = {.fingerprint = op->theirs, .bytes = op->sent}};

    return disti_mismatch(&request, engine->config->rank, op->sequence);
}

dist_status disti_on_node_advance(struct dist_engine *engine, struct engine_task *task, int *moved)
{
    dist_status status = disti_node_advance(engine->node, &task->node_op, moved);

    return status == DIST_ERR_MISMATCH ? node_mismatch(engine, task) : status;
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

void disti_on_node_abandon(struct dist_engine *engine)
{
    const struct engine_task *task = node_first(engine);
    const struct disti_node_op *op = task ? &task->node_op : engine->begun;

    if (op)
        disti_node_abandon(engine->node, op);
}
