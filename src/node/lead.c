/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that share CPUs leave a barrier one after another, who came last first. If those that a
 * rooted call's takers wait for are not among the first, the takers only give up their CPUs again
 * there. So who has waited in the call behind a barrier lets those go first at the next barrier's
 * end, as long as that same call comes behind each:
 *
 *    barrier                  | broadcast: yields until the root has begun it      learned
 *    barrier: the same yields | broadcast: the data are there                      kept
 *    barrier: the same yields | something else                                     forgotten
 *
 * In a broadcast or scatter that is the root, in a gather or reduce all others. Where all wait for
 * each other nobody gains by being late.
 */
#include "node/state.h"

#include <sched.h>

/* So often it gives its CPU up: some microseconds, if nobody wants it. */
#define LEAD_TURNS 16

/* Does who takes in this call wait for others that do not wait for it, as what they give stands on
 * a board? */
static bool lead_is_one_way(const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (pattern->givers == pattern->takers)
        return false;
    return op->paired ? op->place != NODE_IN_MEMORY : op->way == NODE_WAY_BOARD;
}

void disti_node_lead_learn(struct disti_node *node, const struct disti_node_op *op)
{
    if (op->number != node->lead.barrier + 1 || op->first == op->end || !lead_is_one_way(op))
        return;
    node->lead.first = op->first;
    node->lead.end = op->end;
    node->lead.fingerprint = op->fingerprint;
}

/* Did that call come behind the barrier before this one? Its slot stands until the next is in it.
 */
static bool lead_was_right(const struct disti_node *node, uint64_t number)
{
    uint64_t behind = node->lead.barrier + 1;
    const struct node_slot *slot = &node->board->slots[node_slot_number(node, behind)];

    return number - behind <= node->last_slot &&
           atomic_load_explicit(&slot->fingerprint, memory_order_relaxed) == node->lead.fingerprint;
}

/* True: those it waits for have begun the call behind the barrier. */
static bool lead_yield(const struct disti_node *node)
{
    int turns = 0;

    for (int r = node->lead.first; r < node->lead.end; r++) {
        while (r != node->rank && !disti_node_has_begun(node, r, node->lead.barrier + 1)) {
            if (turns++ == LEAD_TURNS)
                return false;
            sched_yield();
        }
    }
    return true;
}

void disti_node_lead_follow(struct disti_node *node, const struct disti_node_op *op)
{
    bool right = node->lead.end > node->lead.first && lead_was_right(node, op->number);

    node->lead.barrier = op->number;
    if (!right || !lead_yield(node))
        node->lead.end = node->lead.first;
}
