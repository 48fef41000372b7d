/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks that share CPUs leave a barrier one after another, who came last first. If the root of the
 * broadcast or scatter behind it is not among the first, they only give up their CPUs again there.
 * So who has waited for a root like that lets it go first at the next barrier's end, as long as
 * that same call comes behind each:
 *
 *    barrier                  | broadcast: yields until the root has begun it      learned
 *    barrier: the same yields | broadcast: the data are there                      kept
 *    barrier: the same yields | something else                                     forgotten
 */
#include "node/state.h"

#include <sched.h>

/* So often it gives its CPU up: some microseconds, if nobody wants it. */
#define LEAD_TURNS 16

void disti_node_lead_learn(struct disti_node *node, const struct disti_node_op *op)
{
    if (op->paired || op->met || !op->takes || op->number != node->lead.barrier + 1)
        return;
    node->lead.root = op->call.root;
    node->lead.fingerprint = op->fingerprint;
}

/* Did that call come behind the barrier before this one? Its slot stands until 32 calls later. */
static bool lead_was_right(const struct disti_node *node, uint64_t number)
{
    uint64_t behind = node->lead.barrier + 1;
    const struct node_slot *slot = &node->board->slots[behind % NODE_SLOTS];

    return number - behind < NODE_SLOTS &&
           atomic_load_explicit(&slot->fingerprint, memory_order_relaxed) == node->lead.fingerprint;
}

/* True: the root has begun the call behind the barrier. */
static bool lead_yield(const struct disti_node *node)
{
    int turns = 0;

    while (!disti_node_has_begun(node, node->lead.root, node->lead.barrier + 1)) {
        if (turns++ == LEAD_TURNS)
            return false;
        sched_yield();
    }
    return true;
}

void disti_node_lead_follow(struct disti_node *node, const struct disti_node_op *op)
{
    bool right = node->lead.root >= 0 && lead_was_right(node, op->number);

    node->lead.barrier = op->number;
    if (!right || !lead_yield(node))
        node->lead.root = -1;
}
