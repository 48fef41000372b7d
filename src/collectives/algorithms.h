/* SPDX-License-Identifier: BSD-3-Clause */
/* The algorithms of the table, each a function that writes a plan, and the parts that they share.
 */
#ifndef DISTI_COLLECTIVES_ALGORITHMS_H
#define DISTI_COLLECTIVES_ALGORITHMS_H

#include "plan/plan.h"
#include "topology/topology.h"

#define ALGORITHM(which, folder, row, ...)                                                         \
    void disti_##folder##_##row(const struct disti_shape *shape, struct disti_builder *b);
#include "collectives/algorithms.def"
#undef ALGORITHM

/* Parts of algorithms that several collectives share. */

/* The chain of a broadcast: the ring begun at the root, the root's whole node first. */

/*
 *   order     0 1 2 3 | 4 5 6 7 | 8 9     root 5: the chain is
 *   chain               5 6 7 4 | 8 9 | 0 1 2 3
 */
static inline int disti_chain_rank(const struct disti_topology *topology, int root, int position)
{
    int node = disti_node_of(topology, root);
    int first = topology->node_first[node], size = disti_node_size(topology, node);
    if (position < size)
        return topology->order[first + (topology->position[root] - first + position) % size];
    return topology->order[(first + position) % topology->ranks];
}

/* The inverse: where on the chain the rank stands; the root at 0. */
static inline int disti_chain_position(const struct disti_topology *topology, int root, int rank)
{
    int node = disti_node_of(topology, root);
    int first = topology->node_first[node], size = disti_node_size(topology, node);
    if (disti_node_of(topology, rank) == node)
        return (topology->position[rank] - topology->position[root] + size) % size;
    return (topology->position[rank] - first + topology->ranks) % topology->ranks;
}

/* Folding a number of ranks that is no power of two onto one that is. */

/*
 * With 2^rounds + surplus ranks, positions 2 i and 2 i + 1 (i < surplus) are partners: the odd one
 * is folded into the even one. Those that stay have the virtual ranks 0 ..
 * 2^rounds - 1:
 *
 *   position      0   1   2   3   4   5       6 ranks: rounds 2, surplus 2
 *   virtual rank  0 <-+   1 <-+   2   3
 */
struct disti_fold {
    int rounds, surplus;
    int virtual_rank; /* -1: folded into the partner */
    int partner;      /* position; -1: none */
};

static inline struct disti_fold disti_fold(int ranks, int position)
{
    struct disti_fold fold = {.rounds = 0, .partner = -1};
    while (ranks >> (fold.rounds + 1))
        fold.rounds++;
    fold.surplus = ranks - (1 << fold.rounds);
    fold.virtual_rank = position - fold.surplus;
    if (position < 2 * fold.surplus) {
        fold.partner = position ^ 1;
        fold.virtual_rank = position % 2 ? -1 : position / 2;
    }
    return fold;
}

static inline int disti_fold_position(const struct disti_fold *fold, int virtual_rank)
{
    return virtual_rank < fold->surplus ? 2 * virtual_rank : virtual_rank + fold->surplus;
}

/* Pieces of which several algorithms are made. */

/*
 * An all-reduce around a ring of `size` ranks, of chunks [first, first + size * segments), which
 * are cut into `size` slices of `segments` chunks. It starts from each chunk's value so far (see
 * disti_build_value) and finishes it. The segments travel on `channels` channels from
 * `channel` on, in turn. It is written down in all_reduce.c.
 */
struct disti_ring {
    int size, index; /* of this rank on the ring */
    int next, previous;
    uint32_t first, segments;
    uint16_t channel, channels;
};

/*
 * Ranks that exchange with each other directly: ranks[0 .. size), or if that is NULL all ranks, by
 * number. The first `owners` of them own a slice each, of
 * turns * segments chunks; a slice's chunks are dealt with by turns, downwards from turn `start`
 * (and round), the segments of a turn upwards:
 *
 *   turns 3, segments 2, start 1:   2 3 | 0 1 | 4 5
 *
 * They are written down in all_reduce.c.
 */
struct disti_team {
    const int *ranks;
    int size, index, owners;
    uint32_t turns, segments;
};

/* A team of all ranks, each of which owns a slice; `ranks` as in the struct. */
static inline struct disti_team disti_team(const struct disti_shape *shape, const int *ranks)
{
    return (struct disti_team){.ranks = ranks,
                               .size = shape->ranks,
                               .index =
                                   ranks ? shape->topology->position[shape->rank] : shape->rank,
                               .owners = shape->ranks,
                               .turns = 1,
                               .segments = shape->segments};
}

/* The rank of a member, and of the one `distance` members after it (the last is before the first).
 */
int disti_team_rank(const struct disti_team *team, int index);
int disti_team_after(const struct disti_team *team, int distance);

/* Each rank gives each owner that owner's slice of its IN. */
void disti_team_give(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                     uint16_t channel);

/*
 * Each owner's slice is reduced at the owner into OUT, over the team, from the ranks' IN; finish:
 * that is all of it.
 */
void disti_team_reduce(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                       uint16_t channel, bool finish);

/*
 * A lane that sends chunks first, first + step, ... below end to a peer, from OUT, each once it is
 * written; and one that receives them into OUT.
 */
void disti_stream_send(struct disti_builder *b, int channel, int peer, uint32_t first,
                       uint32_t step, uint32_t end);
void disti_stream_recv(struct disti_builder *b, int channel, int peer, uint32_t first,
                       uint32_t step, uint32_t end);

/*
 * Reduces a chunk over all ranks, by number, at this one into OUT, in the order of reproducible
 * results (plan.h), and finishes it. Each other rank must send it, from IN. Takes log2 `ranks`
 * slots of scratch, from the first on, which are free again when the last step has ended. It is
 * written down in reduce.c.
 */
void disti_ordered_sum(struct disti_builder *b, uint16_t lane, int ranks, int rank, uint32_t chunk);

/* The ranks below a rank in the binomial tree, whose blocks travel with its own. */

/*
 * Writes the ranks of the subtree of `rank` (disti_tree_binomial, from root) to list[]: the rank
 * itself, then the subtrees of its children, the smallest first. Returns how many. So with root 0
 * and ranks in order these are rank, rank + 1, ...
 */
uint32_t disti_subtree(const struct disti_topology *topology, int root, int rank, uint32_t *list);

/* Do the blocks of list[0 .. count) follow each other? */
bool disti_subtree_run(const uint32_t *list, uint32_t count);

/* A few slots of scratch that a pipeline of partial sums goes through. */

/*
 * Item i is written to slot first + i % slots once item i - slots has been sent:
 *
 *   items    0 1 2 3 | 4 5 6 7 | 8 ...        written: 5, sent: 2, so item 5 must wait for the
 *   slots    0 1 2 3   0 1 2 3   0            sending of item 1
 */
#define DISTI_WINDOW 4
struct disti_window {
    uint32_t first;
    struct disti_step_ref sent[DISTI_WINDOW]; /* by slot: what was there last has left by then */
};

static inline struct disti_window disti_window(struct disti_builder *b, uint32_t first)
{
    struct disti_window window = {.first = first};
    disti_build_scratch(b, first + DISTI_WINDOW);
    for (int i = 0; i < DISTI_WINDOW; i++)
        window.sent[i] = DISTI_NOW;
    return window;
}

static inline struct disti_chunk_ref disti_window_slot(const struct disti_window *window,
                                                       uint32_t item)
{
    return disti_scratch(window->first + item % DISTI_WINDOW);
}

#endif
