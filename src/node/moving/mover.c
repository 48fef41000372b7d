/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which way ordinary memory is moved. Where the data are is known only when all have come to a
 * call; so the calls before it, of the same collective and size class, tell.
 *
 * Up to NODE_AREA_BYTES a board is best, for who gives need not wait; unless the data are in
 * segments, where it would be a needless copy. So a few calls see where they are.
 *
 * Longer data go through windows, copied twice, in rounds; or are copied by the kernel, once, at
 * the price of system calls. What is faster depends on caches, kernel, size, and on how many ranks
 * share a CPU. So calls take both ways in turn, and all ranks show what they measured:
 *
 *   call     0 ... 7   8    9        10   11      ... 15        16
 *            CMA       CMA  windows  CMA  windows     windows   all see all times: the sooner way
 *                                                               from now on
 *
 * A window that nobody has used yet has no pages, and whoever fills it first waits for each of
 * them: a program that makes a few calls does without, so the kernel copies in those.
 *
 * Every rank counts the same calls and sees the same times, and so comes to the same answer. They
 * try again soon, when buffers and windows lie in the caches as they do from then on; and now and
 * then, for ranks move to other CPUs, and neighbours come and go.
 */
#include "base/clock.h"
#include "node/state.h"

#include <string.h>

/* The trials begin behind so many calls, and the next call decides. */
#define MOVER_BEFORE 8
#define MOVER_TRIALS 8
#define MOVER_DECIDES (MOVER_BEFORE + MOVER_TRIALS)
/* So many calls in a row with data elsewhere than in segments: boards are taken. */
#define MOVER_LOOKS 2
/* After so many calls of a class the trials begin anew, for the first time and then. */
#define MOVER_CALLS_FIRST 64
#define MOVER_CALLS 2000
/* The least class: calls of up to so many bytes. */
#define MOVER_LEAST 13

int disti_node_size_class(const struct disti_node_op *op)
{
    size_t bytes = op->largest * op->element_bytes;
    int size = 0;

    while (size < NODE_SIZES - 1 && bytes >> MOVER_LEAST >> size)
        size++;
    return size;
}

size_t disti_node_class_bytes(int size_class)
{
    return size_class ? (size_t)1 << (MOVER_LEAST - 1 + size_class) : 0;
}

static struct node_mover *mover_of(struct disti_node *node, const struct disti_node_op *op)
{
    return &node->movers[op->call.collective][disti_node_size_class(op)];
}

static bool mover_tries(const struct node_mover *mover)
{
    return mover->calls >= MOVER_BEFORE && mover->calls < MOVER_DECIDES;
}

/* May the kernel copy, in this call? It reduces nothing. */
static bool mover_may_cma(const struct disti_node *node, const struct disti_node_op *op)
{
    return node->cma && !disti_node_pattern(op->call.collective)->reduces;
}

static void mover_count(struct node_mover *mover)
{
    if (++mover->calls == (mover->tried ? MOVER_CALLS : MOVER_CALLS_FIRST))
        *mover = (struct node_mover){.windows = mover->windows, .tried = true};
}

static bool mover_begins_with_cma(const struct node_mover *mover)
{
    if (mover->direct || mover->calls == MOVER_DECIDES)
        return true;
    if (mover_tries(mover))
        return mover->calls % 2 == 0;
    return !mover->windows;
}

bool disti_node_mover_leads(struct disti_node *node, const struct disti_node_op *op)
{
    return mover_may_cma(node, op) && !node->cma_refused &&
           mover_begins_with_cma(mover_of(node, op));
}

bool disti_node_mover_takes_area(struct disti_node *node, const struct disti_node_op *op)
{
    struct node_mover *mover = mover_of(node, op);

    if (mover->calls < MOVER_LOOKS)
        return false;
    mover_count(mover);
    return true;
}

void disti_node_mover_choose(struct disti_node *node, struct disti_node_op *op)
{
    struct node_mover *mover = mover_of(node, op);

    op->cma = mover_may_cma(node, op) && mover_begins_with_cma(mover);
    if (mover->calls < MOVER_LOOKS ||
        !disti_node_fits_area(op->call.collective, node->ranks, op->largest * op->element_bytes))
        return;
    op->way = NODE_WAY_BOARD;
    op->in_area = op->chosen = true;
    disti_node_roles(node, op);
    mover_count(mover);
}

void disti_node_mover_show(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_mover *mover = mover_of(node, op);
    struct node_locations *locations = &node_slot(node->board, op)->locations;

    if (mover->calls == MOVER_DECIDES)
        memcpy(locations->mover_ns, mover->ns, sizeof(mover->ns));
}

/* The time of the slowest rank counts. */
static void mover_decide(const struct disti_node *node, const struct disti_node_op *op,
                         struct node_mover *mover)
{
    uint64_t slowest[2] = {0, 0};

    if (op->paired) { /* who leads decides alone */
        mover->windows = mover->ns[true] >= mover->ns[false];
        return;
    }
    for (int r = 0; r < node->ranks; r++) {
        const struct node_locations *locations = &node_slot(node->peers[r].board, op)->locations;

        for (int cma = 0; cma < 2; cma++) {
            if (locations->mover_ns[cma] > slowest[cma])
                slowest[cma] = locations->mover_ns[cma];
        }
    }
    mover->windows = slowest[true] >= slowest[false];
}

void disti_node_mover_begin(struct disti_node *node, struct disti_node_op *op)
{
    struct node_mover *mover = mover_of(node, op);

    op->begun_ns = 0;
    if (op->way == NODE_WAY_DIRECT) {
        *mover = (struct node_mover){.direct = true};
        return;
    }
    mover->direct = false;
    if (mover->calls == MOVER_DECIDES)
        mover_decide(node, op, mover);
    else if (mover_tries(mover))
        op->begun_ns = disti_now_ns();
    mover_count(mover);
}

void disti_node_mover_end(struct disti_node *node, const struct disti_node_op *op)
{
    uint64_t bytes = op->largest * op->element_bytes, ns;
    struct node_mover *mover;

    if (!op->begun_ns)
        return;
    mover = mover_of(node, op);
    ns = (uint64_t)(disti_now_ns() - op->begun_ns) * 1024 / (bytes / 1024 + 1) + 1;
    if (!mover->ns[op->cma] || ns < mover->ns[op->cma])
        mover->ns[op->cma] = ns;
}
