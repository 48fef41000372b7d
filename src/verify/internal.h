/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier's parts: reading of plans, matching of messages, the run, the search for races. */
#ifndef DISTI_VERIFY_INTERNAL_H
#define DISTI_VERIFY_INTERNAL_H

#include "plan/plan.h"
#include "verify/verify.h"

#define VERIFY_NONE UINT32_MAX
/* Of so few ranks each has a bit, every chunk is followed, and races are searched for. */
#define VERIFY_RANKS_FEW 64

/* What a chunk of memory holds, symbolically. */
struct verify_cell {
    uint64_t sum;   /* of the numbers of those ranks whose contributions are in it */
    uint64_t order; /* in what order they were added: a hash of the expression */
    uint32_t chunk; /* which of those that are followed */
    bool finished, written;
};

/* A step of any rank that handles chunks that are followed. Steps are numbered over all ranks. */
struct verify_step {
    uint32_t rank, lane, index; /* lanes are numbered over all ranks; index: in its lane */
    uint32_t first;             /* the first chunk of its data */
    uint32_t first_item, items;
    uint32_t first_wait, waits; /* steps that it waits for, besides that before it in its lane */
    uint32_t match;             /* the step at the peer that it meets */
    int32_t peer;
    struct disti_chunk_ref dst, src;
    uint8_t kind;
    bool finish;
};

/* A chunk of a step's data that is followed. */
struct verify_item {
    uint32_t chunk;  /* which of those that are followed */
    uint32_t offset; /* which of the step's chunks */
};

/* One end of a message: the number-th from one rank to another on a channel. */
struct verify_message {
    uint32_t from, to, channel, number, step;
};

struct verify_lane {
    uint32_t first, count; /* its steps: [first, first + count) of all steps */
    uint32_t done;
    uint32_t waiters, next_waiter; /* lanes that wait for a step of this one: a list */
    bool queued, parked;
};

/* Where one rank's things begin in the lists of all. */
struct verify_rank {
    uint32_t first_lane, first_step;
    size_t first_slot;
};

/* A list that grows. */
struct verify_list {
    void *items;
    size_t count, room, size;
};

struct verify {
    struct disti_plan shape; /* of all plans: one without steps, of rank 0 */
    uint32_t ranks;
    bool aliased; /* what IN and OUT both hold is one memory */
    bool lost;    /* no memory */
    uint64_t all; /* the sum of all ranks' numbers */
    uint32_t data_chunks;
    uint32_t count, *followed; /* chunks of the data, ascending */
    struct disti_verdict *verdict;

    struct verify_rank *rank; /* ranks + 1 */
    struct verify_list steps, items, waits, lanes, sends, recvs;
    uint32_t *counters;          /* of messages: by direction, channel, peer */
    uint32_t *seen;              /* by chunk that is followed: the list that had it last */
    struct verify_cell *cells;   /* [rank][IN, OUT][count] */
    struct verify_cell *scratch; /* the slots of all ranks */
    uint32_t *order;             /* the steps as the run executed them; a SEND before its RECV* */
    uint32_t *when;              /* by step: where in order */
    uint32_t executed;
    uint32_t *queue, queued; /* lanes that the run has to look at, each at most once */
    uint64_t *knows; /* BARRIER, by step: which ranks of the window have started before it ends */
    uint32_t window; /* ranks [window, window + 64) */
};

static inline struct verify_step *verify_step(const struct verify *v, uint32_t step)
{
    return &((struct verify_step *)v->steps.items)[step];
}

static inline struct verify_lane *verify_lane(const struct verify *v, uint32_t lane)
{
    return &((struct verify_lane *)v->lanes.items)[lane];
}

static inline const struct verify_item *verify_items(const struct verify *v, uint32_t step)
{
    return &((const struct verify_item *)v->items.items)[verify_step(v, step)->first_item];
}

/* The step's i-th chunk of data. */
static inline uint32_t verify_data(const struct verify *v, uint32_t step, uint32_t i)
{
    return v->followed[verify_items(v, step)[i].chunk];
}

/* The i-th step that must end before this one begins: 0 is that before it in its lane, if any. */
static inline uint32_t verify_wait(const struct verify *v, uint32_t step, uint32_t i)
{
    const struct verify_step *s = verify_step(v, step);
    if (i == 0)
        return step > verify_lane(v, s->lane)->first ? step - 1 : VERIFY_NONE;
    return ((const uint32_t *)v->waits.items)[s->first_wait + i - 1];
}

static inline bool verify_receives(const struct verify_step *step)
{
    return step->kind == DISTI_RECV || step->kind == DISTI_RECV_REDUCE;
}

static inline bool verify_few(const struct verify *v)
{
    return v->ranks <= VERIFY_RANKS_FEW;
}

/* Notes the first fault, at a step, or in general if step is VERIFY_NONE. Returns false. */
bool disti_verify_fault(struct verify *v, uint32_t step, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* "rank 3, lane 1, step 4 (SEND to rank 2, chunk 5)" */
void disti_verify_describe(const struct verify *v, uint32_t step, char *text, size_t size);

/* After the run of all chunks. The same. */
bool disti_verify_races(struct verify *v);

#endif
