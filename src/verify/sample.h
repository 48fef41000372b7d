/* SPDX-License-Identifier: BSD-3-Clause */
/* What the two halves of the sampling verifier share. */
#ifndef DISTI_VERIFY_SAMPLE_H
#define DISTI_VERIFY_SAMPLE_H

#include "plan/check.h"
#include "verify/verify.h"

#define SAMPLE_NONE UINT32_MAX

/* A step of any rank that handles chunks of the sample. */
struct sample_step {
    uint32_t rank, lane; /* lanes are numbered over all ranks */
    uint32_t first_item, items;
    uint32_t first_pred, preds; /* steps that come before it, besides that before it in its lane */
    uint32_t match;             /* the step at the peer that it meets */
    struct disti_chunk_ref dst, src;
    uint8_t kind;
    bool finish;
};

struct sample_item {
    uint32_t chunk; /* of the sample */
    uint32_t at;    /* of the step's chunks */
};

/* One end of a message: the number-th from one rank to another on a channel. */
struct sample_message {
    uint32_t from, to, channel, number, step;
};

struct sample_lane {
    uint32_t first, count; /* steps */
    uint32_t done;
    uint32_t waiters, next_waiter; /* lanes that wait for this one: a list */
    bool queued, parked;
};

/* A list that grows. */
struct sample_list {
    void *items;
    size_t count, room, size;
};

struct sample {
    dist_collective collective;
    uint32_t ranks, root;
    uint32_t data_chunks, chunks; /* there are; a block has */
    uint32_t count, *list;        /* the sample: data chunks, ascending */
    bool lost;                    /* no memory */
    uint32_t *counters, channels; /* of messages: by direction, channel, peer */
    struct sample_list steps, items, preds, lanes, sends, recvs;
    uint64_t *cells;      /* [rank][IN, OUT][count]: what is there; 0: nothing */
    uint64_t *scratch;    /* the slots of all ranks: the same */
    uint32_t *slot_chunk; /* and which chunk that is */
    size_t *first_slot;   /* by rank */
    struct disti_verdict *verdict;
};

static inline struct sample_step *sample_step(const struct sample *s, uint32_t number)
{
    return &((struct sample_step *)s->steps.items)[number];
}

/* Notes the first fault. Returns false. */
bool disti_sample_fault(struct sample *s, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Runs what was collected, and judges it. */
void disti_sample_run(struct sample *s);

#endif
