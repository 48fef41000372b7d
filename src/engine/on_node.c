/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls that need no messages: all ranks are on one machine and share memory. */
#include "base/dtype.h"
#include "base/log.h"
#include "engine/state.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
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

/* Finds the likely reason that the oldest call waits, for the error of its timeout. */

/* The messages of point to point that no receive has taken: of any tag, announcements included. */
#define HINT_MASK (DISTI_TAG_GROUP_MASK | UINT64_C(3) << 42 | UINT64_C(3) << 31)

/* A search for a message of a sender, and the oldest one found. */
struct hint_look {
    int from; /* the sender, or DIST_ANY_SOURCE */
    bool found;
    int peer;
    struct dist_envelope envelope;
};

static bool hint_see(void *arg, int peer, const struct dist_envelope *envelope)
{
    struct hint_look *look = arg;

    if (look->found || (look->from != DIST_ANY_SOURCE && look->from != peer))
        return false;
    look->found = true;
    look->peer = peer;
    look->envelope = *envelope;
    return false;
}

/* Only the endpoint's lock and what the visit of a transport changes are not const. */
static bool hint_find(const struct dist_engine *engine, struct hint_look *look)
{
    const uint64_t tag = disti_tag_p2p(engine->config->group, 0, 0);

    for (int i = 0; i < engine->link_count && !look->found; i++) {
        struct engine_attachment *link = (struct engine_attachment *)&engine->links[i];

        if (link->peers)
            disti_attachment_unexpected(link, tag, HINT_MASK, INT_MAX, hint_see, look);
    }
    return look->found;
}

static size_t hint_message(const struct hint_look *look, char *text, size_t size)
{
    return (size_t)snprintf(text, size,
                            "; a message with tag %u from rank %d (%llu bytes) has arrived, and no "
                            "receive takes it",
                            (unsigned)(look->envelope.tag & DIST_TAG_MAX), look->peer,
                            disti_message_bytes(&look->envelope));
}

void disti_engine_hint(const struct dist_engine *engine, const struct engine_task *task,
                       const struct engine_p2p *p2p, char *text, size_t size)
{
    if (!size)
        return;
    text[0] = '\0';
    if (!task && !p2p)
        return;
    /*
     * Writes the transport's text on the first peer that messages do not reach: one that is waited
     * for, or else any. A send ends before its message has arrived, so this rank may not wait for
     * its receiver.
     */
    const int ranks = engine->route ? engine->config->world_size : 0;
    for (int waits = 1; waits >= 0; waits--) {
        for (int peer = 0; peer < ranks && !text[0]; peer++) {
            if (peer != engine->config->rank && (task ? disti_task_waits_for(engine, task, peer)
                                                      : p2p->call.root == peer) == (bool)waits)
                disti_attachment_trouble(&engine->links[engine->route[peer]], peer, text, size);
        }
    }
    if (!text[0] && p2p) {
        /* A partner on this rank is missing, or the other rank is in the same kind of call. */
        const bool sends = p2p->call.collective == DIST_COLL_SEND;
        const int peer = p2p->call.root;
        struct hint_look look = {.from = peer};
        size_t used;
        if (p2p->state == P2P_HELD)
            return;
        if (peer == engine->config->rank) {
            snprintf(
                text, size,
                "; a message of a rank to itself needs both its calls, and this rank has posted "
                "no %s of tag %d: start one of the two with %s, or put both between "
                "dist_group_start and dist_group_end",
                sends ? "receive" : "send", p2p->call.tag, sends ? "dist_irecv" : "dist_isend");
            return;
        }
        if (!hint_find(engine, &look)) {
            if (sends)
                snprintf(text, size,
                         "; this send ends when its receive is posted: see whether rank %d "
                         "calls dist_recv with tag %d",
                         peer, p2p->call.tag);
            return;
        }
        used = hint_message(&look, text, size);
        if (used >= size)
            return;
        if (sends)
            snprintf(
                text + used, size - used,
                ": both ranks send first, and neither receives. Send with dist_isend, or put send "
                "and receive between dist_group_start and dist_group_end");
        else
            snprintf(text + used, size - used, ": this rank waits for tag %d. Use one tag on both",
                     p2p->call.tag);
    }
}
