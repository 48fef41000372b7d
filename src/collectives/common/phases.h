/* SPDX-License-Identifier: BSD-3-Clause */
/* Pieces of which several algorithms are made. */
#ifndef DISTI_COLLECTIVES_COMMON_PHASES_H
#define DISTI_COLLECTIVES_COMMON_PHASES_H

#include "plan/plan.h"

/*
 * An all-reduce around a ring of `size` ranks, of chunks [first, first + size * segments), which
 * are cut into `size` slices of `segments` chunks. It starts from each chunk's value so far (see
 * disti_build_value) and finishes it. The segments travel on `channels` channels from
 * `channel` on, in turn. It is written down in all_reduce/ring.c.
 */
struct disti_ring {
    int size, index; /* of this rank on the ring */
    int next, previous;
    uint32_t first, segments;
    uint16_t channel, channels;
};

void disti_ring_all_reduce(struct disti_builder *b, const struct disti_ring *ring);

/*
 * Ranks that exchange with each other directly: ranks[0 .. size), or if that is NULL all ranks, by
 * number. The first `owners` of them own a slice each, of
 * turns * segments chunks; a slice's chunks are dealt with by turns, downwards from turn `start`
 * (and round), the segments of a turn upwards:
 *
 *   turns 3, segments 2, start 1:   2 3 | 0 1 | 4 5
 *
 * They are written down in all_reduce/direct.c.
 */
struct disti_team {
    const int *ranks;
    int size, index, owners;
    uint32_t turns, segments;
};

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

/* Each owner sends its slice, each chunk once it is written, to all the team. */
void disti_team_gather(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                       uint16_t channel);

/*
 * Reduces a chunk over all ranks, by number, at this one into OUT, in the order of reproducible
 * results (plan.h), and finishes it. Each other rank must send it, from IN. Takes log2 `ranks`
 * slots of scratch, from the first on, which are free again when the last step has ended. It is
 * written down in reduce/direct_ordered.c.
 */
void disti_ordered_sum(struct disti_builder *b, uint16_t lane, int ranks, int rank, uint32_t chunk);

#endif
