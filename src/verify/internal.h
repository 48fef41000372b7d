/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier's parts: matching of messages, the symbolic run, the search for races. */
#ifndef DISTI_VERIFY_INTERNAL_H
#define DISTI_VERIFY_INTERNAL_H

#include "plan/check.h"
#include "verify/verify.h"

#define VERIFY_NONE UINT32_MAX
#define VERIFY_RANKS_MAX 64

/* What a chunk of memory holds, symbolically. */
struct verify_cell {
    uint64_t mask;  /* ranks whose contributions are in it */
    uint64_t sum;   /* in what order they were added: a hash of the expression */
    uint32_t chunk; /* of the data: which */
    uint32_t finished;
    bool written;
};

/* A lane of any rank. Lanes are numbered over all ranks, and so are steps. */
struct verify_lane {
    int rank;
    uint32_t first, count; /* its steps: [first, first + count) of all steps */
    uint32_t done;
    uint32_t waiters, next_waiter; /* lanes that wait for a step of this one: a list */
    bool queued, parked;
    uint64_t knows; /* BARRIER: ranks whose start comes before what this lane does next */
};

/* Where one rank's things begin in the lists of all. */
struct verify_rank {
    uint32_t first_lane, first_step;
    size_t first_cell;
};

struct verify {
    struct disti_plan *const *plans;
    int ranks;
    bool aliased; /* what IN and OUT both hold is one memory */
    uint32_t data_chunks;
    struct disti_verdict *verdict;

    struct verify_rank rank[VERIFY_RANKS_MAX];
    uint32_t lane_count, step_count;
    size_t cell_count;
    struct verify_lane *lanes;
    struct verify_cell *cells;
    const struct disti_step **steps;
    uint32_t *lane_of; /* by step */
    uint32_t *match;   /* by SEND and RECV*: the step at the peer that it meets */
    uint64_t *knows;   /* BARRIER, by step: what its lane knows when it has ended */
    uint32_t *order;   /* the steps as the run executed them; a SEND just before its RECV* */
    uint32_t *when;    /* by step: where in order */
    uint32_t executed;
};

/* Notes the first fault, at a step, or in general if step is VERIFY_NONE. Returns false. */
bool disti_verify_fault(struct verify *v, uint32_t step, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "rank 3, lane 1, step 4 (SEND to rank 2, chunk 5)" */
void disti_verify_describe(const struct verify *v, uint32_t step, char *text, size_t size);

/* The cell of a place on a rank. */
struct verify_cell *disti_verify_cell_at(const struct verify *v, int rank,
                                         struct disti_chunk_ref place);

/* The step's i-th chunk of data. */
uint32_t disti_verify_data(const struct verify *v, uint32_t step, uint32_t i);

/* The step that this one waits for, or VERIFY_NONE. */
uint32_t disti_verify_waited(const struct verify *v, uint32_t step);

/* The hashes of one rank's contribution, and of two expressions added, in either order. */
uint64_t disti_verify_leaf(int rank);
uint64_t disti_verify_added(uint64_t one, uint64_t other);

/* Zeroed; at least one byte, so that NULL always means no memory. */
void *disti_verify_array(size_t count, size_t size);

/* Looks for chunks that a list has twice. False: a fault was noted, or no memory (*status_p). */
bool disti_verify_lists(struct verify *v, dist_status *status_p);

/* Fills match[] before anything runs. The same. */
bool disti_verify_match(struct verify *v, dist_status *status_p);

/* Runs the plans as far as they go. The same. */
bool disti_verify_run(struct verify *v, dist_status *status_p);

/* After the run. The same. */
bool disti_verify_races(struct verify *v, dist_status *status_p);

#endif
