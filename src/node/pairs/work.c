/* SPDX-License-Identifier: BSD-3-Clause */
/* The copies: from boards, from memory that is seen or that the kernel reaches, from windows. */
#include "node/pairs/pairs.h"

#include <string.h>

/* Does the giver of a pair copy a part too, into the taker's OUT? */
static bool pairs_shares(const struct disti_node *node, const struct disti_node_op *op, int rank)
{
    const struct node_slot *mine = node_slot(node->board, op);
    const struct node_slot *theirs = node_slot(node->peers[rank].board, op);
    bool gives = pairs_gives_others(node, op);
    const struct node_slot *giver = gives ? mine : theirs, *taker = gives ? theirs : mine;

    if (!disti_node_pattern(op->call.collective)->rooted || giver->place != NODE_IN_MEMORY ||
        taker->place != NODE_IN_MEMORY)
        return false;
    return taker->locations.out.name.key ? pairs_means(op, &giver->locations) != NODE_BY_WINDOW
                                         : pairs_means(op, &giver->locations) == NODE_BY_KERNEL;
}

static const struct node_locations *pairs_root(const struct disti_node *node,
                                               const struct disti_node_op *op)
{
    return &node_slot(node->peers[op->call.root].board, op)->locations;
}

/*
 * Of the block between this rank and another what this one copies in the op's round. With p ranks a
 * root has p - 1 of them, so that its part is one p-th; half of that if it has a block of its own:
 *
 *      block   | the root: 1 / p | the other: the rest |
 */
static void pairs_range(const struct disti_node *node, const struct disti_node_op *op, int rank,
                        size_t *from_p, size_t *to_p)
{
    const struct node_peer *peer = &node->peers[rank];
    size_t first, count = peer->count, elements;

    *from_p = *to_p = 0;
    if (op->stage >= op->base && op->way == NODE_WAY_WINDOWS) {
        elements = disti_node_round(op, count, op->round, &first);
        if (peer->means == NODE_BY_WINDOW && elements)
            *from_p = first, *to_p = first + elements;
        return;
    }
    if (peer->means != NODE_BY_WINDOW && peer->means != NODE_NOTHING)
        *to_p = count;
    if (count && pairs_shares(node, op, rank)) {
        disti_node_slice(node, op, count, 0, from_p, to_p);
        if (pairs_root(node, op)->has_own)
            *to_p /= 2;
        if (node->rank != op->call.root)
            *from_p = *to_p, *to_p = count;
    }
}

/* Where element `at` of this rank's block is in the giver's window. */
static const char *pairs_in_window(const struct disti_node *node, const struct disti_node_op *op,
                                   int giver, size_t at)
{
    bool listed = disti_node_pattern(op->call.collective)->in_blocks;
    size_t block = listed ? (size_t)node->rank * op->piece : 0;

    return disti_node_window(node, giver, op->round) +
           (block + at - (size_t)op->round * op->piece) * op->element_bytes;
}

/* Elements from `at` on of the block of a giver's. */
static void pairs_get(struct disti_node *node, struct disti_node_op *op, int giver, size_t at,
                      size_t elements)
{
    const struct node_peer *peer = &node->peers[giver];
    size_t bytes = elements * op->element_bytes, offset = at * op->element_bytes;
    char *to = (char *)op->call.out + pairs_out(op, giver).first * op->element_bytes + offset;

    if (peer->means == NODE_BY_WINDOW)
        disti_node_move(to, pairs_in_window(node, op, giver, at), bytes, op->gait);
    else if (peer->means == NODE_BY_KERNEL)
        disti_node_cma_get(node, op, giver, to, peer->in_address + offset, bytes);
    else if (peer->in)
        disti_node_move(to, peer->in + offset, bytes, op->gait);
}

static void pairs_put(struct disti_node *node, struct disti_node_op *op, int taker, size_t at,
                      size_t elements)
{
    const struct node_peer *peer = &node->peers[taker];
    size_t bytes = elements * op->element_bytes, offset = at * op->element_bytes;
    const char *from = (const char *)op->call.in + pairs_in(op, taker).first * op->element_bytes;

    if (peer->out)
        disti_node_move(peer->out + offset, from + offset, bytes, op->gait);
    else if (!node_slot(peer->board, op)->locations.out.name.key)
        disti_node_cma_put(node, op, taker, peer->out_address + offset, from + offset, bytes);
}

/* This rank's own block, from `at` on. */
static void pairs_own(struct disti_node *node, struct disti_node_op *op, size_t at, size_t elements)
{
    struct node_block in = pairs_in(op, node->rank), out = pairs_out(op, node->rank);
    size_t offset = at * op->element_bytes;
    const char *from = (const char *)op->call.in + in.first * op->element_bytes;
    char *to = (char *)op->call.out + out.first * op->element_bytes;

    if (from != to)
        disti_node_move(to + offset, from + offset, elements * op->element_bytes, op->gait);
}

static void pairs_range_own(const struct disti_node *node, const struct disti_node_op *op,
                            size_t *from_p, size_t *to_p)
{
    *from_p = *to_p = 0;
    if (op->stage == 0 && pairs_gives(op, node->rank) && pairs_takes(op, node->rank))
        *to_p = pairs_in(op, node->rank).count;
}

bool disti_node_pairs_are_short(const struct disti_node *node, const struct disti_node_op *op)
{
    size_t from, to;

    if (op->place == NODE_IN_MEMORY)
        return false;
    for (int r = op->first; r < op->end; r++) {
        if (node_slot(node->peers[r].board, op)->place == NODE_IN_MEMORY)
            return false;
    }
    pairs_range_own(node, op, &from, &to);
    return to * op->element_bytes <= NODE_BITE;
}

dist_status disti_node_pairs_take(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;
    size_t from, to;

    for (int r = op->first; r < op->end && status == DIST_OK; r++) {
        char *out = (char *)op->call.out + pairs_out(op, r).first * op->element_bytes;
        struct node_block block;

        if (r == node->rank)
            continue;
        status = disti_node_pairs_block(node, op, r, &block);
        if (status == DIST_OK && block.count)
            memcpy(out, pairs_on_board(node, op, r, &block), block.count * op->element_bytes);
    }
    pairs_range_own(node, op, &from, &to);
    if (status == DIST_OK && to)
        pairs_own(node, op, 0, to);
    return status;
}

bool disti_node_pairs_work(struct disti_node *node, struct disti_node_op *op)
{
    size_t bite = node_bite(op, NODE_BITE), from, to;
    bool gives = pairs_gives_others(node, op) && disti_node_pattern(op->call.collective)->rooted;

    while (op->others < node->ranks && bite > 0) {
        int other = (node->rank + 1 + op->others) % node->ranks;
        size_t take;

        if (other == node->rank)
            pairs_range_own(node, op, &from, &to);
        else
            pairs_range(node, op, other, &from, &to);
        take = to - from - op->done < bite ? to - from - op->done : bite;
        if (take && other == node->rank)
            pairs_own(node, op, from + op->done, take);
        else if (take && gives)
            pairs_put(node, op, other, from + op->done, take);
        else if (take)
            pairs_get(node, op, other, from + op->done, take);
        bite -= take;
        op->done += take;
        if (from + op->done == to) {
            op->done = 0;
            op->others++;
        }
    }
    return op->others == node->ranks;
}
