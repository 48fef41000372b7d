/* SPDX-License-Identifier: BSD-3-Clause */
/* A call on the boards, from stage to stage. */
#include "base/log.h"
#include "node/pairs/course.h"
#include "node/short.h"

#include <stddef.h>
#include <string.h>

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

/* Have all that are awaited reached the op's stage? */
static inline dist_status op_poll(struct disti_node *node, struct disti_node_op *op)
{
    bool apart = op->paired && op->stage;
    uint64_t want = node_stage(op->number, op->stage), history = op->history;
    size_t at = op->slot;
    const struct node_peer *peers = node->peers;
    int r = op->seen, end = op->end, rank = node->rank;

    for (; r < end; r++) {
        struct node_slot *slot = &peers[r].board->slots[at];

        if (r == rank || (apart && op->stage > peers[r].last))
            continue;
        if (atomic_load_explicit(&slot->stage, memory_order_acquire) < want)
            break;
        if (atomic_load_explicit(&slot->history, memory_order_relaxed) != history &&
            disti_node_differs(node, op, op->number, r) != DIST_OK)
            return DIST_ERR_MISMATCH;
    }
    op->seen = r;
    return r < end ? DIST_IN_PROGRESS : DIST_OK;
}

/* ---- its course ---- */

static void op_begin(struct disti_node *node, const struct disti_node_op *op)
{
    short_begin(node, op->slot, op->number, op->call.sequence, op->fingerprint, op->history);
}

/* Do its data stand in areas, and are they so long that it matters how they are put there? */
static bool op_has_gait(const struct disti_node_op *op)
{
    return op->in_area && op->chosen && (!op->paired || op->given > NODE_SHORT_MAX);
}

static void op_show_area(struct disti_node *node, struct disti_node_op *op)
{
    disti_node_area_begin(node, op);
    if (op->given) {
        node_take_area(node, node_slot(node->board, op), op->given);
        disti_node_move((char *)node_given(node->self, op), op->call.in, op->given,
                        node_window_gait(op));
    }
    disti_node_area_shown(op);
}

static dist_status op_show_short(struct disti_node *node, struct disti_node_op *op)
{
    op_begin(node, op);
    if (op_has_gait(op))
        op_show_area(node, op);
    else
        short_show(node, node_slot(node->board, op), op);
    return disti_node_op_go(op, NODE_OP_WAITING);
}

static dist_status op_show_long(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status;

    op_begin(node, op);
    status = disti_node_publish(node, op);
    if (status != DIST_OK)
        return status;
    disti_node_mover_show(node, op);
    disti_node_gait_choose(node, op, disti_node_may_go_past(node, op));
    if (!op->cma)
        disti_node_mover_fill(node, op);
    return disti_node_op_go(op, NODE_OP_WAITING);
}

static dist_status op_show_pairs(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status;

    op_begin(node, op);
    if (op_has_gait(op))
        disti_node_area_begin(node, op);
    status = disti_node_pairs_show(node, op);
    if (op_has_gait(op))
        disti_node_area_shown(op);
    return status == DIST_OK ? disti_node_op_go(op, NODE_OP_WAITING) : status;
}

/* Which way its data go: once. */
static void op_choose(struct disti_node *node, struct disti_node_op *op)
{
    if (op->paired && !op->chosen)
        disti_node_pairs_choose(node, op);
    else if (!op->paired && op->way == NODE_WAY_WINDOWS)
        disti_node_mover_choose(node, op);
}

static dist_status op_enter(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status;

    op_choose(node, op);
    status = disti_node_admit(node, op);
    if (status == DIST_OK && op->paired)
        status = op_show_pairs(node, op);
    else if (status == DIST_OK && op->way == NODE_WAY_BOARD)
        status = op_show_short(node, op);
    else if (status == DIST_OK)
        status = op_show_long(node, op);
    if (status != DIST_OK)
        return status;
    if (!op->paired || op->place == NODE_IN_MEMORY || op->number % SHORT_CPU_CALLS == 0)
        disti_node_publish_cpu(node);
    short_publish(node, node_slot(node->board, op), node_stage(op->number, 0));
    return DIST_OK;
}

static dist_status op_finish_short(struct disti_node *node, struct disti_node_op *op)
{
    const bool gait = op_has_gait(op);
    dist_status status;

    if (gait)
        disti_node_area_take(op);
    status = op->paired ? disti_node_pairs_take(node, op) : DIST_OK;
    if (status == DIST_OK)
        status = disti_node_op_go(op, NODE_OP_ENDED);
    if (status == DIST_OK)
        short_take(node, op, op->number);
    if (gait)
        disti_node_area_end(node, op);
    return status;
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

    if (op->met)
        node->confirmed = op->number;
    if (op->stage == 0) {
        status = op->paired ? disti_node_pairs_resolve(node, op) : disti_node_resolve(node, op);
        if (status == DIST_OK && (!op->paired || op->together))
            disti_node_mover_begin(node, op);
    }
    if (status == DIST_OK && !op->paired && op_has_windows(op) && op->stage > op->base)
        disti_node_work_drain(node, op, op->stage - op->base - 1);
    if (op->gait & NODE_PAST) /* before anybody is told that the call has ended */
        disti_node_store_fence();
    return status == DIST_OK ? disti_node_op_go(op, NODE_OP_WORKING) : status;
}

