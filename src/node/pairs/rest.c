/* SPDX-License-Identifier: BSD-3-Clause */
/* What is left for windows when all else is done. */
#include "base/log.h"
#include "node/pairs/pairs.h"

#include <errno.h>
#include <string.h>

/* Has either of the two failed? What this rank has shown in vain it does not show again. */
static bool pairs_failed(struct disti_node *node, const struct disti_node_op *op, int rank)
{
    struct node_slot *mine = node_slot(node->board, op);
    int32_t theirs = node_slot(node->peers[rank].board, op)->failed;
    int32_t failed = mine->failed ? mine->failed : theirs;

    if (theirs == NODE_UNSEEN && op->place == NODE_IN_MEMORY) {
        disti_node_disprove(node, mine->locations.in.name.key);
        disti_node_disprove(node, mine->locations.out.name.key);
    }
    if (failed > 0 && failed != EFAULT && !node->cma_refused) {
        node->cma_refused = true;
        disti_info("ordinary memory goes through windows: the kernel does not copy between these "
                   "processes: %s",
                   strerror(failed));
    }
    return failed;
}

/* Rounds of a window that the two have before them. */
static uint32_t pairs_rounds(const struct disti_node_op *op, const struct node_peer *peer,
                             size_t given)
{
    size_t most = peer->means == NODE_BY_WINDOW ? peer->count : 0;

    if (peer->by_window && given > most)
        most = given;
    return (uint32_t)((most + op->piece - 1) / op->piece);
}

bool disti_node_pairs_remain(struct disti_node *node, struct disti_node_op *op)
{
    bool gives = pairs_gives_others(node, op) && op->place == NODE_IN_MEMORY;

    for (int r = op->first; r < op->end && op->stage == 1; r++) {
        struct node_peer *peer = &node->peers[r];
        uint32_t rounds;

        if (r == node->rank || !peer->last)
            continue;
        if (pairs_failed(node, op, r)) {
            peer->by_window |= gives;
            if (peer->means == NODE_SEEN || peer->means == NODE_BY_KERNEL)
                peer->means = NODE_BY_WINDOW;
        }
        rounds = pairs_rounds(op, peer, gives ? pairs_in(op, r).count : 0);
        peer->last = rounds ? 2 + rounds : 1;
        if (rounds > op->rounds)
            op->rounds = rounds;
    }
    return op->stage == 1 && op->rounds;
}

dist_status disti_node_pairs_to_windows(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    op->way = NODE_WAY_WINDOWS;
    for (int r = op->first; r < op->end && status == DIST_OK; r++) {
        if (r != node->rank && node->peers[r].means == NODE_BY_WINDOW)
            status = disti_node_attach(node, op, r);
    }
    return status;
}

void disti_node_pairs_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round)
{
    bool listed = disti_node_pattern(op->call.collective)->in_blocks;

    for (int r = op->first; r < op->end; r++) {
        struct node_block block;
        size_t first, elements;

        if (r == node->rank || !node->peers[r].by_window)
            continue;
        block = pairs_in(op, r);
        elements = disti_node_round(op, block.count, round, &first);
        disti_node_move(disti_node_window(node, node->rank, round) +
                            (listed ? (size_t)r * op->piece : 0) * op->element_bytes,
                        (const char *)op->call.in + (block.first + first) * op->element_bytes,
                        elements * op->element_bytes, node_window_gait(op));
    }
}
