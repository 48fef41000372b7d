/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce over two binary trees: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan", 2009; pipelined. The broadcast's (broadcast/tree.c), upwards:
 *
 *              root
 *        even /    \ odd chunks          both trees span all the other ranks;
 *       tree 0      tree 1               inner in one is leaf in the other
 *
 * A rank adds what its children send to its own and hands it up; what passes is in a few slots of
 * scratch a tree.
 * Steps: log2 n + 2 segments in sequence. Bytes sent by a rank: one vector; n - 1 edges of a tree
 * lie between n machines.
 */
#include "collectives/algorithms.h"
#include "collectives/common/window.h"
#include "topology/topology.h"

static void tree_end(const struct disti_shape *shape, struct disti_builder *b, int which,
                     const struct disti_tree_neighbours *tree)
{
    uint16_t lane = disti_build_lane(b, (uint16_t)which);
    for (uint32_t c = (uint32_t)which; c < 2 * shape->segments; c += 2) {
        for (int i = 0; i < tree->children; i++)
            disti_build_recv_reduce(b, .lane = lane, .peer = tree->child[i], .dst = disti_out(c),
                                    .src = i ? disti_out(c) : disti_in(c), .data = c,
                                    .finish = i == tree->children - 1);
    }
}

static void tree_send_to_parent(const struct disti_shape *shape, struct disti_builder *b, int which,
                                const struct disti_tree_neighbours *tree)
{
    uint16_t recv = disti_build_lane(b, (uint16_t)which),
             send = disti_build_lane(b, (uint16_t)which);
    struct disti_window window = disti_window(b, (uint32_t)which * DISTI_WINDOW);
    for (uint32_t s = 0; s < shape->segments; s++) {
        uint32_t c = 2 * s + (uint32_t)which;
        struct disti_chunk_ref value = disti_in(c), sum = disti_window_slot(&window, s);
        struct disti_step_ref has = DISTI_NOW, *sent = &window.sent[s % DISTI_WINDOW];
        for (int i = 0; i < tree->children; i++) {
            has = disti_build_recv_reduce(b, .lane = recv, .after = *sent, .peer = tree->child[i],
                                          .dst = sum, .src = value, .data = c);
            value = sum;
        }
        *sent = disti_build_send(b, .lane = send, .after = has, .peer = tree->parent, .src = value,
                                 .data = c);
    }
}

void disti_reduce_tree(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 2 * shape->segments);
    for (int which = 0; which < 2; which++) {
        struct disti_tree_neighbours tree;
        disti_tree_double_rooted(shape->topology, which, shape->root, shape->rank, &tree);
        if (tree.parent < 0)
            tree_end(shape, b, which, &tree);
        else
            tree_send_to_parent(shape, b, which, &tree);
    }
}
