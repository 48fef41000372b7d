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

/* Elements of a block that a round of the window holds, on lines of their own. */
static size_t start_piece(const struct disti_node *node, const struct disti_node_op *op,
                          size_t blocks)
{
    size_t bytes = node->round_bytes / blocks / NODE_APART * NODE_APART;
    size_t piece = bytes / op->element_bytes;

    return piece < op->call.count ? piece : op->call.count;
}

/* Is what this rank reads and writes more than its cache holds, and OUT not yet in it? */
static bool start_goes_past(const struct disti_node *node, const struct disti_node_op *op,
                            const struct node_pattern *pattern)
{
    bool gathers = !pattern->reduces && pattern->givers == NODE_ALL;
    size_t blocks = gathers || pattern->in_blocks ? (size_t)node->ranks : 1;

    return 2 * blocks * op->call.count * op->element_bytes >= node->cache_bytes &&
           !(pattern->reduces && op->call.in == op->call.out);
}

/* What a root alone gives is sooner copied twice than waited for. */
static size_t start_short_max(const struct disti_node *node, const struct node_pattern *pattern)
{
    return node->ranks > 2 || pattern->givers == NODE_ROOT ? NODE_SHORT_MAX : NODE_SHORT_PAIR;
}

void disti_node_start(struct disti_node *node, const struct dist_call *call, uint64_t fingerprint,
                      struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(call->collective);
    size_t blocks = node_blocks(node, pattern), bytes;

    op->call = *call;
    op->fingerprint = fingerprint;
    op->number = ++node->calls;
    op->element_bytes = call->collective == DIST_COLL_BARRIER ? 1 : dist_dtype_size(call->dtype);
    bytes = call->count * op->element_bytes;
    op->way = bytes <= start_short_max(node, pattern) / blocks ? NODE_WAY_BOARD : NODE_WAY_WINDOWS;
    op->state = NODE_OP_POSTED;
    op->past = false;
    op->stage = 0;
    op->admitted = op->seen = 0;
    op->round = 0;
    op->done = 0;
    op->others = 0;
    op->program_out = NULL;
    if (op->way == NODE_WAY_BOARD)
        return;
    op->past = start_goes_past(node, op, pattern);
    op->piece = start_piece(node, op, blocks);
    op->rounds = (call->count + op->piece - 1) / op->piece;
}
