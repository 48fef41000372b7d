/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which way ordinary memory is copied: through windows, twice, in rounds; or by the kernel, once,
 * at the price of two system calls. What is faster depends on caches, kernel, size, and on how many
 * ranks share a CPU. So the first calls of a collective in a size class take both ways in turn, and
 * all ranks show what they measured:
 *
 *   call     0    1        2    3        ...  7         8
 *            CMA  windows  CMA  windows       windows   all see all times: the sooner way from now
 * on
 *
 * Every rank counts the same calls and sees the same times, and so comes to the same answer. Now
 * and then they try again: ranks move to other CPUs, and neighbours come and go.
 */
#include "base/clock.h"
#include "node/state.h"

#include <string.h>

#define MOVER_TRIALS 8
/* After so many calls of a class the trials begin anew. */
#define MOVER_CALLS 2000
/* The least class: calls of up to so many bytes. */
#define MOVER_LEAST 13

static struct node_mover *mover_of(struct disti_node *node, const struct disti_node_op *op)
{
    size_t bytes = op->call.count * op->element_bytes;
    int size = 0;

    while (size < NODE_SIZES - 1 && bytes >> MOVER_LEAST >> size)
        size++;
    return &node->movers[op->call.collective][size];
}

static bool mover_tries(const struct node_mover *mover)
{
    return mover->calls < MOVER_TRIALS;
}

bool disti_node_mover_takes_cma(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_mover *mover = mover_of(node, op);

    if (!node->cma || disti_node_pattern(op->call.collective)->reduces)
        return false;
    if (mover->direct || mover->calls == MOVER_TRIALS)
        return true;
    return mover_tries(mover) ? mover->calls % 2 == 0 : mover->cma;
}

void disti_node_mover_show(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_mover *mover = mover_of(node, op);
    struct node_locations *locations = &node_slot(node->board, op)->locations;

    if (node->cma && mover->calls == MOVER_TRIALS)
        memcpy(locations->mover_ns, mover->ns, sizeof(mover->ns));
}

/* The time of the slowest rank counts. */
static void mover_decide(const struct disti_node *node, const struct disti_node_op *op,
                         struct node_mover *mover)
{
    uint64_t slowest[2] = {0, 0};

    for (int r = 0; r < node->ranks; r++) {
        const struct node_locations *locations = &node_slot(node->peers[r].board, op)->locations;

        for (int cma = 0; cma < 2; cma++) {
            if (locations->mover_ns[cma] > slowest[cma])
                slowest[cma] = locations->mover_ns[cma];
        }
    }
    mover->cma = slowest[true] < slowest[false];
}

void disti_node_mover_begin(struct disti_node *node, struct disti_node_op *op)
{
    struct node_mover *mover = mover_of(node, op);

    op->begun_ns = 0;
    if (!node->cma || disti_node_pattern(op->call.collective)->reduces)
        return;
    if (mover->calls == MOVER_TRIALS)
        mover_decide(node, op, mover);
    mover->direct = op->way == NODE_WAY_DIRECT;
    if (mover->direct)
        return;
    if (mover_tries(mover))
        op->begun_ns = disti_now_ns();
    if (++mover->calls == MOVER_CALLS)
        *mover = (struct node_mover){.cma = mover->cma};
}

void disti_node_mover_end(struct disti_node *node, const struct disti_node_op *op)
{
    struct node_mover *mover = mover_of(node, op);
    uint64_t bytes = op->call.count * op->element_bytes, ns;

    if (!op->begun_ns)
        return;
    ns = (uint64_t)(disti_now_ns() - op->begun_ns) * 1024 / (bytes / 1024 + 1) + 1;
    if (!mover->ns[op->cma] || ns < mover->ns[op->cma])
        mover->ns[op->cma] = ns;
}
