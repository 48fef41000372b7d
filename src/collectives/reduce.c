/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce over a binomial tree: Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", 2005. The tree is built inside the nodes first
 * (disti_tree_binomial), so each node sends over the network once.
 *
 *          0
 *       /  |  \          a rank sends the sum of its own and its children's vectors to its
 *      4   2   1         parent; the smallest subtree is complete first
 *     /|   |
 *    6 5   3
 *    |
 *    7
 *
 * Steps: log2 n in sequence. Bytes sent by a rank: one vector.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

void disti_reduce_binomial(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_tree_neighbours tree;
    disti_tree_binomial(shape->topology, shape->root, shape->rank, &tree);
    disti_build_chunks(b, 1);
    disti_build_scratch(b, 1);
    uint16_t lane = disti_build_lane(b, 0);
    struct disti_chunk_ref value = disti_in(0),
                           sum = tree.parent < 0 ? disti_out(0) : disti_scratch(0);
    for (int i = tree.children - 1; i >= 0; i--) {
        disti_build_recv_reduce(b, .lane = lane, .peer = tree.child[i], .dst = sum, .src = value,
                                .finish = tree.parent < 0 && i == 0);
        value = sum;
    }
    if (tree.parent >= 0)
        disti_build_send(b, .lane = lane, .peer = tree.parent, .src = value);
}

/*
 * Reduce over a binomial tree that adds in the order of reproducible results (plan.h), for any
 * root; pipelined.
 *
 *   virtual    0   1   2   3   4   5   6   7      root 5
 *   round 0    --->    --->    --->    --->
 *   round 1        <-------        <-------
 *   round 2        --------------->
 *
 * Round k pairs virtual ranks that differ in bit k and whose lower bits equal those of the root.
 * The one whose bit k equals the root's receives and adds. Before round 0, the values of two ranks
 * that are folded together (disti_fold) are added, by the even rank, or by the root if it is one of
 * the two. Partial sums pass through a window of scratch slots. Steps: log2 n (+ 1) + segments in
 * sequence. Bytes sent by a rank: one vector.
 */

struct cube {
    const struct disti_shape *shape;
    struct disti_builder *b;
    struct disti_fold fold;
    int virtual_rank, virtual_root;
};

/* Returns the virtual rank of a rank, or of the pair of ranks that it is folded into. */
static int cube_virtual_rank(int ranks, int rank)
{
    struct disti_fold fold = disti_fold(ranks, rank);
    return fold.virtual_rank < 0 ? rank / 2 : fold.virtual_rank;
}

/* Returns the rank that acts for a virtual rank. */
static int cube_rank(const struct cube *c, int virtual_rank)
{
    return virtual_rank == c->virtual_root ? c->shape->root
                                           : disti_fold_position(&c->fold, virtual_rank);
}

void disti_reduce_binomial_ordered(const struct disti_shape *shape, struct disti_builder *b)
{
    struct cube c = {.shape = shape,
                     .b = b,
                     .fold = disti_fold(shape->ranks, shape->rank),
                     .virtual_rank = cube_virtual_rank(shape->ranks, shape->rank),
                     .virtual_root = cube_virtual_rank(shape->ranks, shape->root)};
    int acting = cube_rank(&c, c.virtual_rank), differ = c.virtual_rank ^ c.virtual_root;
    /* The round in which this virtual rank sends its sum; the root never sends. */
    int rounds = differ ? __builtin_ctz((unsigned)differ) : c.fold.rounds;
    disti_build_chunks(b, shape->segments);
    uint16_t recv = disti_build_lane(b, 0), send = disti_build_lane(b, 0);
    struct disti_window window = disti_window(b, 0);
    for (uint32_t chunk = 0; chunk < shape->segments; chunk++) {
        if (acting == shape->rank) {
            /* Sums up the chunk at this rank, then sends it to `to`. The additions wait until the
             * window's slot is free. */
            bool root = c.shape->rank == c.shape->root;
            int to = root ? -1 : cube_rank(&c, c.virtual_rank ^ (1 << rounds));
            struct disti_chunk_ref value = disti_in(chunk);
            struct disti_chunk_ref sum =
                root ? disti_out(chunk) : disti_window_slot(&window, chunk);
            struct disti_step_ref has = DISTI_NOW, *sent = &window.sent[chunk % DISTI_WINDOW];
            for (int round = -1; round < rounds; round++) {
                int from =
                    round < 0 ? c.fold.partner : cube_rank(&c, c.virtual_rank ^ (1 << round));
                if (from < 0)
                    continue; /* no rank is folded into this one */
                has = disti_build_recv_reduce(c.b, .lane = recv, .after = *sent, .peer = from,
                                              .dst = sum, .src = value, .data = chunk,
                                              .finish = root && round == rounds - 1);
                value = sum;
            }
            if (!root)
                *sent = disti_build_send(c.b, .lane = send, .after = has, .peer = to, .src = value,
                                         .data = chunk);
        } else
            disti_build_send(b, .lane = send, .peer = acting, .src = disti_in(chunk),
                             .data = chunk);
    }
}