/* The last stage of a long call: nobody needs this rank's part any more. */
static dist_status op_finish_long(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = disti_node_op_go(op, NODE_OP_ENDED);

    if (status != DIST_OK)
        return status;
    if (op->paired) {
        short_prefetch_next(node, op, op->given);
    } else {
        disti_node_take_back(node, op);
        disti_node_record(node, op);
    }
    disti_node_mover_end(node, op);
    if (!op->paired || op->together)
        disti_node_gait_learn(node, op);
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
    op->seen = op->first;
    short_publish(node, node_slot(node->board, op), node_stage(op->number, op->stage));
    return DIST_IN_PROGRESS;
}

/* The kernel has not copied all, or not all could go without windows. */
static bool op_must_again(struct disti_node *node, struct disti_node_op *op)
{
    if (op->paired)
        return disti_node_pairs_remain(node, op);
    return op->way == NODE_WAY_CMA && disti_node_cma_failed(node, op);
}

/* The same once more, through windows. */
static dist_status op_begin_again(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = op->paired ? disti_node_pairs_to_windows(node, op)
                                    : disti_node_resolve_to_windows(node, op);

    if (status != DIST_OK)
        return status;
    op->round = 0;
    op->base = op->stage + 1;
    disti_node_work_fill(node, op, op->round);
    return op_reach(node, op);
}

/* The round is done: says so, and has the next one filled. */
static dist_status op_next_stage(struct disti_node *node, struct disti_node_op *op)
{
    op->done = 0;
    op->others = 0;
    op->round++;
    if (op_has_windows(op) && op->round < op->rounds)
        disti_node_work_fill(node, op, op->round);
    return op_reach(node, op);
}

/*
 * Some of a stage's work; true: that was the rest. A rank that has given up may use its memory for
 * something else: the board says that this one writes before it looks who is gone (cma.c).
 */
static bool op_bite(struct disti_node *node, struct disti_node_op *op)
{
    _Atomic int32_t *writes_to = &node->board->writes_to;
    bool ended;

    if (!op_has_windows(op)) {
        atomic_store_explicit(writes_to, NODE_TO_ANY, memory_order_seq_cst);
        atomic_thread_fence(memory_order_seq_cst);
    }
    disti_node_check_gone(node);
    ended = !op_is_lost(node, op) && disti_node_work(node, op);
    if (op->gait & (NODE_PAST | NODE_STREAMS)) /* which may come later than the next store */
        disti_node_store_fence();
    if (!op_has_windows(op)) /* the others look at this line in every call */
        atomic_store_explicit(writes_to, NODE_TO_NONE, memory_order_release);
    return ended;
}

/* One bite of a stage of a long call that all have reached. OK: the call has ended. */
static dist_status op_step(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = op->state == NODE_OP_WAITING ? op_turn(node, op) : DIST_OK;

    if (status != DIST_OK)
        return status;
    if (op->stage == op->base + op->rounds)
        return op_must_again(node, op) ? op_begin_again(node, op) : op_finish_long(node, op);
    if (!op_bite(node, op))
        return DIST_IN_PROGRESS;
    return op->paired && !op->together ? op_finish_long(node, op) : op_next_stage(node, op);
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
    if (op->paired && op->stage == 0 && op->state == NODE_OP_WAITING &&
        disti_node_pairs_are_short(node, op))
        return op_finish_short(node, op);
    return op->way == NODE_WAY_BOARD ? op_finish_short(node, op) : op_step(node, op);
}

/* ---- once more ---- */

bool disti_node_can_start_again(const struct disti_node *node, const struct disti_node_op *op)
{
    bool fits =
        op->paired ? disti_node_pairs_recur(node, op) : op->way == NODE_WAY_BOARD && !op->chosen;

    return fits && !op->call.reduction && !op->call.list &&
           !(disti_node_is_crowded(node) && op->met);
}

__attribute__((cold, noinline)) dist_status
disti_node_op_left(struct disti_node_op *op, const struct dist_call *call, uint64_t history)
{
    op->call.sequence = call->sequence;
    op->history = history;
    op->seen = op->first;
    op->state = NODE_OP_WAITING;
    return DIST_IN_PROGRESS;
}

dist_status disti_node_start_again(struct disti_node *node, const struct dist_call *call,
                                   uint64_t history, struct disti_node_op *op)
{
    uint64_t number = node->calls + 1;
    size_t at = node_slot_number(node, number);
    struct node_slot *slot = &node->board->slots[at];

    if (op->paired)
        return disti_node_pairs_again(node, call, history, op);
    if (number - node->confirmed >= op->depth || node->gone >= 0)
        return DIST_ERR_UNSUPPORTED;
    node->calls = op->number = number;
    op->slot = at;
    op->call.in = call->in;
    op->call.out = call->out;
    short_begin(node, at, number, call->sequence, op->fingerprint, history);
    short_show(node, slot, op);
    if (number % SHORT_CPU_CALLS == 0)
        disti_node_publish_cpu(node);
    short_publish(node, slot, node_stage(number, 0));
    if (!short_has_all(op, at, number, history))
        return disti_node_op_left(op, call, history);
    short_take(node, op, number);
    return DIST_OK;
}
