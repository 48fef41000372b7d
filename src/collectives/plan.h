/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: a collective algorithm written down as data, for one rank. */
#ifndef DISTI_COLLECTIVES_PLAN_H
#define DISTI_COLLECTIVES_PLAN_H

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
 * Memory is counted in chunks, so that a plan holds for every count. A block is `count`
 * elements and is cut into `chunks` chunks of nearly equal size:
 *
 *   ALL_REDUCE, BROADCAST, BARRIER: IN and OUT are 1 block each (BROADCAST: the same memory)
 *   ALL_GATHER:                     IN is 1 block, OUT is `ranks` blocks
 *
 * Chunk c of a space is chunk c % chunks of block c / chunks. SCRATCH is
 * `scratch_chunks` slots that hold any chunk each; several chunks lie there without a gap
 * from the start of the first slot, so that they must be read from where they were written.
 * When count < chunks some chunks are empty; a step whose range is empty does nothing, on
 * both sides, but waits like any other. BARRIER is the exception: its count is 0 and no step is
 * ever skipped, its messages have no bytes. In place, IN is the memory of OUT (ALL_GATHER: of OUT's
 * block `rank`).
 */
enum disti_step_kind {
    DISTI_SEND,        /* src -> peer */
    DISTI_RECV,        /* peer -> dst */
    DISTI_RECV_REDUCE, /* dst = src op message; src may be dst */
    DISTI_REDUCE,      /* dst = dst op src */
    DISTI_COPY         /* dst = src; the same memory (in place): nothing */
};

enum disti_space { DISTI_IN, DISTI_OUT, DISTI_SCRATCH };

/* A place: chunk `at` of a space. */
struct disti_at {
    uint32_t at;
    uint8_t space;
};

#define DISTI_NO_LANE UINT16_MAX

struct disti_step {
    uint8_t kind;
    bool finish;        /* *REDUCE: all ranks are in the result now, apply the op's end */
    uint16_t wait_lane; /* DISTI_NO_LANE: wait for nothing */
    uint32_t wait_step; /* index within that lane */
    int32_t peer;
    uint32_t first, chunks; /* the data: chunks [first, first + chunks) in OUT's counting */
    struct disti_at dst, src;
};

struct disti_lane {
    uint32_t first, count; /* steps[first .. first + count) */
    uint16_t channel;
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
};

void disti_plan_free(struct disti_plan *plan);

/*
 * Chunks [first, first + chunks) of IN or OUT are its elements [*offset_p, *offset_p + returned
 * value), when a block is count elements. offset_p may be NULL.
 */
size_t disti_chunk_extent(const struct disti_plan *plan, size_t count, uint32_t first,
                          uint32_t chunks, size_t *offset_p);

/* Elements that one scratch slot must hold; slot s begins at element s times that. */
size_t disti_slot_elements(const struct disti_plan *plan, size_t count);

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

/* A step that was written: what another can wait for. */
struct disti_mark {
    uint16_t lane;
    uint32_t step;
};
#define DISTI_NOW ((struct disti_mark){DISTI_NO_LANE, 0})

static inline struct disti_at disti_in(uint32_t chunk)
{
    return (struct disti_at){chunk, DISTI_IN};
}

static inline struct disti_at disti_out(uint32_t chunk)
{
    return (struct disti_at){chunk, DISTI_OUT};
}

static inline struct disti_at disti_scratch(uint32_t slot)
{
    return (struct disti_at){slot, DISTI_SCRATCH};
}

/* Chunks a block, before anything else; slots of scratch, at any time (the most counts). */
void disti_build_chunks(struct disti_builder *b, uint32_t chunks);
void disti_build_scratch(struct disti_builder *b, uint32_t slots);

/* A new lane on that channel. */
uint16_t disti_build_lane(struct disti_builder *b, uint16_t channel);

/*
 * The step that wrote OUT's chunk last, so far: DISTI_NOW if none has. And where this rank's value
 * of that chunk is therefore found: in OUT, or still in IN (not for ALL_GATHER).
 */
struct disti_mark disti_build_written(const struct disti_builder *b, uint32_t chunk);
struct disti_at disti_build_value(const struct disti_builder *b, uint32_t chunk);

/*
 * Appends a step to the lane. `after`: the step to wait for (one in the same lane needs no waiting,
 * and none is written). `first`, `chunks`: the data, in OUT's counting.
 */
struct disti_mark disti_build_send(struct disti_builder *b, uint16_t lane, struct disti_mark after,
                                   int peer, struct disti_at src, uint32_t first, uint32_t chunks);
struct disti_mark disti_build_recv(struct disti_builder *b, uint16_t lane, struct disti_mark after,
                                   int peer, struct disti_at dst, uint32_t first, uint32_t chunks);
struct disti_mark disti_build_recv_reduce(struct disti_builder *b, uint16_t lane,
                                          struct disti_mark after, int peer, struct disti_at dst,
                                          struct disti_at src, uint32_t first, uint32_t chunks,
                                          bool finish);
struct disti_mark disti_build_reduce(struct disti_builder *b, uint16_t lane,
                                     struct disti_mark after, struct disti_at dst,
                                     struct disti_at src, uint32_t first, uint32_t chunks,
                                     bool finish);
struct disti_mark disti_build_copy(struct disti_builder *b, uint16_t lane, struct disti_mark after,
                                   struct disti_at dst, struct disti_at src, uint32_t first,
                                   uint32_t chunks);

/* Writes the plan of shape->rank, of two ranks or more. Pure: the same shape, the same plan. */
typedef void (*disti_algorithm_fn)(const struct disti_shape *shape, struct disti_builder *b);

/* A row of the table of algorithms. */
struct disti_algorithm {
    dist_collective collective;
    const char *name;
    disti_algorithm_fn write;
    int pieces; /* a segment is one of so many a vector; DISTI_RANKS: as ranks; 0: no segments */
    const char *summary;
};
#define DISTI_RANKS (-1)

/* All of them; ends with a row whose name is NULL. */
extern const struct disti_algorithm disti_algorithms[];

const struct disti_algorithm *disti_algorithm_find(dist_collective collective, const char *name);

/*
 * Runs the algorithm; one rank alone needs none and gets a plan that copies. ERR_NO_MEMORY,
 * ERR_INVALID_ARGUMENT for an impossible shape, or ERR_INTERNAL if what it wrote is malformed.
 */
dist_status disti_plan_write(const struct disti_algorithm *algorithm,
                             const struct disti_shape *shape, struct disti_plan **plan_p);

#endif