/*
 * Reduce up a pipelined chain, like the fragmenting algorithms of Pjesivac-Grbovic et al.,
 * "Performance analysis of MPI collective operations", 2007.
 *
 *   root <--0 1 2-- rank <--0 1 2-- rank <--0 1 2-- ...      each rank adds its own values
 *
 * The chain is that of the broadcast (disti_chain_rank), in reverse, so each node sends to another
 * node once. Partial sums pass through a window of scratch slots, so scratch does not grow with the
 * vector. Steps: n - 2 + segments in sequence. Bytes sent by a rank: one vector.
 */

void disti_reduce_chain(const struct disti_shape *shape, struct disti_builder *b)
{
    int position = disti_chain_position(shape->topology, shape->root, shape->rank);
    disti_build_chunks(b, shape->segments);
    if (position == 0) {
        /* At the root the last addition writes to OUT. */
        uint16_t lane = disti_build_lane(b, 0);
        int next = disti_chain_rank(shape->topology, shape->root, 1);
        for (uint32_t c = 0; c < shape->segments; c++)
            disti_build_recv_reduce(b, .lane = lane, .peer = next, .dst = disti_out(c),
                                    .src = disti_in(c), .data = c, .finish = true);
        return;
    }
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    int previous = disti_chain_rank(shape->topology, shape->root, position - 1);
    struct disti_window window = disti_window(b, 0);
    for (uint32_t c = 0; c < shape->segments; c++) {
        struct disti_chunk_ref value = disti_in(c);
        struct disti_step_ref has = DISTI_NOW, *sent = &window.sent[c % DISTI_WINDOW];
        if (position < shape->ranks - 1) {
            int next = disti_chain_rank(shape->topology, shape->root, position + 1);
            value = disti_window_slot(&window, c);
            has = disti_build_recv_reduce(b, .lane = recv, .after = *sent, .peer = next,
                                          .dst = value, .src = disti_in(c), .data = c);
        }
        *sent = disti_build_send(b, .lane = send, .after = has, .peer = previous, .src = value,
                                 .data = c);
    }
}

/*
 * Reduce by the root alone, which receives the vectors of all other ranks.
 *
 *   all ranks --IN--> root        reduced on arrival, a segment from all ranks before the next one
 *
 * A segment's sum stays in the cache, and no rank needs scratch. Steps: n - 1 additions in
 * sequence. Bytes sent by a rank: one vector.
 */

void disti_reduce_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_chunks(b, shape->segments);
    for (uint32_t c = 0; c < shape->segments; c++) {
        if (shape->rank != shape->root)
            disti_build_send(b, .lane = lane, .peer = shape->root, .src = disti_in(c), .data = c);
        for (int i = 1; i < shape->ranks && shape->rank == shape->root; i++)
            disti_build_recv_reduce(b, .lane = lane,
                                    .peer = disti_chain_rank(shape->topology, shape->root, i),
                                    .dst = disti_out(c), .src = disti_build_value(b, c), .data = c,
                                    .finish = i == shape->ranks - 1);
    }
}

/*
 * Reduce by the root alone (disti_reduce_direct), in the order of reproducible results (plan.h).
 *
 *   all ranks --IN--> root        which adds in the fixed order, segment by segment
 *
 * Half of the received segments must wait in scratch for their other operand: at most log2 n
 * segments at a time. Steps: n - 1 additions in sequence. Bytes sent by a rank: one vector.
 */

/*
 * The tree of additions is traversed from this rank's virtual rank P: the m-th value received is
 * that of P xor m, so that at any time each rank sends to one receiver. Sums that wait for their
 * other operand are on a stack, whose lowest entry is in OUT and whose other entries are in scratch
 * (k is the value of P xor k):
 *
 *   m         0    1      2       3          4 ...
 *   OUT       P    P+1    P+1     P+1+2+3    P+1+2+3
 *   slot 0                2       (2+3)      4
 */
