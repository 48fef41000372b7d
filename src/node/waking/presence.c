/* SPDX-License-Identifier: BSD-3-Clause */
/* Who of the ranks sleeps and who is gone: going to sleep, and waking those that do. */
#include "node/waking/doorbell.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Who stores a stage and then looks who sleeps, and who says that it sleeps and then looks at the
 * stages, must not both look before the other's store is seen:
 *
 *     stage = 7                      presence = ASLEEP
 *     ------------ a fence on both sides, or one on all CPUs ------------
 *     presence == ASLEEP? ring           stage == 7? do not sleep
 *
 * A stage is stored in every call and drains the store buffer if it is fenced; a rank goes to sleep
 * rarely. So the one that sleeps has the kernel fence the CPUs of all processes that have
 * registered for it (membarrier(2)), and the other needs none. Where a rank cannot, all of them
 * fence.
 */
static bool presence_barrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

bool disti_node_can_fence(void)
{
    return presence_barrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

/* What it has ended before, the others may end too. */
static void presence_note_gone(struct disti_node *node, int rank)
{
    uint64_t from = node->peers[rank].board->gave_up;

    if (node->gone >= 0 && node->gone_from <= from)
        return;
    node->gone = rank;
    node->gone_from = from;
}

static uint32_t presence_asleep(int awaited)
{
    return NODE_ASLEEP | (uint32_t)awaited << NODE_AWAITS;
}

/* Of several that see it asleep one rings. `any`: whomever it waits for. */
static void presence_wake(struct disti_node *node, int rank, bool any)
{
    _Atomic uint32_t *place = &node->peers[rank].board->presence;
    uint32_t presence = atomic_load_explicit(place, memory_order_seq_cst);

    if (presence == NODE_GONE)
        presence_note_gone(node, rank);
    else if (presence != NODE_AWAKE && (any || presence == presence_asleep(node->rank)) &&
             atomic_compare_exchange_strong(place, &presence, NODE_AWAKE))
        disti_node_doorbell_ring(node, rank);
}

void disti_node_ring(struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++)
        presence_wake(node, r, false);
}

/*
 * Ranks often come in the order of their numbers, as they were started. So who waits for several
 * waits for the last, or each of them would wake it. -1: it waits for none.
 */
static int presence_awaited(const struct disti_node *node, const struct disti_node_op *op)
{
    int rank = node->ranks - 1;

    while (rank >= 0 && !disti_node_waits_for(node, op, rank))
        rank--;
    return rank;
}

/* The calling thread is the one that is to sleep. */
int disti_node_arm(struct disti_node *node, struct disti_node_op *op)
{
    int doorbell = disti_node_doorbell_listen(node), awaited = presence_awaited(node, op);

    node->armed = true;
    if (awaited < 0)
        return DIST_ARM_READY;
    atomic_store_explicit(&node->board->presence, presence_asleep(awaited), memory_order_seq_cst);
    if (!node->fences && !presence_barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED))
        return DIST_ARM_READY; /* it has worked when it was tried: without memory now, perhaps */
    return disti_node_waits_for(node, op, awaited) ? doorbell : DIST_ARM_READY;
}

void disti_node_disarm(struct disti_node *node)
{
    if (!node->armed)
        return;
    node->armed = false;
    atomic_store_explicit(&node->board->presence, NODE_AWAKE, memory_order_relaxed);
    disti_node_doorbell_silence(node);
}

void disti_node_abandon(struct disti_node *node, const struct disti_node_op *op)
{
    node->board->gave_up = op->number;
    atomic_store_explicit(&node->board->presence, NODE_GONE, memory_order_seq_cst);
    for (int r = 0; r < node->ranks; r++)
        presence_wake(node, r, true);
    disti_node_cma_drain(node);
    node->abandoned = true;
    disti_segment_retire(); /* a peer may still be at a piece of what the program now frees */
}

void disti_node_check_gone(struct disti_node *node)
{
    for (int r = 0; r < node->ranks; r++) {
        if (atomic_load_explicit(&node->peers[r].board->presence, memory_order_acquire) ==
            NODE_GONE)
            presence_note_gone(node, r);
    }
}
