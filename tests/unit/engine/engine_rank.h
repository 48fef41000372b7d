/* SPDX-License-Identifier: BSD-3-Clause */
/* Engines of several ranks, each in a process of its own, over a transport of the library. */
#ifndef TESTS_UNIT_ENGINE_RANK_H
#define TESTS_UNIT_ENGINE_RANK_H

#include "../rendezvous/ranks.h"
#include "engine/engine.h"

#define ENGINE_RANKS_MAX 8

/* What the ranks share, to meet and to exchange addresses. */
struct engine_shared;

struct engine_rank {
    int rank, ranks;
    struct dist_engine *engine;
    struct dist_backend_config config;
    struct dist_place places[ENGINE_RANKS_MAX];
    uint64_t sequence; /* of the collectives */
    bool broken;       /* a call has failed, or is going to */
    struct engine_shared *shared;
};

typedef void (*engine_rank_fn)(struct engine_rank *rank);

/*
 * For the ranks that are run next. scattered: neighbours in rank are on different nodes. world:
 * they are the world, so that costs are measured.
 */
extern bool engine_ranks_reproducible, engine_ranks_scattered, engine_ranks_world;

/* Runs fn in so many ranks with open engines; asserts that all return. transport: "shm", "tcp". */
void engine_ranks_run(int ranks, const char *transport, engine_rank_fn fn);

/* Starts a call; gives a collective its number. */
void engine_rank_post(struct engine_rank *rank, struct dist_call call, struct dist_ticket *ticket);

/* Moves things along until the ticket has ended; too long is a failure of the test. */
dist_status engine_rank_wait(struct engine_rank *rank, struct dist_ticket *ticket);

/* Both; the call must succeed. */
void engine_rank_call(struct engine_rank *rank, struct dist_call call);

/* Until all ranks are here. Moves things along meanwhile. */
void engine_rank_meet(struct engine_rank *rank);

/* Looks so many times, and asserts that the ticket does not end. */
void engine_rank_stays(struct engine_rank *rank, const struct dist_ticket *ticket);

/* Tags to send with. */
#define TAG 3
#define OTHER 4

/* Calls from point to point, of int32. */
struct dist_call send_to(int peer, int tag, const int32_t *data, size_t count);
struct dist_call recv_from(int peer, int tag, int32_t *data, size_t count, int *source);

/* One element; until it has gone, or come. */
void send_one(struct engine_rank *rank, int peer, int tag, int32_t value);
int32_t recv_one(struct engine_rank *rank, int peer, int tag, int *source);

#endif
