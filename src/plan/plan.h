/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: a collective algorithm written down as data, for one rank. */
#ifndef DISTI_PLAN_PLAN_H
#define DISTI_PLAN_PLAN_H

#include "base/collective.h"

#include <dist/backend.h>

/*
 * A plan is lanes of steps. Lanes run side by side; the steps of a lane run in order, each
 * ending before the next begins; a step may besides wait for one step of another lane.
 *
 *   lane 0 (channel 0):  SEND a -----> SEND b -----> ...
 *                                      ^ waits for
 *   lane 1 (channel 0):  RECV_REDUCE b -----> RECV_REDUCE c
 *
 * A message travels on its lane's channel: the k-th SEND of rank a to rank b on a channel
 * meets the k-th RECV or RECV_REDUCE from a on that channel at b. All SENDs to one peer on one
 * channel must stand in one lane, and so must all RECVs from one peer on one channel. A SEND may
 * end only when its receive is posted (rendezvous) or long before (buffered): a plan must be right
 * under both. The verifier proves it under the first for deadlock and under the second for races.
 *
 * Memory is counted in chunks, so that a plan holds for every count. Data come in blocks (`count`
 * elements; in a _V form each block has its own count), a block is cut into `chunks` chunks of
 * nearly equal size, and all chunks of all blocks are numbered, over all ranks. Which blocks lie
 * where, on rank r of n:
 *
 *                          blocks   IN holds                   OUT holds
 *   ALL_REDUCE, BARRIER    1        0                          0
 *   BROADCAST              1        0                          0, the same memory
 *   REDUCE                 1        0                          0; at root only
 *   ALL_GATHER             n        r                          0, 1, ... n - 1
 *   GATHER                 n        r                          0, 1, ... n - 1; at root only
 *   REDUCE_SCATTER         n        0, 1, ... n - 1            r
 *   SCATTER                n        0, 1, ... n - 1; at root   r
 *   ALL_TO_ALL             n * n    r n, r n + 1, ...          r, n + r, 2 n + r, ...
 *
 * Chunk c of a space is chunk c % chunks of its block c / chunks; the data's chunks are counted in
 * the same way. In place, IN and OUT are one memory where both hold the same block (ALL_TO_ALL: no
 * such thing).
 *
 * The data of a step are a range of chunks, which must lie without a gap in IN or OUT too. Or they
 * are a list of chunks, so that one message can carry several blocks packed in scratch. The blocks
 * of a _V form may lie anywhere, so there a range stays inside a block.
 *
 * SCRATCH is `scratch_chunks` slots that hold any chunk each. Several chunks in scratch, and lists,
 * need chunks that are all of one size, so that they lie in their slots without a gap: `chunks` is
 * 1, and the collective is no _V form. In a _V form a rank has in scratch only what IN or OUT has
 * too, since of other blocks it does not know the size.
 *
 * When count < chunks some chunks are empty. A step whose data are empty is skipped, on both sides
 * of its message, but waits like any other. Not so if the call's count is 0 (BARRIER's always is),
 * nor in a _V form, where a rank need not know what is empty for another: there such messages
 * are sent without bytes, so that ranks whose counts differ find out.
 */
enum disti_step_kind {
    DISTI_SEND,        /* src -> peer */
    DISTI_RECV,        /* peer -> dst */
    DISTI_RECV_REDUCE, /* dst = src op message; src may be dst */
    DISTI_REDUCE,      /* dst = dst op src */
    DISTI_COPY         /* dst = src; the same memory (in place): nothing */
};

enum disti_space { DISTI_IN, DISTI_OUT, DISTI_SCRATCH };

/* Where a chunk lies: the chunk-th of a space. */
struct disti_chunk_ref {
    uint32_t chunk;
    uint8_t space;
};

#define DISTI_NO_LANE UINT16_MAX
/* More than any plan has: a message's tag has so much room for its channel. */
#define DISTI_CHANNELS 63

struct disti_step {
    uint8_t kind;
    bool finish;        /* *REDUCE: all ranks are in the result now, apply the op's end */
    uint16_t wait_lane; /* DISTI_NO_LANE: wait for nothing */
    uint32_t wait_step; /* index within that lane */
    int32_t peer;
    uint32_t first, chunks; /* the data: chunks [first, first + chunks) */
    uint32_t list;          /* or the plan's data[list .. list + chunks); else DISTI_NO_LIST */
    struct disti_chunk_ref dst, src;
};
#define DISTI_NO_LIST UINT32_MAX

struct disti_lane {
    uint32_t first, count; /* steps[first .. first + count) */
    uint16_t channel;      /* less than DISTI_CHANNELS */
};

