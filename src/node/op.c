/* SPDX-License-Identifier: BSD-3-Clause */
/* A call on the boards, from stage to stage. */
#include "base/log.h"
#include "node/state.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/*
 * Long, in rounds of what a window holds (r of them; or one, if all data are in segments):
 *
 *   stage 0         stage 1         stage 2                stage r
 *   fill 0  | all   work 0  | all   drain 0  | all  ...   drain r - 1
 *   shown   | there fill 1  | there work 1   | there
 *                                   fill 2
 *
 * While one rank fills the window for round k + 1, a slower one may still drain round k - 1: hence
 * three rounds of a window. What is direct has neither fill nor drain.
 */

/* The arrows of the drawing in node.h, by where they begin. */
static const uint8_t op_arrows[] = {
    [NODE_OP_POSTED] = 1 << NODE_OP_WAITING,
    [NODE_OP_WAITING] = 1 << NODE_OP_WORKING | 1 << NODE_OP_ENDED,
    [NODE_OP_WORKING] = 1 << NODE_OP_WAITING | 1 << NODE_OP_ENDED,
    [NODE_OP_ENDED] = 0,
};

/* Apart and cold, so that the check is one branch that is not taken. */
__attribute__((cold, noinline)) static dist_status op_refuse(const struct disti_node_op *op,
                                                             enum disti_node_op_state to)
{
    return disti_fail(DIST_ERR_INTERNAL, "a call in shared memory cannot go from state %d to %d",
                      (int)op->state, (int)to);
}

dist_status disti_node_op_go(struct disti_node_op *op, enum disti_node_op_state to)
{
    if (!(op_arrows[op->state] & 1 << to))
        return op_refuse(op, to);
    op->state = to;
    return DIST_OK;
}

/* ---- saying and hearing how far one is ---- */

/* The store must stand before the look at who sleeps: presence.c says how, without a fence or with.
 */
static void op_publish(struct disti_node *node, struct disti_node_op *op, uint32_t stage)
{
    _Atomic uint64_t *mine = &node_slot(node->board, op)->stage;

    if (node->fences)
        atomic_store_explicit(mine, node_stage(op->number, stage), memory_order_seq_cst);
    else
        atomic_store_explicit(mine, node_stage(op->number, stage), memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    disti_node_ring(node);
}

/* Does this rank wait for that one? In a long call all keep step. */
static bool op_waits_for(const struct disti_node *node, const struct disti_node_op *op, int rank)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (rank == node->rank)
        return false;
    return op->way != NODE_WAY_BOARD ||
           (node_is(pattern->takers, op, node->rank) && node_is(pattern->givers, op, rank));
}

/* Have all that are awaited reached the op's stage? */
static dist_status op_poll(struct disti_node *node, struct disti_node_op *op)
{
    uint64_t want = node_stage(op->number, op->stage);

    for (; op->seen < node->ranks; op->seen++) {
        struct node_slot *slot;

        if (!op_waits_for(node, op, op->seen))
            continue;
        slot = node_slot(node->peers[op->seen].board, op);
        if (atomic_load_explicit(&slot->stage, memory_order_acquire) < want)
            return DIST_IN_PROGRESS;
        if (atomic_load_explicit(&slot->history, memory_order_relaxed) != node->history)
            return disti_node_differs(node, op, op->number, op->seen);
    }
    return DIST_OK;
}

/* ---- its course ---- */

static dist_status op_enter(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    dist_status status;

    if (op->way == NODE_WAY_WINDOWS)
        disti_node_mover_choose(node, op);
    status = disti_node_admit(node, op);
    if (status != DIST_OK)
        return status;
    disti_node_begin(node, op);
    if (op->way == NODE_WAY_BOARD && node_is(pattern->givers, op, node->rank) && op->call.count)
        memcpy(node_given(node->board, op), op->call.in,
               op->call.count * op->element_bytes * node_blocks(node, pattern));
    if (op->way != NODE_WAY_BOARD) {
        status = disti_node_publish(node, op);
        if (status != DIST_OK)
            return status;
        disti_node_mover_show(node, op);
        if (!op->cma)
            disti_node_fill(node, op, 0);
    }
    status = disti_node_op_go(op, NODE_OP_WAITING);
    if (status != DIST_OK)
        return status;
    disti_node_publish_cpu(node);
    op_publish(node, op, 0);
    return DIST_OK;
}

/*
 * The next call's slot has been read by all, and so is in their caches: it is fetched back for
 * writing while the others' data are on their way.
 */
static void op_prefetch_next(struct disti_node *node, const struct disti_node_op *op, size_t bytes)
{
    uint64_t next = op->number + 1;

    if (bytes < NODE_PREFETCH_MIN)
        return;
    node_prefetch_write(&node->board->slots[next % NODE_SLOTS], sizeof(struct node_slot));
    if (op->in_area)
        node_prefetch_write(&node->board->areas[next % NODE_AREAS], bytes);
}

static dist_status op_finish_short(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    dist_status status = disti_node_op_go(op, NODE_OP_ENDED);

    if (status != DIST_OK)
        return status;
    if (pattern->givers == NODE_ALL && node_is(pattern->takers, op, node->rank))
        node->confirmed = op->number;
    if (node_is(pattern->givers, op, node->rank))
        op_prefetch_next(node, op, op->call.count * op->element_bytes * node_blocks(node, pattern));
    if (!op->call.count || !node_is(pattern->takers, op, node->rank))
        return DIST_OK;
    if (pattern->reduces)
        disti_node_reduce_short(node, op);
    else
        disti_node_copy_short(node, op);
    return DIST_OK;
}

