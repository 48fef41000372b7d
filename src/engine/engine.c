/* SPDX-License-Identifier: BSD-3-Clause */
/* The engine: a queue of calls, run side by side over the links. */
#include "engine/engine.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "engine/state.h"

#include <stdio.h>
#include <stdlib.h>

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
    status = disti_on_node_open(engine, node);
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

/* Takes the task behind `before` (NULL: the first) out of the queue. */
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
    disti_task_retire(engine, task);
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

    if (task->state == TASK_POSTED && engine_may_start(engine, task))
        status = disti_task_start(task);
    if (status != DIST_OK)
        return status;
    if (task->state != TASK_RUNS || (task->on_node && node_busy))
        return DIST_IN_PROGRESS;
    return disti_task_advance(engine, task, moved);
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
        if (!disti_on_node_begin(engine, call, fingerprint, op, status_p))
            return false;
        disti_again_learn(engine, call, op);
    }
    if (*status_p == DIST_IN_PROGRESS)
        *status_p = disti_on_node_look(engine, call, op);
    if (*status_p == DIST_OK && call->collective == DIST_COLL_BARRIER && call->waits)
        disti_node_lead_follow(engine->node, op);
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
    status = disti_task_create(engine, call, ticket, &task);
    if (status != DIST_OK)
        return status;
    if (!begun)
        disti_mismatch_called(&engine->calls, call->sequence, fingerprint);
    if (begun)
        task->node_op = op;
    else if (task->on_node)
        disti_on_node_post(engine, task);
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
    struct engine_task *task = NULL;
    dist_status status = DIST_OK;

    if (!disti_collective_pair(call->collective))
        status = disti_task_prepare(engine, call, &task);
    if (status == DIST_OK)
        *prepared_p = task;
    return status;
}

void disti_engine_release(struct dist_engine *engine, void *prepared)
{
    if (prepared)
        disti_task_release(engine, prepared);
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
    else if (task && task->state == TASK_RUNS)
        disti_task_describe(engine, task, text, size);
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
    disti_on_node_abandon(engine);
    disti_node_close(engine->node);
    disti_task_clear(engine);
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

dist_status disti_cache_plan(struct dist_engine *engine, const struct dist_call *call,
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
