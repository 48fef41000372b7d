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
 * share a CPU. So a few calls in a row take one way, then a few the other (windows are sooner when
 * they lie in the caches), and all ranks show what they measured:
 *
 *   call     0 ... 7   8 ... 11   12 ... 15   16
 *            CMA       CMA        windows     all see all times: the sooner way from now on
 *
 * A window that nobody has used yet has no pages, and whoever fills it first waits for each of
 * them: a program that makes a few calls does without, so the kernel copies in those. Long calls
 * use each page more than once: they try from the third on, and decide in the eleventh.
 *
 * What counts is the time from when all had come, and what a rank has put into its window before.
 * Ranks that share a CPU count the time that they had one: whoever gets it last finds the others'
 * work done, and would call that quick. The times of all ranks are added.
 *
 * Every rank counts the same calls and sees the same times, and so comes to the same answer. They
 * try again soon, when buffers and windows lie in the caches as they do from then on; and now and
 * then, for ranks move to other CPUs, and neighbours come and go.
 */
#include "base/clock.h"
#include "node/state.h"

#include <string.h>

/* The trials begin behind so many calls; the call behind them decides. */
#define MOVER_BEFORE 8
#define MOVER_TRIALS 8
/* The same of calls so long that the windows' first pages are little of them. */
#define MOVER_BEFORE_LONG 2
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

/* How many trials have been before this call; negative while there are none yet. */
static int mover_trial(const struct node_mover *mover, const struct disti_node_op *op)
{
    const bool is_long = op->largest * op->element_bytes >= NODE_ROUNDS * NODE_ROUND_BYTES;

    return mover->calls - (is_long ? MOVER_BEFORE_LONG : MOVER_BEFORE);
}

static bool mover_tries(const struct node_mover *mover, const struct disti_node_op *op)
{
    const int trial = mover_trial(mover, op);

    return trial >= 0 && trial < MOVER_TRIALS;
}

static bool mover_decides(const struct node_mover *mover, const struct disti_node_op *op)
{
    return mover_trial(mover, op) == MOVER_TRIALS;
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

static bool mover_begins_with_cma(const struct node_mover *mover, const struct disti_node_op *op)
{
    int trial;

    if (mover->direct)
        return true;
    if (mover->calls < MOVER_BEFORE_LONG) /* short calls stay here */
        return !mover->windows;
    trial = mover_trial(mover, op);
    if (trial == MOVER_TRIALS)
        return true;
    return trial >= 0 && trial < MOVER_TRIALS ? trial < MOVER_TRIALS / 2 : !mover->windows;
}

/* Calls of pairs reduce nothing. */
bool disti_node_mover_leads(struct disti_node *node, const struct disti_node_op *op)
{
    return node->cma && !node->cma_refused && mover_begins_with_cma(mover_of(node, op), op);
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

    op->cma = mover_may_cma(node, op) && mover_begins_with_cma(mover, op);
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

    if (mover_decides(mover, op))
        memcpy(locations->mover_ns, mover->ns, sizeof(mover->ns));
}

static int64_t mover_clock(const struct disti_node *node)
{
    return disti_node_is_crowded(node) ? disti_thread_ns() : disti_now_ns();
}

void disti_node_mover_fill(struct disti_node *node, struct disti_node_op *op)
{
    const bool timed = mover_tries(mover_of(node, op), op);
    const int64_t begun = timed ? mover_clock(node) : 0;

    disti_node_work_fill(node, op, 0);
    if (timed)
        op->filled_ns = mover_clock(node) - begun;
}

/* In the first trials windows have not found their gait (gait.c): they may take a quarter more. */
static bool mover_prefers_windows(const struct node_mover *mover, const uint64_t ns[2])
{
    return mover->tried ? ns[true] >= ns[false] : ns[true] * 5 >= ns[false] * 4;
}

static void mover_decide(const struct disti_node *node, const struct disti_node_op *op,
                         struct node_mover *mover)
{
    uint64_t all[2] = {0, 0};

    if (op->paired) { /* who leads decides alone */
        mover->windows = mover_prefers_windows(mover, mover->ns);
        return;
    }
    for (int r = 0; r < node->ranks; r++) {
        const struct node_locations *locations = &node_slot(node->peers[r].board, op)->locations;

        for (int cma = 0; cma < 2; cma++)
            all[cma] += locations->mover_ns[cma];
    }
    mover->windows = mover_prefers_windows(mover, all);
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
    if (mover_decides(mover, op))
        mover_decide(node, op, mover);
    else if (mover_tries(mover, op))
        op->begun_ns = mover_clock(node) - op->filled_ns;
    mover_count(mover);
}

void disti_node_mover_end(struct disti_node *node, const struct disti_node_op *op)
{
    uint64_t bytes = op->largest * op->element_bytes, ns;
    struct node_mover *mover;

    if (!op->begun_ns)
        return;
    mover = mover_of(node, op);
    ns = (uint64_t)(mover_clock(node) - op->begun_ns) * 1024 / (bytes / 1024 + 1) + 1;
    if (!mover->ns[op->cma] || ns < mover->ns[op->cma])
        mover->ns[op->cma] = ns;
}
