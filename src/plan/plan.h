/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: a collective algorithm as data, for one rank. */
#ifndef DISTI_PLAN_PLAN_H
#define DISTI_PLAN_PLAN_H

#include "base/collective.h"

#include <dist/backend.h>

/*
 * A plan consists of lanes of steps. Lanes run concurrently. The steps of a lane run in order, each
 * after the previous one has ended. A step may also wait for one step of another lane.
 *
 *   lane 0 (channel 0):  SEND a -----> SEND b -----> ...
 *                                      ^ waits for
 *   lane 1 (channel 0):  RECV_REDUCE b -----> RECV_REDUCE c
 *
 * A message is sent on its lane's channel. On each channel, the k-th SEND from rank a to rank b
 * matches the k-th RECV or RECV_REDUCE at b from a. On one channel, all SENDs to one peer must be
 * in one lane, and so must all RECVs from one peer. With rendezvous, a SEND ends only when its
 * receive has been posted; with eager sending, it may end long before that. A plan must be correct
 * in both cases: the verifier searches for deadlocks assuming rendezvous, and for races assuming
 * eager.
 *
 * Memory is counted in chunks, so that a plan is valid for every count. The data consist of blocks
 * of `count` elements (in a _V form each block has its own count). A block is cut into `chunks`
 * chunks of nearly equal size. Chunks are numbered over all blocks of all ranks. Blocks of rank r
 * of n:
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
 * Chunk c of a space is chunk c % chunks of the (c / chunks)-th block in that space. Chunk c of the
 * data is chunk c % chunks of block c / chunks. In an in-place call, a block that IN and OUT both
 * hold is at the same address in both. ALL_TO_ALL has no in-place form.
 *
 * The data of a step are a range of chunks, which must be consecutive in IN or OUT too, or a list
 * of chunks, so that one message can contain several blocks packed in scratch. The blocks of a _V
 * form may be anywhere in memory, so there a range never crosses the end of a block.
 *
 * SCRATCH has `scratch_chunks` slots, each of which can hold any chunk. A step with several chunks
 * in scratch, or with a list, requires that all chunks have one size, so that they fill their slots
 * without a gap: `chunks` is 1 and the collective is no _V form. In a _V form, a rank may store in
 * scratch only blocks that IN or OUT has too, since it does not know the size of other blocks.
 *
 * When count < chunks, some chunks are empty. A step whose data are empty waits like any other
 * step, but its message is neither sent nor received. Empty messages are sent only in calls with
 * count 0 (always so for BARRIER), and in _V forms, in which a rank may not know which blocks are
 * empty at its peers. Through these messages, ranks detect that they have passed different counts.
 */
enum disti_step_kind {
    DISTI_SEND,        /* sends src to peer */
    DISTI_RECV,        /* receives from peer into dst */
    DISTI_RECV_REDUCE, /* dst = src op message; src may equal dst */
    DISTI_REDUCE,      /* dst = dst op src */
    DISTI_COPY         /* dst = src; does nothing if they are the same memory (in place) */
};

enum disti_space { DISTI_IN, DISTI_OUT, DISTI_SCRATCH };

/* A chunk's location: a space, and the chunk's index in it. */
struct disti_chunk_ref {
    uint32_t chunk;
    uint8_t space;
};

#define DISTI_NO_LANE UINT16_MAX
/* A limit that no plan reaches; the channel must fit into its field of a message tag. */
#define DISTI_CHANNELS 63

struct disti_step {
    uint8_t kind;
    bool finish; /* RECV_REDUCE and REDUCE: dst has the contributions of all ranks; apply the op's
                    final step */
    uint16_t wait_lane; /* DISTI_NO_LANE: no wait */
    uint32_t wait_step; /* index in that lane */
    int32_t peer;
    uint32_t first, chunks; /* the data: chunks [first, first + chunks) */
    uint32_t list; /* unless DISTI_NO_LIST: instead data[list .. list + chunks) of the plan */
    struct disti_chunk_ref dst, src;
};
#define DISTI_NO_LIST UINT32_MAX

struct disti_lane {
    uint32_t first, count; /* steps[first .. first + count) */
    uint16_t channel;      /* less than DISTI_CHANNELS */
};

/* Flat and immutable, in one allocation. Free it with disti_plan_free(), which accepts NULL. */
struct disti_plan {
    dist_collective collective;
    const char *algorithm; /* static string */
    int ranks, rank, root;
    uint32_t chunks;         /* per block */
    uint32_t scratch_chunks; /* slots */
    uint32_t lane_count, step_count;
    const struct disti_lane *lanes;
    const struct disti_step *steps;
    const uint32_t *data; /* the lists of the steps */
    uint32_t data_count;
};

