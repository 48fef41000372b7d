/* SPDX-License-Identifier: BSD-3-Clause */
/* What can be measured: the collectives of dist.h, and messages between two ranks. */
#ifndef BENCH_OPERATION_H
#define BENCH_OPERATION_H

#include <dist/dist.h>

/* How much of the size a rank's buffer holds. */
enum operation_part { PART_NONE, PART_BLOCK, PART_WHOLE };

/*
 * X(name, title, in, out, reduces, rooted, in place, layout)
 * title: as OSU's programs print it. in place: never, if asked for, or always. layout: whether the
 * size is one vector, a block for each rank, a message between two ranks, or nothing.
 */
#define OPERATION_MAP(X)                                                                           \
    X(all_reduce, "Allreduce Latency", WHOLE, WHOLE, true, false, ASKED, VECTOR)                   \
    X(all_reduce_coalesced, "Coalesced Allreduce Latency", NONE, WHOLE, true, false, ALWAYS,       \
      VECTOR)                                                                                      \
    X(reduce, "Reduce Latency", WHOLE, WHOLE, true, true, ASKED, VECTOR)                           \
    X(broadcast, "Broadcast Latency", NONE, WHOLE, false, true, ALWAYS, VECTOR)                    \
    X(all_gather, "Allgather Latency", BLOCK, WHOLE, false, false, ASKED, BLOCKS)                  \
    X(all_gather_v, "Allgatherv Latency", BLOCK, WHOLE, false, false, ASKED, BLOCKS)               \
    X(reduce_scatter, "Reduce_scatter_block Latency", WHOLE, BLOCK, true, false, ASKED, BLOCKS)    \
    X(reduce_scatter_v, "Reduce_scatter Latency", WHOLE, BLOCK, true, false, ASKED, BLOCKS)        \
    X(gather, "Gather Latency", BLOCK, WHOLE, false, true, ASKED, BLOCKS)                          \
    X(gather_v, "Gatherv Latency", BLOCK, WHOLE, false, true, ASKED, BLOCKS)                       \
    X(scatter, "Scatter Latency", WHOLE, BLOCK, false, true, ASKED, BLOCKS)                        \
    X(scatter_v, "Scatterv Latency", WHOLE, BLOCK, false, true, ASKED, BLOCKS)                     \
    X(all_to_all, "All-to-All Personalized Exchange Latency", WHOLE, WHOLE, false, false, NEVER,   \
      BLOCKS)                                                                                      \
    X(all_to_all_v, "All-to-Allv Personalized Exchange Latency", WHOLE, WHOLE, false, false,       \
      NEVER, BLOCKS)                                                                               \
    X(barrier, "Barrier Latency", NONE, NONE, false, false, NEVER, NOTHING)                        \
    X(monitored_barrier, "Monitored Barrier Latency", NONE, NONE, false, false, NEVER, NOTHING)    \
    X(latency, "Latency", WHOLE, WHOLE, false, false, NEVER, MESSAGES)                             \
    X(bw, "Bandwidth", WHOLE, WHOLE, false, false, NEVER, MESSAGES)                                \
    X(bibw, "Bi-Directional Bandwidth", WHOLE, WHOLE, false, false, NEVER, MESSAGES)

enum operation_id {
#define OPERATION_ENUM(name, ...) OPERATION_##name,
    OPERATION_MAP(OPERATION_ENUM)
#undef OPERATION_ENUM
        OPERATION_COUNT
};

enum operation_in_place { IN_PLACE_NEVER, IN_PLACE_ASKED, IN_PLACE_ALWAYS };
enum operation_layout { LAYOUT_VECTOR, LAYOUT_BLOCKS, LAYOUT_MESSAGES, LAYOUT_NOTHING };

struct operation {
    enum operation_id id;
    const char *name, *title;
    enum operation_part in, out;
    bool reduces, rooted;
    enum operation_in_place in_place;
    enum operation_layout layout;
};

extern const struct operation operation_table[OPERATION_COUNT];

/* The operation of that name; NULL: there is none. */
const struct operation *operation_find(const char *name);

/* Number of blocks that the size is made of. */
int operation_blocks(const struct operation *operation, int ranks);

/* The dtype or op of that name, OSU's mpi_float and the like included; -1: there is none. */
int operation_dtype(const char *name);
int operation_op(const char *name);

#endif
