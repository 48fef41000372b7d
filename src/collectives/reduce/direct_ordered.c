/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce at the root only (reduce/direct.c), which adds in the order of reproducible results
 * (plan.h).
 *
 *   all ranks --IN--> root        which goes through the tree of additions, segment by segment
 *
 * Half of what comes must wait in scratch for what it is to be added to: log2 n segments at most.
 * Steps: n - 1 additions in sequence. Bytes sent by a rank: one vector.
 */
#include "collectives/algorithms.h"
#include "collectives/common/fold.h"
#include "collectives/common/phases.h"

/*
 * The tree of additions is gone through from this rank's virtual rank P: the m-th that is taken is
 * P xor m, so that at any time each rank is taken from by one. Sums that wait for their other half
 * are on a stack, the lowest in OUT, the others in scratch:
 *
 *   m     0    1      2       3          4 ...
 *   OUT   P    P+1    P+1     P+1+2+3    P+1+2+3
 *   0                 2       (2+3)      4
 */
struct ordered {
    struct disti_builder *b;
    uint16_t lane;
    int ranks, rank, virtual_rank;
    uint32_t chunk;
    uint32_t depth; /* of the stack */
    bool fresh;     /* the lowest is still in IN */
};

static struct disti_chunk_ref ordered_slot(const struct ordered *o, uint32_t depth)
{
    return depth == 0 ? disti_build_out(o->b, o->chunk) : disti_scratch(depth - 1);
}

static struct disti_chunk_ref ordered_value(const struct ordered *o, uint32_t depth)
{
    return depth == 0 && o->fresh ? disti_build_in(o->b, o->chunk) : ordered_slot(o, depth);
}

/* Adds what `from` sends to the top. */
static void ordered_add(struct ordered *o, int from, bool finish)
{
    uint32_t top = o->depth - 1;
    disti_build_recv_reduce(o->b, .lane = o->lane, .peer = from, .dst = ordered_slot(o, top),
                            .src = ordered_value(o, top), .data = o->chunk, .finish = finish);
    o->fresh = o->fresh && top > 0;
}

/* Puts a virtual rank's value on the stack: one rank's, or two ranks' that are folded together. */
static void ordered_push(struct ordered *o, int first, bool two)
{
    bool own = first == o->rank || (two && first + 1 == o->rank);
    o->depth++;
    if (own)
        o->fresh = true;
    else
        disti_build_recv(o->b, .lane = o->lane, .peer = first, .dst = ordered_slot(o, o->depth - 1),
                         .data = o->chunk);
    if (two)
        ordered_add(o, own ? o->rank ^ 1 : first + 1, false);
}

/* Adds the top to the one below. */
static void ordered_merge(struct ordered *o, bool finish)
{
    o->depth--;
    uint32_t below = o->depth - 1;
    struct disti_chunk_ref sum = ordered_slot(o, below);
    if (below == 0 && o->fresh)
        disti_build_copy(o->b, .lane = o->lane, .dst = sum, .src = ordered_value(o, below),
                         .data = o->chunk);
    o->fresh = o->fresh && below > 0;
    disti_build_reduce(o->b, .lane = o->lane, .dst = sum, .src = ordered_slot(o, o->depth),
                       .data = o->chunk, .finish = finish);
}

/* The virtual rank's value, and the additions for which it was waited. */
static void ordered_take(struct ordered *o, const struct disti_fold *fold, int m)
{
    int virtual_rank = o->virtual_rank ^ m, first = disti_fold_position(fold, virtual_rank);
    bool two = virtual_rank < fold->surplus, last = m == (1 << fold->rounds) - 1;
    int merges = __builtin_ctz(~(unsigned)m); /* the ones at m's end */
    if (merges > 0 && !two) {                 /* comes and is added in one */
        merges--;
        ordered_add(o, first, last && merges == 0);
    } else {
        ordered_push(o, first, two);
    }
    for (; merges > 0; merges--)
        ordered_merge(o, last && merges == 1);
}

void disti_ordered_sum(struct disti_builder *b, uint16_t lane, int ranks, int rank, uint32_t chunk)
{
    struct disti_fold fold = disti_fold(ranks, rank);
    struct ordered o = {.b = b,
                        .lane = lane,
                        .ranks = ranks,
                        .rank = rank,
                        .virtual_rank = fold.virtual_rank < 0 ? rank / 2 : fold.virtual_rank,
                        .chunk = chunk};
    disti_build_scratch(b, (uint32_t)fold.rounds);
    for (int m = 0; m < 1 << fold.rounds; m++)
        ordered_take(&o, &fold, m);
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