void disti_plan_free(struct disti_plan *plan);

/* Returns the step's i-th chunk of data. */
static inline uint32_t disti_step_data(const struct disti_plan *plan, const struct disti_step *step,
                                       uint32_t i)
{
    return step->list == DISTI_NO_LIST ? step->first + i : plan->data[step->list + i];
}

/* ---- data and memory ---- */

/* Return the number of blocks that this rank has in a space (IN or OUT), and the number of blocks
 * of the data. They read only the plan's collective, ranks, rank, root and chunks. */
uint32_t disti_plan_blocks(const struct disti_plan *plan, uint8_t space);
uint64_t disti_plan_data_blocks(const struct disti_plan *plan);

/* disti_plan_data() returns the data chunk at a place in IN or OUT. disti_plan_locate() does the
 * reverse; it returns false if the space does not hold the data chunk. */
uint32_t disti_plan_data(const struct disti_plan *plan, struct disti_chunk_ref ref);
bool disti_plan_locate(const struct disti_plan *plan, uint8_t space, uint32_t data,
                       struct disti_chunk_ref *ref_p);

/* The layout of IN or OUT in a call's memory, in elements. Block i is [offsets[i], offsets[i] +
 * counts[i]). If counts is NULL, the blocks are consecutive and each has `count` elements. */
struct disti_layout {
    size_t count;
    const size_t *counts, *offsets;
};

/* Returns the number of elements of chunks [at, at + chunks) of a space, and their offset in
 * *offset_p (may be NULL). If the layout has counts, the chunks must be in one block. */
size_t disti_chunks_extent(const struct disti_plan *plan, const struct disti_layout *layout,
                           uint32_t at, uint32_t chunks, size_t *offset_p);

/* Returns the number of elements of a step's data. layouts[] describes IN and OUT; only in _V forms
 * may their counts differ. */
size_t disti_step_elements(const struct disti_plan *plan, const struct disti_layout layouts[2],
                           const struct disti_step *step);

/* Returns the number of elements of a scratch slot. Slot s begins at element s times that
 * number. */
size_t disti_slot_elements(const struct disti_plan *plan, const struct disti_layout layouts[2]);

/* The input of an algorithm. */
struct disti_topology;
struct disti_shape {
    dist_collective collective;
    int ranks, rank, root;
    uint32_t segments; /* requested pipeline depth, at least 1; an algorithm may choose another */
    const struct disti_topology *topology; /* of `ranks` ranks */
};

/* The builder, through which an algorithm writes its plan. The first error is kept and returned by
 * disti_plan_write(). */
struct disti_builder;

/* A condition that a step can wait for: the first `steps` steps of a lane have ended. 0 steps: no
 * condition. */
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

/*
 * disti_build_chunks() sets the number of chunks per block and must be called first.
 * disti_build_scratch() requests scratch slots and may be called at any time; the plan gets as many
 * slots as the largest request.
 */
void disti_build_chunks(struct disti_builder *b, uint32_t chunks);
void disti_build_scratch(struct disti_builder *b, uint32_t slots);

/* Adds a lane on that channel and returns its index. */
uint16_t disti_build_lane(struct disti_builder *b, uint16_t channel);

/* Returns a zeroed working array of `count` numbers, valid until the plan has been written. Returns
 * NULL if there is no memory; the algorithm then simply returns. */
uint32_t *disti_build_array(struct disti_builder *b, size_t count);

/* Return the location of a data chunk in IN or in OUT. The plan is malformed if the space does not
 * hold it. */
struct disti_chunk_ref disti_build_in(struct disti_builder *b, uint32_t data);
struct disti_chunk_ref disti_build_out(struct disti_builder *b, uint32_t data);

/*
 * disti_build_written() returns the last step so far that wrote the data chunk in OUT, or DISTI_NOW
 * if there is none. disti_build_value() returns the location of this rank's current value: OUT if
 * it has been written there, otherwise IN.
 */
struct disti_step_ref disti_build_written(const struct disti_builder *b, uint32_t data);
struct disti_chunk_ref disti_build_value(struct disti_builder *b, uint32_t data);

/* A step as an algorithm writes it, with designated initializers. Omitted members are 0: by default
 * a step waits for nothing and its data are one chunk, chunk 0. */
struct disti_draft {
    uint16_t lane;               /* the lane to append the step to */
    struct disti_step_ref after; /* what to wait for; not needed for steps of the same lane */
    int peer;
    struct disti_chunk_ref dst, src;
    uint32_t data, chunks; /* the data: chunks [data, data + chunks); 0 chunks means 1 */
    const uint32_t *list;  /* if not NULL, instead list[0 .. chunks), which is copied */
    bool finish;
};