/* Flat and immutable: one allocation, freed with disti_plan_free (NULL is accepted). */
struct disti_plan {
    dist_collective collective;
    const char *algorithm; /* static */
    int ranks, rank, root;
    uint32_t chunks;         /* a block */
    uint32_t scratch_chunks; /* slots */
    uint32_t lane_count, step_count;
    const struct disti_lane *lanes;
    const struct disti_step *steps;
    const uint32_t *data; /* for the steps' lists */
    uint32_t data_count;
};

void disti_plan_free(struct disti_plan *plan);

/* The step's i-th chunk of data. */
static inline uint32_t disti_step_data(const struct disti_plan *plan, const struct disti_step *step,
                                       uint32_t i)
{
    return step->list == DISTI_NO_LIST ? step->first + i : plan->data[step->list + i];
}

/* ---- what lies where ---- */

/*
 * Blocks that the rank has in IN or OUT, and that there are of the data. These look only at the
 * plan's collective, ranks, rank, root and chunks.
 */
uint32_t disti_plan_blocks(const struct disti_plan *plan, uint8_t space);
uint64_t disti_plan_data_blocks(const struct disti_plan *plan);

/* The data chunk that is there, in IN or OUT; and where in that space it lies, false: nowhere. */
uint32_t disti_plan_data(const struct disti_plan *plan, struct disti_chunk_ref ref);
bool disti_plan_locate(const struct disti_plan *plan, uint8_t space, uint32_t data,
                       struct disti_chunk_ref *ref_p);

/*
 * How IN's or OUT's blocks lie in a call's memory, in elements: block i is [offsets[i], offsets[i]
 * + counts[i]); counts NULL: each is `count`, one after the other.
 */
struct disti_layout {
    size_t count;
    const size_t *counts, *offsets;
};

/*
 * Chunks [at, at + chunks) of the space are its elements [*offset_p, *offset_p + returned value).
 * offset_p may be NULL. With counts they must be of one block.
 */
size_t disti_chunks_extent(const struct disti_plan *plan, const struct disti_layout *layout,
                           uint32_t at, uint32_t chunks, size_t *offset_p);

/* Elements of a step's data. layouts: IN's and OUT's; but for _V forms with the same count. */
size_t disti_step_elements(const struct disti_plan *plan, const struct disti_layout layouts[2],
                           const struct disti_step *step);

/* Elements that one scratch slot must hold; slot s begins at element s times that. */
size_t disti_slot_elements(const struct disti_plan *plan, const struct disti_layout layouts[2]);

/* What an algorithm is asked for. */
struct disti_topology;
struct disti_shape {
    dist_collective collective;
    int ranks, rank, root;
    uint32_t segments; /* pipeline depth wanted, at least 1; an algorithm may take another */
    const struct disti_topology *topology; /* of `ranks` ranks */
};

/* The builder: an algorithm's only means. Errors stick and come out at the end. */
struct disti_builder;

/* What a step can wait for: that so many steps of a lane have ended. None: nothing. */
struct disti_step_ref {
    uint16_t lane;
    uint32_t steps;
};
#define DISTI_NOW ((struct disti_step_ref){0, 0})

static inline struct disti_chunk_ref disti_in(uint32_t chunk)
{
    return (struct disti_chunk_ref){chunk, DISTI_IN};
}

static inline struct disti_chunk_ref disti_out(uint32_t chunk)
{
    return (struct disti_chunk_ref){chunk, DISTI_OUT};
}

static inline struct disti_chunk_ref disti_scratch(uint32_t slot)
{
    return (struct disti_chunk_ref){slot, DISTI_SCRATCH};
}

/* Chunks a block, before anything else; slots of scratch, at any time (the most counts). */
void disti_build_chunks(struct disti_builder *b, uint32_t chunks);
void disti_build_scratch(struct disti_builder *b, uint32_t slots);

/* A new lane on that channel. */
uint16_t disti_build_lane(struct disti_builder *b, uint16_t channel);

/*
 * An array to work with, of that many numbers, zeroed, valid until the plan is written. NULL: no
 * memory; the algorithm just returns.
 */
uint32_t *disti_build_array(struct disti_builder *b, size_t count);

/* Where the data chunk lies in IN, in OUT; the plan is malformed if it is not there. */
struct disti_chunk_ref disti_build_in(struct disti_builder *b, uint32_t data);
struct disti_chunk_ref disti_build_out(struct disti_builder *b, uint32_t data);

/*
 * The step that wrote the data chunk in OUT last, so far: DISTI_NOW if none has. And where this
 * rank's value of it is therefore found: in OUT, or still in IN.
 */
struct disti_step_ref disti_build_written(const struct disti_builder *b, uint32_t data);
struct disti_chunk_ref disti_build_value(struct disti_builder *b, uint32_t data);

/*
 * A step as an algorithm writes it: members by name, and those left out are 0. So it waits for
 * nothing, and its data are one chunk, the first.
 */