struct ordered {
    struct disti_builder *b;
    uint16_t lane;
    int rank, virtual_rank;
    uint32_t chunk;
    uint32_t depth; /* entries on the stack */
    bool fresh;     /* the lowest entry is still in IN */
};

static struct disti_chunk_ref ordered_slot(const struct ordered *o, uint32_t depth)
{
    return depth == 0 ? disti_build_out(o->b, o->chunk) : disti_scratch(depth - 1);
}

static struct disti_chunk_ref ordered_value(const struct ordered *o, uint32_t depth)
{
    return depth == 0 && o->fresh ? disti_build_in(o->b, o->chunk) : ordered_slot(o, depth);
}

/* Adds the chunk received from `from` to the top of the stack. */
static void ordered_add(struct ordered *o, int from, bool finish)
{
    uint32_t top = o->depth - 1;
    disti_build_recv_reduce(o->b, .lane = o->lane, .peer = from, .dst = ordered_slot(o, top),
                            .src = ordered_value(o, top), .data = o->chunk, .finish = finish);
    o->fresh = o->fresh && top > 0;
}

void disti_ordered_sum(struct disti_builder *b, uint16_t lane, int ranks, int rank, uint32_t chunk)
{
    struct disti_fold fold = disti_fold(ranks, rank);
    struct ordered o = {.b = b,
                        .lane = lane,
                        .rank = rank,
                        .virtual_rank = fold.virtual_rank < 0 ? rank / 2 : fold.virtual_rank,
                        .chunk = chunk};
    disti_build_scratch(b, (uint32_t)fold.rounds);
    for (int m = 0; m < 1 << fold.rounds; m++) {
        /* Obtains this virtual rank's value, then does the additions that it completes. */
        int virtual_rank = o.virtual_rank ^ m, first = disti_fold_position(&fold, virtual_rank);
        bool two = virtual_rank < fold.surplus, last = m == (1 << fold.rounds) - 1;
        int merges = __builtin_ctz(~(unsigned)m); /* the number of trailing ones of m */
        if (merges > 0 && !two) {                 /* one step receives and adds */
            merges--;
            ordered_add(&o, first, last && merges == 0);
        } else {
            /* Pushes a virtual rank's value: that of one rank, or the sum of two ranks that are
             * folded together. */
            bool own = first == o.rank || (two && first + 1 == o.rank);
            o.depth++;
            if (own)
                o.fresh = true;
            else
                disti_build_recv(o.b, .lane = o.lane, .peer = first,
                                 .dst = ordered_slot(&o, o.depth - 1), .data = o.chunk);
            if (two)
                ordered_add(&o, own ? o.rank ^ 1 : first + 1, false);
        }
        for (; merges > 0; merges--) {
            /* Adds the top of the stack to the entry below. */
            o.depth--;
            uint32_t below = o.depth - 1;
            struct disti_chunk_ref sum = ordered_slot(&o, below);
            if (below == 0 && o.fresh)
                disti_build_copy(o.b, .lane = o.lane, .dst = sum, .src = ordered_value(&o, below),
                                 .data = o.chunk);
            o.fresh = o.fresh && below > 0;
            disti_build_reduce(o.b, .lane = o.lane, .dst = sum, .src = ordered_slot(&o, o.depth),
                               .data = o.chunk, .finish = last && merges == 1);
        }
    }
}

void disti_reduce_direct_ordered(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, shape->segments);
    uint16_t lane = disti_build_lane(b, 0);
    for (uint32_t c = 0; c < shape->segments; c++) {
        if (shape->rank == shape->root)
            disti_ordered_sum(b, lane, shape->ranks, shape->rank, c);
        else
            disti_build_send(b, .lane = lane, .peer = shape->root, .src = disti_in(c), .data = c);
    }
}

/*
 * Reduce as a reduce-scatter and a gather: Rabenseifner's idea (Thakur, Rabenseifner, Gropp, 2005),
 * for ranks that can read each other's memory.
 *
 *   the vector is cut into n slices, rank i adds up slice i:
 *
 *     all ranks --slice i of IN--> rank i     into scratch (the root: into OUT)
 *     rank i --slice i--> root                each segment as soon as it is complete
 *
 * All ranks share the additions. Steps: 2 in sequence. Bytes sent by a rank: one vector.
 */

