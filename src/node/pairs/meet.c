/* SPDX-License-Identifier: BSD-3-Clause */
/* What the others show: where the block between each of them and this rank is. */
#include "node/pairs/pairs.h"

/* Sees the peer's memory, or says that it cannot. */
static char *pairs_see(struct disti_node *node, const struct disti_node_op *op, int rank,
                       const struct disti_segment_location *at, size_t bytes)
{
    char *memory = NULL;

    if (at->name.key)
        memory = disti_node_try_see(&node->peers[rank], at, bytes);
    if (at->name.key && !memory)
        node_slot(node->board, op)->failed = NODE_UNSEEN;
    return memory;
}

dist_status disti_node_pairs_block(struct disti_node *node, struct disti_node_op *op, int giver,
                                   struct node_block *block_p)
{
    bool listed = disti_node_pattern(op->call.collective)->in_blocks;
    struct node_block *list = node_list(&node->peers[giver], op);
    uint64_t count = pairs_out(op, giver).count;

    *block_p = list[listed ? node->rank : 0];
    if (block_p->count == count)
        return DIST_OK;
    op->expected = count * op->element_bytes;
    op->sent = block_p->count * op->element_bytes;
    op->peer = giver;
    op->mine = op->theirs = op->fingerprint;
    op->sequence = op->call.sequence;
    return DIST_ERR_MISMATCH;
}

/* Where this rank's block lies at a giver. */
static dist_status pairs_find_giver(struct disti_node *node, struct disti_node_op *op, int giver)
{
    struct node_peer *peer = &node->peers[giver];
    const struct node_slot *slot = node_slot(peer->board, op);
    struct node_block block;
    dist_status status = disti_node_pairs_block(node, op, giver, &block);
    size_t first, bytes;

    if (status != DIST_OK)
        return status;
    peer->count = block.count;
    if (slot->place != NODE_IN_MEMORY) {
        peer->means = NODE_FROM_BOARD;
        peer->in = pairs_on_board(node, op, giver, &block);
        return DIST_OK;
    }
    first = block.first * op->element_bytes;
    bytes = block.count * op->element_bytes;
    peer->means = pairs_means(op, &slot->locations);
    peer->in = pairs_see(node, op, giver, &slot->locations.in, first + bytes);
    peer->in = peer->in ? peer->in + first : NULL;
    peer->in_address = slot->locations.in_address + first;
    peer->rounds = slot->locations.rounds;
    return DIST_OK;
}

/* Where a root's or another's OUT is, if this rank copies a part of its block there. */
static void pairs_find_taker(struct disti_node *node, struct disti_node_op *op, int taker)
{
    struct node_peer *peer = &node->peers[taker];
    const struct node_slot *slot = node_slot(peer->board, op);
    const struct node_block *list = node_list(peer, op), *theirs;
    size_t first, bytes;

    peer->count = pairs_in(op, taker).count;
    peer->by_window = pairs_means(op, &node_slot(node->board, op)->locations) == NODE_BY_WINDOW;
    if (slot->place != NODE_IN_MEMORY)
        return;
    theirs = &list[taker == op->call.root ? node->rank : 0];
    if (theirs->count != peer->count) { /* which the taker tells; nothing may be written there */
        peer->count = 0;
        return;
    }
    first = theirs->first * op->element_bytes;
    bytes = peer->count * op->element_bytes;
    peer->out = pairs_see(node, op, taker, &slot->locations.out, first + bytes);
    peer->out = peer->out ? peer->out + first : NULL;
    peer->out_address = slot->locations.out_address + first;
}

static dist_status pairs_meet(struct disti_node *node, struct disti_node_op *op, int rank)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    struct node_peer *peer = &node->peers[rank];
    bool gives = pairs_gives_others(node, op);
    bool takes = !pattern->rooted || !gives;
    bool far = takes && node_slot(peer->board, op)->place == NODE_IN_MEMORY;
    dist_status status = DIST_OK;

    if (takes)
        status = pairs_find_giver(node, op, rank);
    if (gives && op->place == NODE_IN_MEMORY) {
        far = true;
        if (pattern->rooted)
            pairs_find_taker(node, op, rank);
        else
            peer->by_window =
                pairs_means(op, &node_slot(node->board, op)->locations) == NODE_BY_WINDOW;
    }
    peer->last = far;
    op->together |= far;
    return status;
}

/* This rank and others copy. */
static void pairs_join(struct disti_node *node, struct disti_node_op *op, bool seen)
{
    size_t bytes = pairs_extent(op->call.in_counts, op->call.in_offsets, node, op) +
                   pairs_extent(op->call.out_counts, op->call.out_offsets, node, op);

    op->piece = disti_node_piece(node, op);
    op->way = seen ? NODE_WAY_DIRECT : NODE_WAY_CMA;
    disti_node_gait_choose(node, op, bytes >= node->cache_bytes);
}

dist_status disti_node_pairs_resolve(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;
    bool seen = true;

    for (int r = 0; r < node->ranks; r++) {
        struct node_peer *peer = &node->peers[r];

        peer->count = 0;
        peer->means = NODE_NOTHING;
        peer->in = peer->out = NULL;
        peer->by_window = false;
        peer->last = 0;
    }
    op->way = NODE_WAY_DIRECT;
    if (op->end == op->first) {
        op->others = node->ranks - 1; /* only its own block is left, which comes last */
        return DIST_OK;
    }
    op->cma = node_slot(node->peers[pairs_leader(op)].board, op)->cma;
    for (int r = op->first; r < op->end && status == DIST_OK; r++) {
        const struct node_peer *peer = &node->peers[r];

        if (r == node->rank)
            continue;
        status = pairs_meet(node, op, r);
        seen = seen && !peer->by_window && peer->means <= NODE_SEEN;
    }
    if (op->place == NODE_IN_MEMORY && pairs_gives_others(node, op))
        seen = seen && node_slot(node->board, op)->locations.in.name.key;
    if (op->together)
        pairs_join(node, op, seen);
    return status;
}