struct disti_draft {
    uint16_t lane;               /* it is appended there */
    struct disti_step_ref after; /* what to wait for; steps of its own lane need no waiting */
    int peer;
    struct disti_chunk_ref dst, src;
    uint32_t data, chunks; /* the data: chunks [data, data + chunks); 0 chunks: one */
    const uint32_t *list;  /* or list[0 .. chunks), copied */
    bool finish;
};

/* Appends the step; the mark says when it has ended. */
struct disti_step_ref disti_build_step(struct disti_builder *b, enum disti_step_kind kind,
                                       const struct disti_draft *draft);

/*
 * The same, said as
 *
 *   disti_build_send(b, .lane = send, .after = came, .peer = next, .src = disti_out(c), .data = c);
 */
#define disti_build_send(b, ...) disti_build_kind(b, DISTI_SEND, __VA_ARGS__)
#define disti_build_recv(b, ...) disti_build_kind(b, DISTI_RECV, __VA_ARGS__)
#define disti_build_recv_reduce(b, ...) disti_build_kind(b, DISTI_RECV_REDUCE, __VA_ARGS__)
#define disti_build_reduce(b, ...) disti_build_kind(b, DISTI_REDUCE, __VA_ARGS__)
#define disti_build_copy(b, ...) disti_build_kind(b, DISTI_COPY, __VA_ARGS__)
#define disti_build_kind(b, kind, ...)                                                             \
    disti_build_step(b, kind, &(const struct disti_draft){__VA_ARGS__})

/* Writes the plan of shape->rank, of two ranks or more. Pure: the same shape, the same plan. */
typedef void (*disti_algorithm_fn)(const struct disti_shape *shape, struct disti_builder *b);

/*
 * What an algorithm's description promises, over all n = 2^k ranks, as so many times n - 1,
 * n (n - 1), n k / 2 and n n / 2. Messages: the first four, times the segments if there are any,
 * and so many times n - 1 and k besides. Bytes in blocks: the last three; all 0: not of this form.
 */
struct disti_promise {
    int each, pairs, rounds, halves;
    bool segmented;
    int besides_each, besides_rounds;
    int blocks_each, blocks_pairs, blocks_rounds;
};

/*
 * A row of the table of algorithms.
 *
 * The order of reproducible results, for each element: ranks 2 i and 2 i + 1 of the first 2 surplus
 * ranks are added (collectives/algorithms.h), then virtual ranks by distances 1, 2, 4, ...:
 *
 *   6 ranks   ((0 + 1) + (2 + 3)) + (4 + 5)      surplus 2, virtual ranks {0, 1} {2, 3} 4 5
 *
 * Which of two comes first does not matter to the result. So a number of ranks has one result,
 * whatever ordered algorithm, transport, segments, root or topology it comes by.
 */
struct disti_algorithm {
    dist_collective collective;
    const char *name;
    disti_algorithm_fn write;
    int pieces;   /* a segment is one of so many a vector; DISTI_RANKS: as ranks; 0: no segments */
    bool ordered; /* on a flat topology it adds in the one order of reproducible results */
    bool turns;   /* where nodes are alike a rank does what the one a node before it does */
    const char *summary;
    struct disti_promise promise; /* the tests hold it to that */
};
#define DISTI_RANKS (-1)

/* All of them; ends with a row whose name is NULL. */
extern const struct disti_algorithm disti_algorithms[];

const struct disti_algorithm *disti_algorithm_find(dist_collective collective, const char *name);

/*
 * Runs the algorithm; a single rank needs none and gets a plan that copies. ERR_NO_MEMORY;
 * ERR_INVALID_ARGUMENT for an impossible shape; ERR_UNSUPPORTED for more
 * ranks than it can number lanes or chunks for; ERR_INTERNAL if what it wrote is malformed.
 */
dist_status disti_plan_write(const struct disti_algorithm *algorithm,
                             const struct disti_shape *shape, struct disti_plan **plan_p);

/* What builder and verifier share: is one plan, taken alone, well formed? */

/* Chunks of IN or OUT. */
static inline uint32_t disti_plan_chunks(const struct disti_plan *plan, uint8_t space)
{
    return disti_plan_blocks(plan, space) * plan->chunks;
}

/* Chunks of the data. They can be numbered, or there is no plan. */
static inline uint32_t disti_plan_data_chunks(const struct disti_plan *plan)
{
    return (uint32_t)disti_plan_data_blocks(plan) * plan->chunks;
}

/* Does the step exchange a message with its peer? */
static inline bool disti_step_talks(const struct disti_step *step)
{
    return step->kind <= DISTI_RECV_REDUCE;
}

/*
 * Kinds, peers, ranges, waits, lanes of messages. ERR_NO_MEMORY; ERR_INTERNAL and what is wrong
 * in text[size].
 */
dist_status disti_plan_check(const struct disti_plan *plan, char *text, size_t size);

#endif
