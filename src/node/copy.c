/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies: each taker fetches its blocks from where the givers have them. */
#include "node/state.h"

#include <string.h>

/* The block of OUT that holds what came from `rank`. */
static int copy_out_block(const struct disti_node_op *op, int rank)
{
    return disti_node_pattern(op->call.collective)->givers == NODE_ALL ? rank : 0;
}

/* The block of a giver's IN that is for this rank. */
static int copy_in_block(const struct disti_node *node, const struct disti_node_op *op)
{
    return disti_node_pattern(op->call.collective)->in_blocks ? node->rank : 0;
}

static void copy(char *to, const char *from, size_t bytes)
{
    if (to != from && bytes)
        node_copy(to, from, bytes);
}

void disti_node_copy_short(struct disti_node *node, const struct disti_node_op *op)
{

    /* The givers are those that are awaited, and this rank if it gives. */
    for (int r = op->first; r < op->end; r++) {
        int block = copy_out_block(op, r);
        size_t bytes = node_out_count(op, block) * op->element_bytes;
        char *out = (char *)op->call.out + node_out_first(op, block) * op->element_bytes;

        if (r == node->rank)
            copy(out, (const char *)op->call.in + op->offset, bytes);
        else
            node_copy(out, node_given(&node->peers[r], op) + op->offset, bytes);
    }
}

static void move(char *to, const char *from, size_t bytes, uint8_t gait)
{
    if (to != from)
        disti_node_move(to, from, bytes, gait);
}

/* Elements of a giver's block, from `at` of the round on, into this rank's memory. */
static void copy_get(struct disti_node *node, struct disti_node_op *op, int giver, char *to,
                     int block, size_t at, size_t elements)
{
    const struct node_peer *peer = &node->peers[giver];
    size_t bytes = elements * op->element_bytes;

    if (op->way == NODE_WAY_CMA && giver != node->rank && !peer->in)
        disti_node_cma_get(node, op, giver, to,
                           peer->in_address + (node_in_first(op, block) + at) * op->element_bytes,
                           bytes);
    else
        move(to, disti_node_in(node, op, giver, block, at), bytes, op->gait);
}

/* Elements of this rank's IN into a taker's OUT, `offset` bytes behind its beginning. */
static void copy_put(struct disti_node *node, struct disti_node_op *op, int taker, size_t offset,
                     int block, size_t at, size_t elements)
{
    const struct node_peer *peer = &node->peers[taker];
    const char *from = disti_node_in(node, op, node->rank, block, at);
    size_t bytes = elements * op->element_bytes;

    if (peer->out)
        move(peer->out + offset, from, bytes, op->gait);
    else
        disti_node_cma_put(node, op, taker, peer->out_address + offset, from, bytes);
}

/* From one giver, or as much of that as is one bite. */
static size_t copy_from(struct disti_node *node, struct disti_node_op *op, int giver, size_t at,
                        size_t elements, size_t first)
{
    size_t bite = node_bite(op, NODE_BITE);
    size_t take = elements - at < bite ? elements - at : bite;
    size_t block = node_out_first(op, copy_out_block(op, giver));

    copy_get(node, op, giver, (char *)op->call.out + (block + first + at) * op->element_bytes,
             copy_in_block(node, op), at, take);
    return take;
}

/*
 * Nobody reads the window of a root that gathers: so it copies its own block while the others fill
 * theirs.
 */
static bool copy_fills_out(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    return !pattern->reduces && pattern->takers == NODE_ROOT && node->rank == op->call.root &&
           !node->peers[node->rank].in;
}

/* The round's elements of each giver in turn, of the next rank first. */
static bool copy_own(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t moved = 0;

    if (!node_is(pattern->takers, op, node->rank))
        return true;
    while (op->others < node->ranks && moved * op->element_bytes < NODE_BITE) {
        int giver = (node->rank + 1 + op->others) % node->ranks;
        size_t count = node_out_count(op, copy_out_block(op, giver)), elements = 0, first, took;

        if (node_is(pattern->givers, op, giver) &&
            !(giver == node->rank && copy_fills_out(node, op)))
            elements = disti_node_round(op, count, op->round, &first);
        if (op->done < elements) {
            took = copy_from(node, op, giver, op->done, elements, first);
            op->done += took;
            moved += took;
        }
        if (op->done == elements) {
            op->done = 0;
            op->others++;
        }
    }
    return op->others == node->ranks;
}

/* ---- between a root and the others ---- */

/* Has the root a block of its own to copy? It has shown where its IN and OUT are. */
static bool copy_root_has_own(const struct disti_node *node, const struct disti_node_op *op,
                              bool gathers)
{
    const struct node_locations *root = &node_slot(node->peers[op->call.root].board, op)->locations;
    uint64_t from = root->in_address, to = root->out_address;
    uint64_t block = (uint64_t)op->call.root * op->call.count * op->element_bytes;

    if (gathers)
        return to + block != from;
    return disti_node_pattern(op->call.collective)->in_blocks && from + block != to;
}

