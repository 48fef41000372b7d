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

/* In the node's call of that number. */
static dist_status op_mismatch(const struct disti_node *node, struct disti_node_op *op,
                               uint64_t number, int peer, uint64_t theirs)
{
    op->peer = peer;
    op->mine = node->board->slots[number % NODE_SLOTS].fingerprint;
    op->theirs = theirs;
    op->sequence = node->sequences[number % NODE_SLOTS];
    return DIST_ERR_MISMATCH;
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
        if (slot->fingerprint != op->fingerprint)
            return op_mismatch(node, op, op->number, op->seen, slot->fingerprint);
    }
    return DIST_OK;
}

/* The call that all must have begun so that this one's slot is free; 0: none. */
static uint64_t op_before(const struct disti_node_op *op)
{
    return op->number < NODE_SLOTS ? 0 : op->number - (NODE_SLOTS - 1);
}

/*
 * What that rank's call of the number was: IN_PROGRESS, it has not begun it; ERR_MISMATCH, another
 * one. It may have left the call behind: then its slot holds a later one, or half of it, and the
 * stage says so.
 */
static dist_status op_look_back(const struct disti_node *node, struct disti_node_op *op,
                                uint64_t number, int rank)
{
    struct node_slot *slot = &node->peers[rank].board->slots[number % NODE_SLOTS];
    uint64_t theirs;

    if (atomic_load_explicit(&slot->stage, memory_order_acquire) < node_stage(number, 0))
        return DIST_IN_PROGRESS;
    theirs = atomic_load_explicit(&slot->fingerprint, memory_order_acquire);
    if (theirs == node->board->slots[number % NODE_SLOTS].fingerprint ||
        atomic_load_explicit(&slot->stage, memory_order_relaxed) >=
            node_writing(number + NODE_SLOTS))
        return DIST_OK;
    return op_mismatch(node, op, number, rank, theirs);
}

/*
 * Is the slot free? And was the last call the same to all that have begun it? Most calls are seen
 * to be the same as they run, but a root alone need not look at anybody.
 */
static dist_status op_admit(struct disti_node *node, struct disti_node_op *op)
{
    uint64_t begun = op_before(op), last = op->number - 1;

    for (; last > node->confirmed && op->admitted < node->ranks; op->admitted++) {
        dist_status status = op_look_back(node, op, last, op->admitted);

        if (status == DIST_IN_PROGRESS && begun > node->confirmed)
            status = op_look_back(node, op, begun, op->admitted);
        else if (status == DIST_IN_PROGRESS)
            status = DIST_OK;
        if (status != DIST_OK)
            return status;
    }
    if (begun > node->confirmed)
        node->confirmed = begun;
    return DIST_OK;
}

/* ---- its course ---- */

static dist_status op_enter(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    struct node_slot *slot = node_slot(node->board, op);
    dist_status status = op_admit(node, op);

    if (status != DIST_OK)
        return status;
    node->sequences[op->number % NODE_SLOTS] = op->call.sequence;
    atomic_store_explicit(&slot->stage, node_writing(op->number), memory_order_relaxed);
    atomic_store_explicit(&slot->fingerprint, op->fingerprint, memory_order_release);
    if (op->way == NODE_WAY_BOARD && node_is(pattern->givers, op, node->rank) && op->call.count)
        memcpy(slot->data, op->call.in,
               op->call.count * op->element_bytes * node_blocks(node, pattern));
    if (op->way != NODE_WAY_BOARD) {
        status = disti_node_publish(node, op);
        if (status != DIST_OK)
            return status;
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
    if (bytes >= NODE_PREFETCH_MIN)
        node_prefetch_write(&node->board->slots[(op->number + 1) % NODE_SLOTS],
                            bytes + offsetof(struct node_slot, data));
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

/* What the work of a stage of a long call begins with, once: all are there. */
static dist_status op_turn(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    node->confirmed = op->number;
    if (op->stage == 0)
        status = disti_node_resolve(node, op);
    if (status == DIST_OK && op->way != NODE_WAY_DIRECT && op->stage > 0)
        disti_node_drain(node, op, op->stage - 1);
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
    disti_node_take_back(node, op);
    disti_node_record(node, op);
    node->rounds += op->way == NODE_WAY_DIRECT ? 0 : op->rounds;
    return DIST_OK;
}

/* The round is done: says so, and has the next one filled. */
static dist_status op_next_stage(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = disti_node_op_go(op, NODE_OP_WAITING);

    if (status != DIST_OK)
        return status;
    if (op->past)
        disti_node_store_fence();
    op->done = 0;
    op->round++;
    if (op->way != NODE_WAY_DIRECT && op->round < op->rounds)
        disti_node_fill(node, op, op->round);
    op->stage++;
    op->seen = 0;
    op_publish(node, op, op->stage);
    return DIST_IN_PROGRESS;
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
    if (op->stage == op->rounds)
        return op_finish_long(node, op);
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

dist_status disti_node_compare(const struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    for (int r = 0; op->state != NODE_OP_POSTED && r < node->ranks && status != DIST_ERR_MISMATCH;
         r++)
        status = op_look_back(node, op, op->number, r);
    return status == DIST_ERR_MISMATCH ? status : DIST_OK;
}

bool disti_node_waits_for(const struct disti_node *node, const struct disti_node_op *op, int rank)
{
    bool posted = op->state == NODE_OP_POSTED;
    uint64_t number = posted ? op_before(op) : op->number;
    uint64_t want = node_stage(number, posted ? 0 : op->stage);
    struct node_slot *slot = &node->peers[rank].board->slots[number % NODE_SLOTS];

    return (posted || op_waits_for(node, op, rank)) &&
           atomic_load_explicit(&slot->stage, memory_order_seq_cst) < want;
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