/* Has a rank given up this call? */
static bool op_is_lost(const struct disti_node *node, const struct disti_node_op *op)
{
    return node->gone >= 0 && op->number >= node->gone_from;
}

static bool op_has_windows(const struct disti_node_op *op)
{
    return op->way == NODE_WAY_WINDOWS || op->way == NODE_WAY_SWAPPED;
}

/* What the work of a stage of a long call begins with, once: all are there. */
static dist_status op_turn(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    node->confirmed = op->number;
    if (op->stage == 0) {
        status = disti_node_resolve(node, op);
        disti_node_mover_begin(node, op);
    }
    if (status == DIST_OK && op_has_windows(op) && op->stage > op->base)
        disti_node_drain(node, op, op->stage - op->base - 1);
    if (op->past) /* before anybody is told that the call has ended */
        disti_node_store_fence();
    return status == DIST_OK ? disti_node_op_go(op, NODE_OP_WORKING) : status;
}

static bool op_work(struct disti_node *node, struct disti_node_op *op)
{
    return disti_node_pattern(op->call.collective)->reduces ? disti_node_reduce_some(node, op)
                                                            : disti_node_copy_some(node, op);
}

/* The last stage of a long call: nobody needs this rank's part any more. */
static dist_status op_finish_long(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = disti_node_op_go(op, NODE_OP_ENDED);

    if (status != DIST_OK)
        return status;
    disti_node_record(node, op);
    disti_node_mover_end(node, op);
    node->rounds += op_has_windows(op) ? op->rounds : 0;
    return DIST_OK;
}

/* This rank's part of the stage is done: the others are told, and awaited. */
static dist_status op_reach(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = disti_node_op_go(op, NODE_OP_WAITING);

    if (status != DIST_OK)
        return status;
    op->stage++;
    op->seen = 0;
    op_publish(node, op, op->stage);
    return DIST_IN_PROGRESS;
}

/* The kernel has not copied all: the same once more, through windows. */
static dist_status op_begin_again(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = disti_node_resolve_to_windows(node, op);

    if (status != DIST_OK)
        return status;
    op->round = 0;
    op->base = op->stage + 1;
    disti_node_fill(node, op, 0);
    return op_reach(node, op);
}

/* The round is done: says so, and has the next one filled. */
static dist_status op_next_stage(struct disti_node *node, struct disti_node_op *op)
{
    if (op->past)
        disti_node_store_fence();
    op->done = 0;
    op->others = 0;
    op->round++;
    if (op_has_windows(op) && op->round < op->rounds)
        disti_node_fill(node, op, op->round);
    return op_reach(node, op);
}

/* One bite of a stage of a long call that all have reached. OK: the call has ended. */
static dist_status op_step(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = op->state == NODE_OP_WAITING ? op_turn(node, op) : DIST_OK;

    if (status != DIST_OK)
        return status;
    disti_node_check_gone(node); /* its memory may be the program's again: not a bite more */
    if (op_is_lost(node, op))
        return DIST_IN_PROGRESS;
    if (op->stage == op->base + op->rounds)
        return op->way == NODE_WAY_CMA && disti_node_cma_failed(node, op)
                   ? op_begin_again(node, op)
                   : op_finish_long(node, op);
    return op_work(node, op) ? op_next_stage(node, op) : DIST_IN_PROGRESS;
}

dist_status disti_node_advance(struct disti_node *node, struct disti_node_op *op, int *moved)
{
    dist_status status = op->state == NODE_OP_POSTED ? op_enter(node, op) : DIST_OK;

    if (status == DIST_OK && op_is_lost(node, op))
        status = disti_fail(DIST_ERR_PEER_LOST,
                            "rank %d gave up a call that it had begun: its own output says why",
                            node->gone);
    if (status != DIST_OK)
        return status;
    status = op_poll(node, op);
    if (status == DIST_IN_PROGRESS)
        disti_node_migrate_cpu(node);
    if (status != DIST_OK)
        return status;
    ++*moved;
    return op->way == NODE_WAY_BOARD ? op_finish_short(node, op) : op_step(node, op);
}

bool disti_node_waits_for(const struct disti_node *node, const struct disti_node_op *op, int rank)
{
    struct node_slot *slot = node_slot(node->peers[rank].board, op);

    if (op->state == NODE_OP_POSTED)
        return disti_node_is_behind(node, op, rank);
    return op_waits_for(node, op, rank) &&
           atomic_load_explicit(&slot->stage, memory_order_seq_cst) <
               node_stage(op->number, op->stage);
}

void disti_node_describe(const struct disti_node *node, const struct disti_node_op *op, char *text,
                         size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int r = 0; r < node->ranks && used + 16 < size; r++) {
        if (disti_node_waits_for(node, op, r))
            used += (size_t)snprintf(text + used, size - used, "%srank %d", used ? ", " : "", r);
    }
}

bool disti_node_ready(const struct disti_node *node, const struct disti_node_op *op)
{
    for (int r = 0; r < node->ranks; r++) {
        if (disti_node_waits_for(node, op, r))
            return false;
    }
    return true;
}