enum { CHANNEL_REDUCE, CHANNEL_GATHER };

/* Reduces this rank's slice over all ranks and sends it to the root. */
static void slice_reduce(const struct disti_shape *shape, struct disti_builder *b,
                         const struct disti_team *team)
{
    bool root = shape->rank == shape->root;
    uint32_t first = (uint32_t)team->index * team->segments;
    uint16_t lane = disti_build_lane(b, CHANNEL_REDUCE);
    uint16_t send = root ? lane : disti_build_lane(b, CHANNEL_GATHER);
    disti_build_scratch(b, root ? 0 : team->segments);
    for (uint32_t s = 0; s < team->segments; s++) {
        uint32_t chunk = first + s;
        struct disti_chunk_ref value = disti_in(chunk),
                               sum = root ? disti_out(chunk) : disti_scratch(s);
        struct disti_step_ref has = DISTI_NOW;
        for (int i = 1; i < team->size; i++) {
            has = disti_build_recv_reduce(b, .lane = lane, .peer = disti_team_after(team, i),
                                          .dst = sum, .src = value, .data = chunk,
                                          .finish = i == team->size - 1);
            value = sum;
        }
        if (!root)
            disti_build_send(b, .lane = send, .after = has, .peer = shape->root, .src = sum,
                             .data = chunk);
    }
}

void disti_reduce_scatter_gather(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_team team = disti_team(shape, shape->topology->order);
    disti_team_send(b, &team, 0, CHANNEL_REDUCE);
    slice_reduce(shape, b, &team);
    for (int i = 0; i < team.size && shape->rank == shape->root; i++) {
        uint16_t lane = disti_build_lane(b, CHANNEL_GATHER);
        uint32_t first = (uint32_t)i * team.segments;
        for (uint32_t c = first; c < first + team.segments && i != team.index; c++)
            disti_build_recv(b, .lane = lane, .peer = disti_team_rank(&team, i),
                             .dst = disti_out(c), .data = c);
    }
}

/*
 * Reduce over two binary trees: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan", 2009; pipelined. The reverse of the broadcast
 * (disti_broadcast_tree):
 *
 *              root
 *        even /    \ odd chunks          both trees span all ranks but the root; an inner
 *       tree 0      tree 1               vertex of one tree is a leaf of the other
 *
 * A rank adds its children's data to its own and sends the sum to its parent. Partial sums pass
 * through a window of scratch slots per tree. Steps: log2 n + 2 segments in sequence. Bytes sent by
 * a rank: one vector. With N nodes, each tree has N - 1 edges between nodes.
 */

void disti_reduce_tree(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 2 * shape->segments);
    for (int which = 0; which < 2; which++) {
        struct disti_tree_neighbours tree;
        disti_tree_double_rooted(shape->topology, which, shape->root, shape->rank, &tree);
        if (tree.parent < 0) {
            uint16_t lane = disti_build_lane(b, (uint16_t)which);
            for (uint32_t c = (uint32_t)which; c < 2 * shape->segments; c += 2) {
                for (int i = 0; i < tree.children; i++)
                    disti_build_recv_reduce(b, .lane = lane, .peer = tree.child[i],
                                            .dst = disti_out(c),
                                            .src = i ? disti_out(c) : disti_in(c), .data = c,
                                            .finish = i == tree.children - 1);
            }
        } else {
            uint16_t recv = disti_build_lane(b, (uint16_t)which),
                     send = disti_build_lane(b, (uint16_t)which);
            struct disti_window window = disti_window(b, (uint32_t)which * DISTI_WINDOW);
            for (uint32_t s = 0; s < shape->segments; s++) {
                uint32_t c = 2 * s + (uint32_t)which;
                struct disti_chunk_ref value = disti_in(c), sum = disti_window_slot(&window, s);
                struct disti_step_ref has = DISTI_NOW, *sent = &window.sent[s % DISTI_WINDOW];
                for (int i = 0; i < tree.children; i++) {
                    has = disti_build_recv_reduce(b, .lane = recv, .after = *sent,
                                                  .peer = tree.child[i], .dst = sum, .src = value,
                                                  .data = c);
                    value = sum;
                }
                *sent = disti_build_send(b, .lane = send, .after = has, .peer = tree.parent,
                                         .src = value, .data = c);
            }
        }
    }
}
