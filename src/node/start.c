/* SPDX-License-Identifier: BSD-3-Clause */
/* A call before it begins: its number, and which way its data go. */
#include "base/dtype.h"
#include "node/state.h"

bool disti_node_knows(dist_collective collective)
{
    return disti_node_pattern(collective)->taken;
}

bool disti_node_takes(const struct disti_node *node, const struct dist_call *call)
{
    return node && disti_node_knows(call->collective);
}

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
 *
 * A round holds whole lines of each block.
 */
size_t disti_node_piece(const struct disti_node *node, const struct disti_node_op *op)
{
    size_t blocks = node_blocks(node, disti_node_pattern(op->call.collective));

    return node->round_bytes / blocks / NODE_APART * NODE_APART / op->element_bytes;
}

void disti_node_cut(const struct disti_node *node, struct disti_node_op *op)
{
    size_t piece = disti_node_piece(node, op);

    op->piece = piece < op->largest ? piece : op->largest;
    op->rounds = (op->largest + op->piece - 1) / op->piece;
}

bool disti_node_may_go_past(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool gathers = !pattern->reduces && pattern->givers == NODE_ALL;
    size_t blocks = gathers || pattern->in_blocks ? (size_t)node->ranks : 1;

    return 2 * blocks * op->largest * op->element_bytes >= node->cache_bytes &&
           !(pattern->reduces && op->call.in == op->call.out);
}

/* ---- how long is short ---- */

static size_t start_bytes(dist_collective collective, int ranks, size_t block)
{
    return disti_node_pattern(collective)->in_blocks ? block * (size_t)ranks : block;
}

/* Of two ranks each sums half of a longer vector; else two copies are sooner made than waited for.
 */
static bool start_is_short(dist_collective collective, int ranks, size_t block)
{
    const struct node_pattern *pattern = disti_node_pattern(collective);
    bool shares = ranks == 2 && pattern->reduces && pattern->takers == NODE_ALL;

    return start_bytes(collective, ranks, block) <= (shares ? NODE_SHORT_PAIR : NODE_SHORT_MAX);
}

/* Who shares a sum should not do all of it. */
bool disti_node_fits_area(dist_collective collective, int ranks, size_t block)
{
    const struct node_pattern *pattern = disti_node_pattern(collective);

    return start_bytes(collective, ranks, block) <= NODE_AREA_BYTES &&
           (!pattern->reduces || (ranks == 2 && pattern->takers == NODE_ROOT));
}

const char *disti_node_summary(dist_collective collective, int ranks, size_t block)
{
    if (start_is_short(collective, ranks, block))
        return "on boards that all ranks have mapped, without messages";
    if (disti_node_fits_area(collective, ranks, block))
        return "data of dist_alloc where they are, others by boards that all ranks have mapped";
    if (disti_node_pattern(collective)->reduces)
        return "data of dist_alloc where they are, others through windows that all ranks have "
               "mapped";
    return "data of dist_alloc where they are, others by the kernel or through windows: "
           "the first calls find out which is faster";
}

/* Elements that all blocks of IN have. */
static size_t start_given(const struct disti_node *node, const struct disti_node_op *op)
{
    size_t given = 0;

    if (!op->call.in_counts)
        return op->call.count * node_blocks(node, disti_node_pattern(op->call.collective));
    for (int r = 0; r < node->ranks; r++)
        given += op->call.in_counts[r];
    return given;
}

size_t disti_node_slot_bytes(const struct node_pattern *pattern)
{
    return pattern->givers == NODE_ALL && pattern->takers == NODE_ALL ? NODE_SLOT_NEAR
                                                                      : NODE_SLOT_DATA;
}

static node_finish_fn start_finish(const struct disti_node_op *op,
                                   const struct node_pattern *pattern)
{
    if (!op->takes || !op->largest)
        return NULL;
    if (!pattern->reduces)
        return disti_node_copy_short;
    return op->pair && op->call.op != DIST_AVG ? disti_node_reduce_pair : disti_node_reduce_short;
}

/* In a long call all keep step; in a short one takers wait for givers. */
void disti_node_roles(const struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool all = op->way != NODE_WAY_BOARD;

    op->gives = node_is(pattern->givers, op, node->rank);
    op->takes = node_is(pattern->takers, op, node->rank);
    op->first = all || pattern->givers == NODE_ALL ? 0 : op->call.root;
    op->end = all || pattern->givers == NODE_ALL ? node->ranks : op->call.root + 1;
    if (!all && !op->takes)
        op->end = op->first;
    op->met = op->end - op->first == node->ranks;
    op->awaited = node->others + op->first - (op->first > node->rank);
    op->awaited_end = node->others + op->end - (op->end > node->rank);
    op->given = !all && op->gives ? start_given(node, op) * op->element_bytes : 0;
    op->offset = pattern->in_blocks ? node_in_first(op, node->rank) * op->element_bytes : 0;
    op->pair = node->ranks == 2 && pattern->reduces
                   ? disti_reduce_kernel(op->call.dtype, op->call.op)
                   : NULL;
    op->finish = start_finish(op, pattern);
    op->depth = !op->in_area || !op->gives ? node->last_slot + 1
                : op->chosen               ? node->area_depth
                                           : NODE_AREAS_FIXED;
    op->seen = op->first;
}

static size_t start_largest(const size_t *counts, int ranks, size_t largest)
{
    for (int r = 0; counts && r < ranks; r++)
        largest = counts[r] > largest ? counts[r] : largest;
    return largest;
}

/* The largest block that this rank knows of; and its own, if lists of which all know all say it. */
static void start_count(const struct disti_node *node, struct disti_node_op *op)
{
    const size_t *in = op->call.in_counts, *out = op->call.out_counts;

    if (!op->paired && (in || out))
        op->call.count = (in ? in : out)[node->rank];
    op->largest = start_largest(in, node->ranks, op->call.count);
    op->largest = start_largest(out, node->ranks, op->largest);
}

void disti_node_start(struct disti_node *node, const struct dist_call *call, uint64_t fingerprint,
                      uint64_t history, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(call->collective);
    size_t blocks = node_blocks(node, pattern), bytes;

    op->call = *call;
    op->fingerprint = fingerprint;
    op->history = history;
    op->number = ++node->calls;
    op->slot = node_slot_number(node, op->number);
    op->element_bytes = call->collective == DIST_COLL_BARRIER ? 1 : dist_dtype_size(call->dtype);
    op->paired = pattern->paired;
    start_count(node, op);
    bytes = op->largest * op->element_bytes;
    op->way =
        start_is_short(call->collective, node->ranks, bytes) ? NODE_WAY_BOARD : NODE_WAY_WINDOWS;
    op->state = NODE_OP_POSTED;
    op->cma = op->chosen = false;
    op->stage = op->base = 0;
    op->in_area = op->way == NODE_WAY_BOARD && bytes * blocks > disti_node_slot_bytes(pattern);
    op->finish = NULL;
    if (op->paired)
        op->way = NODE_WAY_WINDOWS; /* if nothing else is found */
    else
        disti_node_roles(node, op);
    op->admitted = 0;
    op->round = 0;
    op->done = 0;
    op->others = 0;
    op->program_out = NULL;
    op->begun_ns = op->filled_ns = 0;
    op->gait = 0;
    op->tries_gait = false;
    op->worked_ns = 0;
    if (!op->paired && op->way != NODE_WAY_BOARD)
        disti_node_cut(node, op);
}
