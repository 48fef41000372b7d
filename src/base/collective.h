/* SPDX-License-Identifier: BSD-3-Clause */
/* What collectives are: which reduce, have a root, or blocks of different sizes. */
#ifndef DISTI_BASE_COLLECTIVE_H
#define DISTI_BASE_COLLECTIVE_H

#include <dist/backend.h>

#define DISTI_ONE_OF(collective) (UINT32_C(1) << (collective))
#define DISTI_REDUCING                                                                             \
    (DISTI_ONE_OF(DIST_COLL_ALL_REDUCE) | DISTI_ONE_OF(DIST_COLL_REDUCE) |                         \
     DISTI_ONE_OF(DIST_COLL_REDUCE_SCATTER) | DISTI_ONE_OF(DIST_COLL_REDUCE_SCATTER_V))
#define DISTI_ROOTED                                                                               \
    (DISTI_ONE_OF(DIST_COLL_BROADCAST) | DISTI_ONE_OF(DIST_COLL_REDUCE) |                          \
     DISTI_ONE_OF(DIST_COLL_GATHER) | DISTI_ONE_OF(DIST_COLL_SCATTER) |                            \
     DISTI_ONE_OF(DIST_COLL_GATHER_V) | DISTI_ONE_OF(DIST_COLL_SCATTER_V))
#define DISTI_UNEVEN                                                                               \
    (DISTI_ONE_OF(DIST_COLL_ALL_GATHER_V) | DISTI_ONE_OF(DIST_COLL_REDUCE_SCATTER_V) |             \
     DISTI_ONE_OF(DIST_COLL_GATHER_V) | DISTI_ONE_OF(DIST_COLL_SCATTER_V) |                        \
     DISTI_ONE_OF(DIST_COLL_ALL_TO_ALL_V))

/* Does it compute? */
static inline bool disti_algorithm_reduces(dist_collective collective)
{
    return DISTI_REDUCING >> collective & 1;
}

/* Is its root of any matter? */
static inline bool disti_collective_rooted(dist_collective collective)
{
    return DISTI_ROOTED >> collective & 1;
}

/* Is it a _V form? */
static inline bool disti_collective_uneven(dist_collective collective)
{
    return DISTI_UNEVEN >> collective & 1;
}

/* Is it SEND or RECV, of which there are no plans? */
static inline bool disti_collective_pair(dist_collective collective)
{
    return collective == DIST_COLL_SEND || collective == DIST_COLL_RECV;
}

#endif
