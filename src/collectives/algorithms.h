/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of the algorithms in the table, and code that several algorithms share. */
#ifndef DISTI_COLLECTIVES_ALGORITHMS_H
#define DISTI_COLLECTIVES_ALGORITHMS_H

#include "plan/plan.h"
#include "topology/topology.h"

#define ALGORITHM(which, directory, row, ...)                                                      \
    void disti_##directory##_##row(const struct disti_shape *shape, struct disti_builder *b);
#include "collectives/algorithms.def"
#undef ALGORITHM

/* ---- parts that several collectives share ---- */

/*
 * The chain of a broadcast: the ring, started at the root, with all ranks of the root's node first.
 *
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

/* The inverse: a rank's position on the chain. The root is at 0. */
static inline int disti_chain_position(const struct disti_topology *topology, int root, int rank)
{
    int node = disti_node_of(topology, root);
    int first = topology->node_first[node], size = disti_node_size(topology, node);
    if (disti_node_of(topology, rank) == node)
        return (topology->position[rank] - topology->position[root] + size) % size;
    return (topology->position[rank] - first + topology->ranks) % topology->ranks;
}

/* ---- folding a number of ranks that is no power of two ---- */

/*
 * With 2^rounds + surplus ranks, positions 2 i and 2 i + 1 (i < surplus) are partners: the odd one
 * is folded into the even one. The remaining positions have the virtual ranks 0 .. 2^rounds - 1:
 *
 *   position      0   1   2   3   4   5       6 ranks: rounds 2, surplus 2
 *   virtual rank  0 <-+   1 <-+   2   3
 */
struct disti_fold {
    int rounds, surplus;
    int virtual_rank; /* -1: this rank is folded into its partner */
    int partner;      /* a position; -1: none */
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

/* ---- building blocks of several algorithms ---- */

/*
 * An all-reduce over a ring of `size` ranks, of chunks [first, first + size * segments), which are
 * cut into `size` slices of `segments` chunks. It starts with each chunk's current value
 * (disti_build_value) and sets `finish` on the last addition. Segments are distributed round-robin
 * over `channels` channels, the first of which is `channel`. The code is in all_reduce.c.
 */
struct disti_ring {
    int size, index; /* index: this rank's position on the ring */
    int next, previous;
    uint32_t first, segments;
    uint16_t channel, channels;
};

/*
 * A team: ranks that exchange directly with each other. Its members are ranks[0 .. size), or ranks
 * 0 .. size - 1 if `ranks` is NULL. Each of the first `owners` members owns a slice of turns *
 * segments chunks. The turns of a slice are processed in descending order from turn `start`,
 * wrapping around; the segments of a turn in ascending order:
 *
 *   turns 3, segments 2, start 1:   chunks 2 3 | 0 1 | 4 5
 *
 * The functions are in all_reduce.c.
 */
struct disti_team {
    const int *ranks;
    int size, index, owners;
    uint32_t turns, segments;
};

/* Returns a team of all ranks, in which each rank owns a slice; `ranks` as in the struct. */
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

/* disti_team_rank() returns the rank of a member. disti_team_after() returns the rank of the member
 * `distance` places after this one, wrapping around. */
int disti_team_rank(const struct disti_team *team, int index);
int disti_team_after(const struct disti_team *team, int distance);

/* Each member sends each owner's slice of its own IN to that owner. */
void disti_team_send(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                     uint16_t channel);

/* Reduces each owner's slice of IN over the team into the owner's OUT. finish: no further
 * contributions follow. */
void disti_team_reduce(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                       uint16_t channel, bool finish);

/* Add a lane that sends chunks first, first + step, ... below `end` from OUT to a peer, each after
 * it has been written, or a lane that receives these chunks into OUT. */
void disti_stream_send(struct disti_builder *b, int channel, int peer, uint32_t first,
                       uint32_t step, uint32_t end);
void disti_stream_recv(struct disti_builder *b, int channel, int peer, uint32_t first,
                       uint32_t step, uint32_t end);

/*
 * Reduces a chunk over ranks 0 .. ranks - 1 into OUT of this rank, in the fixed order of additions
 * for reproducible results (struct disti_algorithm), and finishes it. Every other rank must send
 * the chunk from IN. Uses log2 `ranks` slots of scratch, starting with slot 0; the slots are free
 * again after the last step. The code is in reduce.c.
 */
void disti_ordered_sum(struct disti_builder *b, uint16_t lane, int ranks, int rank, uint32_t chunk);

/* ---- subtrees of the binomial tree ---- */

/*
 * Writes the ranks of the subtree of `rank` in the binomial tree from `root` (disti_tree_binomial)
 * to list[] and returns their number: the rank itself, then the subtrees of its children, the
 * smallest first. The ranks may be out of order: for root 0 of five ranks on one node, the list is
 * 0 1 4 2 3. disti_subtree_run() tells whether they are consecutive.
 */
uint32_t disti_subtree(const struct disti_topology *topology, int root, int rank, uint32_t *list);

/* True if the ranks list[0 .. count) are consecutive. */
bool disti_subtree_run(const uint32_t *list, uint32_t count);

/* ---- sliding window of scratch slots for pipelined partial sums ---- */

/*
 * Item i is written to slot first + i % slots after item i - slots has been sent:
 *
 *   items    0 1 2 3 | 4 5 6 7 | 8 ...        written: 5, sent: 2, so item 5 must wait until
 *   slots    0 1 2 3   0 1 2 3   0            item 1 has been sent
 */
#define DISTI_WINDOW 4
struct disti_window {
    uint32_t first;
    /* by slot: the step that sent the slot's previous item */
    struct disti_step_ref sent[DISTI_WINDOW];
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
