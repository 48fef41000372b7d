/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files of this folder share. */
#ifndef DISTI_NODE_PAIRS_PAIRS_H
#define DISTI_NODE_PAIRS_PAIRS_H

#include "node/pairs/course.h"

/*
 * Calls in which a rank knows the counts of its own blocks only: gather_v, scatter_v, all_to_all_v.
 * What they are to others is a matter of two ranks, who both know the block between them, and of
 * what stands on the boards:
 *
 *     place of the giver   slot, area         memory
 *     on its board         list, blocks       list, where they are
 *     stage 0              taken, the end     both copy a part; or it waits for windows
 *     stage 1                                 all is done that goes without windows
 *     stage 2, 3, ...                         the window holds round 0, 1, ...
 *
 * Every giver chooses its place by itself, from what it gives. So a rank that gives little never
 * waits, whatever others give. Where two ranks copy, each awaits the other until the last stage of
 * that pair, and no longer: other pairs may need more rounds, or none.
 *
 * The root leads, or else rank 0: whether the kernel or windows move ordinary memory stands on its
 * board. What the kernel refuses, or a rank cannot map, goes through windows from stage 2 on:
 * either of the two says at stage 1 that it has failed.
 */
static inline bool pairs_gives(const struct disti_node_op *op, int rank)
{
    return node_is(disti_node_pattern(op->call.collective)->givers, op, rank);
}

static inline bool pairs_takes(const struct disti_node_op *op, int rank)
{
    return node_is(disti_node_pattern(op->call.collective)->takers, op, rank);
}

/* Does this rank give to others? Between a root and another one gives, the other takes. */
static inline bool pairs_gives_others(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (!pattern->rooted)
        return true;
    return (pattern->givers == NODE_ROOT) == (node->rank == op->call.root);
}

/* The block of IN that is for that rank: all have one, or the root has the only one. */
static inline struct node_block pairs_in(const struct disti_node_op *op, int taker)
{
    int block = op->call.in_counts ? taker : 0;

    return (struct node_block){node_in_count(op, block), node_in_first(op, block)};
}

/* The block of OUT that comes from that rank. */
static inline struct node_block pairs_out(const struct disti_node_op *op, int giver)
{
    int block = op->call.out_counts ? giver : 0;

    return (struct node_block){node_out_count(op, block), node_out_first(op, block)};
}

/* Bytes to the end of the last block of IN or OUT. */
static inline size_t pairs_extent(const size_t *counts, const size_t *offsets,
                                  const struct disti_node *node, const struct disti_node_op *op)
{
    size_t end = counts ? 0 : op->call.count;

    for (int r = 0; counts && r < node->ranks; r++) {
        if (counts[r] && offsets[r] + counts[r] > end)
            end = offsets[r] + counts[r];
    }
    return end * op->element_bytes;
}

/* Bytes before the first block that stands behind a list; those in an area are copied by lines. */
static inline size_t pairs_list_bytes(int listed, enum disti_node_place place)
{
    size_t bytes = (size_t)listed * sizeof(struct node_block);

    return place == NODE_IN_SLOT ? bytes : (bytes + NODE_LINE - 1) / NODE_LINE * NODE_LINE;
}

/* Whose word counts on how ordinary memory is copied. */
static inline int pairs_leader(const struct disti_node_op *op)
{
    return disti_node_pattern(op->call.collective)->rooted ? op->call.root : 0;
}

/* Has this rank a list of all ranks' blocks, or is there only one? */
static inline int pairs_listed(const struct disti_node *node, const struct disti_node_op *op)
{
    return op->call.in_counts || op->call.out_counts ? node->ranks : 1;
}

/* How a giver's memory is reached. */
static inline enum node_means pairs_means(const struct disti_node_op *op,
                                          const struct node_locations *giver)
{
    return giver->in.name.key ? NODE_SEEN : op->cma ? NODE_BY_KERNEL : NODE_BY_WINDOW;
}

/* Its list, in a call of pairs. */
static inline struct node_block *node_list(const struct node_peer *peer,
                                           const struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(peer->board, op);

    if (__builtin_expect(slot->place == NODE_IN_SLOT, 1))
        return (void *)slot->data;
    return (void *)node_area(peer->areas, slot, op->number);
}

/* Where a block of a giver's stands on its board. */
static inline const char *pairs_on_board(const struct disti_node *node,
                                         const struct disti_node_op *op, int giver,
                                         const struct node_block *block)
{
    const struct node_peer *peer = &node->peers[giver];
    int listed = disti_node_pattern(op->call.collective)->in_blocks ? node->ranks : 1;
    enum disti_node_place place = (enum disti_node_place)node_slot(peer->board, op)->place;

    return (const char *)node_list(peer, op) + pairs_list_bytes(listed, place) +
           block->first * op->element_bytes;
}

/* This rank's list, of blocks as they lie in memory, or as they stand behind it. */
void disti_node_pairs_list(const struct disti_node *node, const struct disti_node_op *op,
                           struct node_block *list);
/* What a giver's list says of this rank's block. ERR_MISMATCH: this rank expects another count. */
dist_status disti_node_pairs_block(struct disti_node *node, struct disti_node_op *op, int giver,
                                   struct node_block *block_p);

#endif
