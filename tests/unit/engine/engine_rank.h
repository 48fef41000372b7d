/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs engines of several ranks, each in its own process, over a transport of the library. */
#ifndef TESTS_UNIT_ENGINE_RANK_H
#define TESTS_UNIT_ENGINE_RANK_H

#include "../rendezvous/ranks.h"
#include "engine/engine.h"

#define ENGINE_RANKS_MAX 8

/* Shared memory in which the ranks synchronize and exchange addresses. */
struct engine_shared;

struct engine_rank {
    int rank, ranks;
    struct dist_engine *engine;
    struct dist_backend_config config;
    struct dist_place places[ENGINE_RANKS_MAX];
    uint64_t sequence; /* sequence number of the next collective */
    bool broken;       /* a call has failed or is about to */
    struct engine_shared *shared;
};

typedef void (*engine_rank_fn)(struct engine_rank *rank);

/* Settings of the next engine_ranks_run. scattered: consecutive ranks are on different nodes.
 * world: the group is the world, so that costs are measured. */
extern bool engine_ranks_reproducible, engine_ranks_scattered, engine_ranks_world;

/* Runs fn on `ranks` ranks with open engines and asserts that all return. transport: "shm" or
 * "tcp". */
void engine_ranks_run(int ranks, const char *transport, engine_rank_fn fn);

/* Posts a call; a collective gets the next sequence number. */
void engine_rank_post(struct engine_rank *rank, struct dist_call call, struct dist_ticket *ticket);

/* Makes progress until the ticket has ended, and returns its status. Fails the test after a
 * timeout. */
dist_status engine_rank_wait(struct engine_rank *rank, struct dist_ticket *ticket);

/* Posts a call and waits for it; the call must succeed. */
void engine_rank_call(struct engine_rank *rank, struct dist_call call);

/* A barrier that needs no engine; makes progress on the engine meanwhile. */
void engine_rank_meet(struct engine_rank *rank);

/* Makes progress many times and asserts that the ticket stays in progress. */
void engine_rank_stays(struct engine_rank *rank, const struct dist_ticket *ticket);

/* Tags of the tests' messages. */
#define TAG 3
#define OTHER 4

/* Point-to-point calls with int32 elements. */
struct dist_call send_to(int peer, int tag, const int32_t *data, size_t count);
struct dist_call recv_from(int peer, int tag, int32_t *data, size_t count, int *source);

/* Send and receive one element, and wait until the call has ended. */
void send_one(struct engine_rank *rank, int peer, int tag, int32_t value);
int32_t recv_one(struct engine_rank *rank, int peer, int tag, int *source);

#endif
