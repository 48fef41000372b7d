/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that called different things; private to this floor. */
#ifndef DISTI_ENGINE_MISMATCH_H
#define DISTI_ENGINE_MISMATCH_H

#include "base/hash.h"
#include "endpoint/endpoint.h"

#include <dist/transport.h>
#include <limits.h>

/* Calls that this rank remembers: how far it may be ahead of one that tells it of a mismatch. */
#define ENGINE_CALLS_KEPT 256

/* Unexpected messages that are looked at: of each peer a few, or all of them. */
#define DISTI_MISMATCH_FEW 8
#define DISTI_MISMATCH_ALL INT_MAX

/* A question to a rank that is waited for. */
struct engine_query {
    struct engine_query *next;
    struct engine_request request;
};

struct dist_engine;

/* What this rank called, to be compared with what the others did. */
struct engine_calls {
    struct engine_called {
        uint64_t fingerprint, history; /* history: of the calls before it */
    } called[ENGINE_CALLS_KEPT];       /* by sequence */
    uint64_t next;                     /* the sequence after the newest call's */
    uint64_t history;                  /* hash of the fingerprints so far */
    bool unpolled;             /* since the last call was posted nobody has polled the links */
    uint64_t waiting;          /* 1 + the sequence of the call that waits; 0: none */
    int64_t ask_ns;            /* when it asks those that it waits for */
    int ask_peer;              /* ranks below it have been asked */
    uint32_t idle;             /* polls that found nothing */
    struct dist_request found; /* peer >= 0: it called something else: its envelope and ours */
    uint64_t found_sequence;
    int suspect; /* a rank whose history before this call is another; negative: see mismatch.c */
    uint64_t suspect_sequence;
    struct engine_query *queries;
};

void disti_mismatch_open(struct dist_engine *engine);
/* After the links have been closed. */
void disti_mismatch_close(struct dist_engine *engine);

/* What stands for a call on its messages: the next, or the newest, which has been noted already. */
uint64_t disti_mismatch_number(const struct dist_engine *engine, uint64_t sequence);

/* Sequences that are left out are calls that no plan served. */
void disti_mismatch_skip(struct engine_calls *calls, uint64_t sequence);

/* The next collective is posted, in the order of all ranks. Returns the hash of all so far, with
 * it. Inline for those that end as they are posted. */
static inline uint64_t disti_mismatch_next(struct engine_calls *calls, uint64_t sequence,
                                           uint64_t fingerprint)
{
    uint64_t history = calls->history;

    calls->called[sequence % ENGINE_CALLS_KEPT] =
        (struct engine_called){.fingerprint = fingerprint, .history = history};
    calls->next = sequence + 1;
    return calls->history = disti_hash_call(history, fingerprint);
}

/* The same behind any that were left out. */
static inline uint64_t disti_mismatch_called(struct engine_calls *calls, uint64_t sequence,
                                             uint64_t fingerprint)
{
    if (calls->next != sequence)
        disti_mismatch_skip(calls, sequence);
    return disti_mismatch_next(calls, sequence, fingerprint);
}

/* The newest was not posted after all. */
static inline void disti_mismatch_uncalled(struct engine_calls *calls)
{
    calls->next--;
    calls->history = calls->called[calls->next % ENGINE_CALLS_KEPT].history;
}

/* Looks at `most` unexpected messages of each peer. True: a rank called something else. */
bool disti_mismatch_look(struct dist_engine *engine, int most);

/* The same, at all of them, while there is nothing else to do; and asks those that the oldest call
 * has waited for for long. */
bool disti_mismatch_rest(struct dist_engine *engine);

/* After a look was true: ERR_MISMATCH, and tells both calls. */
dist_status disti_mismatch_report(const struct dist_engine *engine);

#endif