/*
 * Nobody is idle: of the block between the root and another each moves a part, if both can reach
 * all of it. With p ranks the root has p - 1 of them, so that its part is one p-th:
 *
 *      block   | the root: 1 / p | the other: the rest |
 *
 * If the root has its own block to copy, all have one. The others' copies take twice as long where
 * they are the kernel's, so there the root does half of its part.
 */
static void copy_part(const struct disti_node *node, const struct disti_node_op *op, int other,
                      size_t *from_p, size_t *to_p)
{
    bool gathers = disti_node_pattern(op->call.collective)->takers == NODE_ROOT;
    bool is_root = node->rank == op->call.root;
    size_t split, start;

    disti_node_slice(node, op, op->call.count, 0, &start, &split);
    if (other == op->call.root)
        split = op->call.count;
    else if (op->way == NODE_WAY_DIRECT && !node->peers[gathers ? op->call.root : other].out)
        split = gathers ? op->call.count : 0;
    else if (copy_root_has_own(node, op, gathers))
        split = op->way == NODE_WAY_DIRECT ? 0 : split / 2;
    *from_p = is_root ? 0 : split;
    *to_p = is_root ? split : op->call.count;
}

/* Between the root and the other, from `at` on; this rank is one of them. */
static void copy_between(struct disti_node *node, struct disti_node_op *op, int other, size_t at,
                         size_t elements)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool gathers = pattern->takers == NODE_ROOT;
    int giver = gathers ? other : op->call.root, taker = gathers ? op->call.root : other;
    int block = pattern->in_blocks ? taker : 0;
    size_t offset = (node_out_first(op, copy_out_block(op, giver)) + at) * op->element_bytes;

    if (taker == node->rank)
        copy_get(node, op, giver, (char *)op->call.out + offset, block, at, elements);
    else
        copy_put(node, op, taker, offset, block, at, elements);
}

/* The root deals with all others, and with itself, in turn; another with the root. */
static bool copy_rooted(struct disti_node *node, struct disti_node_op *op)
{
    bool is_root = node->rank == op->call.root;
    size_t bite = node_bite(op, NODE_BITE), from, to;
    int others = is_root ? node->ranks : 1;

    while (op->others < others && bite > 0) {
        int other = is_root ? (node->rank + 1 + op->others) % node->ranks : node->rank;
        size_t take;

        copy_part(node, op, other, &from, &to);
        take = to - from - op->done < bite ? to - from - op->done : bite;
        if (take > 0)
            copy_between(node, op, other, from + op->done, take);
        bite -= take;
        op->done += take;
        if (from + op->done == to) {
            op->done = 0;
            op->others++;
        }
    }
    return op->others == others;
}

bool disti_node_copy_some(struct disti_node *node, struct disti_node_op *op)
{
    bool windows = op->way == NODE_WAY_WINDOWS || op->way == NODE_WAY_SWAPPED;

    return !windows && disti_node_pattern(op->call.collective)->rooted ? copy_rooted(node, op)
                                                                       : copy_own(node, op);
}

/* Of a vector that is reduced in slices the others do not need this rank's slice. */
static void fill_around(struct disti_node *node, const struct disti_node_op *op, char *window,
                        const char *in, size_t elements)
{
    size_t from, to;

    disti_node_slice(node, op, elements, node->rank, &from, &to);
    disti_node_move(window, in, from * op->element_bytes, node_window_gait(op));
    disti_node_move(window + to * op->element_bytes, in + to * op->element_bytes,
                    (elements - to) * op->element_bytes, node_window_gait(op));
}

void disti_node_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    char *window = disti_node_window(node, node->rank, round);
    const char *in = op->call.in;
    size_t first, elements = disti_node_round(op, op->call.count, round, &first);

    if (node->peers[node->rank].in || !node_is(pattern->givers, op, node->rank))
        return;
    if (copy_fills_out(node, op)) {
        move((char *)op->call.out + (node_out_first(op, node->rank) + first) * op->element_bytes,
             in + first * op->element_bytes, elements * op->element_bytes, op->gait);
        return;
    }
    if (pattern->slices) {
        fill_around(node, op, window, in + first * op->element_bytes, elements);
        return;
    }
    for (int b = 0; b < (pattern->in_blocks ? node->ranks : 1); b++) {
        elements = disti_node_round(op, node_in_count(op, b), round, &first);
        if (!pattern->in_blocks || b != node->rank)
            disti_node_move(window + (size_t)b * op->piece * op->element_bytes,
                            in + (node_in_first(op, b) + first) * op->element_bytes,
                            elements * op->element_bytes, node_window_gait(op));
    }
}
