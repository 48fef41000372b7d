/* SPDX-License-Identifier: BSD-3-Clause */
/* What can be measured: the collectives of dist.h, and messages between two ranks. */
#ifndef BENCH_KIND_H
#define BENCH_KIND_H

#include <dist/dist.h>

/* How much of the size a rank's buffer holds. */
enum kind_part { KIND_NONE, KIND_BLOCK, KIND_WHOLE };

/*
 * X(name, title, in, out, reduces, rooted, in place, layout)
 * title: as OSU's programs print it. in place: never, if asked for, or always. layout: whether the
 * size is one vector, a block for each rank, a message between two ranks, or nothing.
 */
#define KIND_MAP(X)                                                                                \
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

enum kind_id {
#define KIND_ENUM(name, ...) KIND_##name,
    KIND_MAP(KIND_ENUM)
#undef KIND_ENUM
        KIND_COUNT
};

enum kind_place { KIND_NEVER, KIND_ASKED, KIND_ALWAYS };
enum kind_layout { KIND_VECTOR, KIND_BLOCKS, KIND_MESSAGES, KIND_NOTHING };

struct kind {
    enum kind_id id;
    const char *name, *title;
    enum kind_part in, out;
    bool reduces, rooted;
    enum kind_place place;
    enum kind_layout layout;
};

extern const struct kind kind_table[KIND_COUNT];

/* The kind of that name; NULL: there is none. */
const struct kind *kind_find(const char *name);

/* Number of blocks that the size is made of. */
int kind_blocks(const struct kind *kind, int ranks);

/* The dtype or op of that name, OSU's mpi_float and the like included; -1: there is none. */
int kind_dtype(const char *name);
int kind_op(const char *name);

#endif
