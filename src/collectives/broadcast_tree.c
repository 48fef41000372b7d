/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Broadcast over two binary trees: Sanders, Speck, Traeff, "Two-tree algorithms for full
 * bandwidth broadcast, reduction and scan", 2009; pipelined.
 *
 *              root
 *        even /    \ odd chunks          both trees span all the other ranks;
 *       tree 0      tree 1               inner in one is leaf in the other
 *
 * The root stands outside the trees, so it sends each chunk once and no rank more than one
 * vector's worth. Places in the trees go along the chain of the broadcast (chain.h).
 * Steps: log2 n + 2 segments in sequence. Bytes sent by a rank: one vector at most.
 */
#include "collectives/algorithms.h"
#include "collectives/chain.h"

/* Label l of the trees is place l + 1 of the chain. */
static int tree_rank(const struct disti_shape *shape, int label)
{
    return disti_chain_rank(shape->topology, shape->root, label + 1);
}

static void tree_send(const struct disti_shape *shape, struct disti_builder *b, int which,
                      int label)
{
    uint16_t lane = disti_build_lane(b, (uint16_t)which);
    for (uint32_t c = (uint32_t)which; c < 2 * shape->segments; c += 2)
        disti_build_send(b, lane, disti_build_written(b, c), tree_rank(shape, label), disti_out(c),
                         c, 1);
}

static void tree_hand_on(const struct disti_shape *shape, struct disti_builder *b, int which,
                         int label)
{
    struct disti_tree_place place;
    disti_tree_double_label(shape->ranks - 1, which, label, &place);
    uint16_t lane = disti_build_lane(b, (uint16_t)which);
    int parent = place.parent < 0 ? shape->root : tree_rank(shape, place.parent);
    for (uint32_t c = (uint32_t)which; c < 2 * shape->segments; c += 2)
        disti_build_recv(b, lane, DISTI_NOW, parent, disti_out(c), c, 1);
    for (int i = 0; i < place.children; i++)
        tree_send(shape, b, which, place.child[i]);
}

void disti_broadcast_tree(const struct disti_shape *shape, struct disti_builder *b)
{
    int at = disti_chain_place(shape->topology, shape->root, shape->rank);
    disti_build_chunks(b, 2 * shape->segments);
    for (int which = 0; which < 2; which++) {
        if (at == 0)
            tree_send(shape, b, which, disti_tree_double_label_root(shape->ranks - 1, which));
        else
            tree_hand_on(shape, b, which, at - 1);
    }
}