/* Appends a step. Returns a reference with which another step can wait for its end. */
struct disti_step_ref disti_build_step(struct disti_builder *b, enum disti_step_kind kind,
                                       const struct disti_draft *draft);

/*
 * Short forms of disti_build_step():
 *
 *   disti_build_send(b, .lane = send, .after = received, .peer = next, .src = disti_out(c),
 *                    .data = c);
 */
#define disti_build_send(b, ...) disti_build_kind(b, DISTI_SEND, __VA_ARGS__)
#define disti_build_recv(b, ...) disti_build_kind(b, DISTI_RECV, __VA_ARGS__)
#define disti_build_recv_reduce(b, ...) disti_build_kind(b, DISTI_RECV_REDUCE, __VA_ARGS__)
#define disti_build_reduce(b, ...) disti_build_kind(b, DISTI_REDUCE, __VA_ARGS__)
#define disti_build_copy(b, ...) disti_build_kind(b, DISTI_COPY, __VA_ARGS__)
#define disti_build_kind(b, kind, ...)                                                             \
    disti_build_step(b, kind, &(const struct disti_draft){__VA_ARGS__})

/* Writes the plan of shape->rank. Requires at least 2 ranks. The plan depends only on the shape. */
typedef void (*disti_algorithm_fn)(const struct disti_shape *shape, struct disti_builder *b);

/*
 * The cost that an algorithm promises, for n = 2^k ranks. The members are factors:
 *
 *   each: n - 1    pairs: n (n - 1)    rounds: n k / 2    halves: n n / 2
 *
 * Messages of all ranks: the sum of the first four terms, times the number of segments if
 * `segmented`, plus besides_each (n - 1) + besides_rounds k. Bytes of all ranks, in blocks: the sum
 * of the blocks_ terms. If these are all 0, the bytes do not have this form.
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
 * Reproducible results need a fixed order of additions. For each element, ranks 2 i and 2 i + 1 (i
 * < surplus, collectives/algorithms.h) are added first, then virtual ranks at distances 1, 2, 4,
 * ...:
 *
 *   6 ranks   ((0 + 1) + (2 + 3)) + (4 + 5)      surplus 2, virtual ranks {0, 1} {2, 3} 4 5
 *
 * Addition commutes, so the order of the two operands does not matter. For a given number of ranks,
 * the result does not depend on the ordered algorithm, the transport, segments, root or topology.
 */
struct disti_algorithm {
    dist_collective collective;
    const char *name;
    disti_algorithm_fn write;
    int pieces; /* a vector has `pieces` pieces, each cut into segments; DISTI_RANKS: one piece per
                   rank; 0: no segments */
    bool ordered;   /* adds in the fixed order described above if the topology is flat */
    bool symmetric; /* on equal nodes, a rank does what its counterpart on the previous node does */
    const char *summary;
    struct disti_promise promise; /* checked by the tests */
};
#define DISTI_RANKS (-1)

/* All algorithms. The last row has a NULL name. */
extern const struct disti_algorithm disti_algorithms[];

const struct disti_algorithm *disti_algorithm_find(dist_collective collective, const char *name);

/*
 * Runs the algorithm and stores the plan, which the caller frees. For a single rank the plan only
 * copies. Errors: ERR_NO_MEMORY; ERR_INVALID_ARGUMENT for an impossible shape; ERR_UNSUPPORTED if
 * the lanes or chunks of so many ranks cannot be numbered; ERR_INTERNAL if the plan is malformed.
 */
dist_status disti_plan_write(const struct disti_algorithm *algorithm,
                             const struct disti_shape *shape, struct disti_plan **plan_p);

/* ---- used by the builder and the verifier ---- */

/* Returns the number of chunks of IN or OUT. */
static inline uint32_t disti_plan_chunks(const struct disti_plan *plan, uint8_t space)
{
    return disti_plan_blocks(plan, space) * plan->chunks;
}

/* Returns the number of chunks of the data. The builder has checked that it does not overflow. */
static inline uint32_t disti_plan_data_chunks(const struct disti_plan *plan)
{
    return (uint32_t)disti_plan_data_blocks(plan) * plan->chunks;
}

/* True if the step exchanges a message with its peer. */
static inline bool disti_step_has_peer(const struct disti_step *step)
{
    return step->kind <= DISTI_RECV_REDUCE;
}

/* Checks that one rank's plan is well formed: kinds, peers, ranges, waits, lanes of messages.
 * Errors: ERR_NO_MEMORY; ERR_INTERNAL, with a description in text[size]. */
dist_status disti_plan_check(const struct disti_plan *plan, char *text, size_t size);

#endif
