/* SPDX-License-Identifier: BSD-3-Clause */
/* Properties of collectives: which ones reduce, have a root, or have blocks of different sizes. */
#ifndef DISTI_BASE_COLLECTIVE_H
#define DISTI_BASE_COLLECTIVE_H

#include <dist/backend.h>

/* The columns of collectives.def, which documents them. */
enum disti_collective_blocks {
    DISTI_BLOCKS_NONE,
    DISTI_BLOCKS_VECTOR,
    DISTI_BLOCKS_OWN,
    DISTI_BLOCKS_EACH
};
enum disti_collective_at { DISTI_AT_EVERY, DISTI_AT_ROOT, DISTI_AT_PEER };
enum disti_collective_kind { DISTI_KIND_MOVES, DISTI_KIND_REDUCES };
enum disti_collective_counts { DISTI_COUNTS_SAME, DISTI_COUNTS_LISTED, DISTI_COUNTS_OWN_LISTED };

struct disti_collective {
    uint8_t in, in_at, out, out_at, kind, counts;
};

static const struct disti_collective disti_collectives[DIST_COLL_COUNT] = {
#define COLLECTIVE(name, in, in_at, out, out_at, kind, counts)                                     \
    [DIST_COLL_##name] = {DISTI_BLOCKS_##in, DISTI_AT_##in_at,  DISTI_BLOCKS_##out,                \
                          DISTI_AT_##out_at, DISTI_KIND_##kind, DISTI_COUNTS_##counts},
#include "base/collectives.def"
#undef COLLECTIVE
};

/*
 * The same properties as sets of collectives, which the functions below test without a memory
 * access.
 */
enum disti_collective_sets {
#define COLLECTIVE(name, in, in_at, out, out_at, kind, counts)                                     \
    | (DISTI_KIND_##kind == DISTI_KIND_REDUCES ? 1 << DIST_COLL_##name : 0)
    DISTI_REDUCING = 0
#include "base/collectives.def"
#undef COLLECTIVE
    ,
#define COLLECTIVE(name, in, in_at, out, out_at, kind, counts)                                     \
    | (DISTI_AT_##in_at == DISTI_AT_ROOT || DISTI_AT_##out_at == DISTI_AT_ROOT                     \
           ? 1 << DIST_COLL_##name                                                                 \
           : 0)
    DISTI_ROOTED = 0
#include "base/collectives.def"
#undef COLLECTIVE
    ,
#define COLLECTIVE(name, in, in_at, out, out_at, kind, counts)                                     \
    | (DISTI_COUNTS_##counts != DISTI_COUNTS_SAME ? 1 << DIST_COLL_##name : 0)
    DISTI_UNEVEN = 0
#include "base/collectives.def"
#undef COLLECTIVE
};

/* True if the collective reduces. */
static inline bool disti_algorithm_reduces(dist_collective collective)
{
    return (unsigned)DISTI_REDUCING >> collective & 1;
}

/* True if the collective has a root. */
static inline bool disti_collective_rooted(dist_collective collective)
{
    return (unsigned)DISTI_ROOTED >> collective & 1;
}

/* True for _v collectives. */
static inline bool disti_collective_uneven(dist_collective collective)
{
    return (unsigned)DISTI_UNEVEN >> collective & 1;
}

/* True for SEND and RECV, which have no plans. */
static inline bool disti_collective_pair(dist_collective collective)
{
    return collective == DIST_COLL_SEND || collective == DIST_COLL_RECV;
}

/* True if in and out are the same buffer: a broadcast. */
static inline bool disti_collective_one_buffer(const struct disti_collective *traits)
{
    return traits->kind == DISTI_KIND_MOVES && traits->in == DISTI_BLOCKS_VECTOR &&
           traits->out == DISTI_BLOCKS_VECTOR;
}

#endif
