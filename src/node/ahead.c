/* SPDX-License-Identifier: BSD-3-Clause */
/* How far a rank may be ahead of the others, whom it waits for, and whether they were called the
 * same. */
#include "node/state.h"

#include <stdio.h>

/*
 * A rank that only gives ends its call when its data stand on its board, and goes on until its
 * slots are full. Then it looks how far the others have come, and waits until they have half of
 * them behind them, so that it need not look again for as many calls:
 *
 *     number   c - s                c - s / 2              c
 *     ---------|--------------------|----------------------|
 *              confirmed: all       awaited: all must      begun next
 *              have begun it        have begun it
 *
 * In that look it compares the others' histories with its own. A call that differed before in
 * vain, since nobody waited in it, so is found s calls later at most; or in the first in which a
 * rank waits for another. Nobody loses sight of the calls that differ first: to write over them a
 * rank must have compared the calls behind them.
 */

/* ---- what was called ---- */

static uint64_t ahead_begun(const struct disti_node *node, int rank)
{
    return atomic_load_explicit(&node->peers[rank].board->begun, memory_order_acquire);
}

static uint64_t ahead_fingerprint(const struct disti_node *node, int rank, uint64_t number)
{
    struct node_board *board = node->peers[rank].board;

    return atomic_load_explicit(&board->slots[node_slot_number(node, number)].fingerprint,
                                memory_order_acquire);
}

dist_status disti_node_differs(const struct disti_node *node, struct disti_node_op *op,
                               uint64_t number, int rank)
{
    uint64_t first = number <= node->last_slot ? 1 : number - node->last_slot;

    if (first <= node->confirmed)
        first = node->confirmed + 1;
    while (first < number &&
           ahead_fingerprint(node, node->rank, first) == ahead_fingerprint(node, rank, first))
        first++;
    op->peer = rank;
    op->mine = ahead_fingerprint(node, node->rank, first);
    op->theirs = ahead_fingerprint(node, rank, first);
    op->sequence = node->sequences[node_slot_number(node, first)];
    return op->mine == op->theirs ? DIST_OK : DIST_ERR_MISMATCH;
}

/*
 * Were all calls the same that both this rank and that one have begun? The other may have left the
 * last of them behind: then its slot holds a later call, or half of it, and the stage says so.
 */
static dist_status ahead_compare(const struct disti_node *node, struct disti_node_op *op, int rank)
{
    uint64_t mine = ahead_begun(node, node->rank), theirs = ahead_begun(node, rank);
    uint64_t number = theirs < mine ? theirs : mine;
    size_t at = node_slot_number(node, number);
    struct node_slot *slot = &node->peers[rank].board->slots[at];
    uint64_t history;

    if (number <= node->confirmed)
        return DIST_OK;
    history = atomic_load_explicit(&slot->history, memory_order_acquire);
    if (history == node->board->slots[at].history ||
        atomic_load_explicit(&slot->stage, memory_order_relaxed) >=
            node_writing(number + node->last_slot + 1))
        return DIST_OK;
    return disti_node_differs(node, op, number, rank);
}

dist_status disti_node_compare(const struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    for (int r = 0; r < node->ranks && status == DIST_OK; r++)
        status = ahead_compare(node, op, r);
    return status;
}

/* ---- how far ahead ---- */

/* The call that all must have begun before this one is, if it has to wait. */
static uint64_t ahead_awaited(const struct disti_node_op *op)
{
    uint64_t half = op->depth / 2;

    return op->number < half ? 0 : op->number - half;
}

bool disti_node_is_behind(const struct disti_node *node, const struct disti_node_op *op, int rank)
{
    return rank != node->rank && atomic_load_explicit(&node->peers[rank].board->begun,
                                                      memory_order_seq_cst) < ahead_awaited(op);
}

bool disti_node_has_begun(const struct disti_node *node, int rank, uint64_t number)
{
    return ahead_begun(node, rank) >= number;
}

dist_status disti_node_admit(struct disti_node *node, struct disti_node_op *op)
{
    if (op->number - node->confirmed < op->depth)
        return DIST_OK;
    for (; op->admitted < node->ranks; op->admitted++) {
        bool behind = disti_node_is_behind(node, op, op->admitted);
        dist_status status = ahead_compare(node, op, op->admitted); /* all that it has begun */

        if (status != DIST_OK || behind)
            return status == DIST_OK ? DIST_IN_PROGRESS : status;
    }
    node->confirmed = ahead_awaited(op);
    return DIST_OK;
}

/* ---- for whom it waits ---- */

bool disti_node_waits_for(const struct disti_node *node, const struct disti_node_op *op, int rank)
{
    struct node_slot *slot = node_slot(node->peers[rank].board, op);

    if (op->state == NODE_OP_POSTED)
        return disti_node_is_behind(node, op, rank);
    if (op->paired && op->stage > node->peers[rank].last)
        return false;
    return rank != node->rank && rank >= op->first && rank < op->end &&
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
