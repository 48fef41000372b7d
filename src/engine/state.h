/* SPDX-License-Identifier: BSD-3-Clause */
/* What an engine is made of; private to this floor. */
#ifndef DISTI_ENGINE_STATE_H
#define DISTI_ENGINE_STATE_H

#include "collectives/plan.h"
#include "collectives/select.h"
#include "engine/engine.h"
#include "topology/topology.h"

#define ENGINE_TRANSPORTS_MAX 8
#define ENGINE_CACHE_BUCKETS 64
#define ENGINE_RUNNING_MAX 16

/* An opened transport. */
struct engine_link {
    const struct dist_transport *transport;
    void *state;
    int peers; /* ranks that are reached through it */
    struct dist_transport_config config;
};

/* A plan that was written once; found again by its key. */
struct engine_cached {
    struct engine_cached *next;
    const struct disti_algorithm *algorithm;
    int root;
    uint32_t segments;
    struct disti_plan *plan;
};

/* Where a lane stands: steps before `next` have ended; `busy`: step `next` is under way. */
struct engine_lane {
    uint32_t next;
    bool busy;
    struct dist_request request;
};

/*
 * One call under way. A task is used again for a later call with its lanes and scratch.
 * `active` holds the numbers of the lanes that are not at their end.
 */
struct engine_task {
    struct engine_task *next;
    struct dist_call call;
    struct dist_ticket *ticket;
    const struct disti_plan *plan;
    bool running;
    size_t element_bytes, slot_bytes;
    char *scratch;
    size_t scratch_bytes;
    struct engine_lane *lanes;
    uint32_t *active;
    uint32_t lane_capacity, active_count;
};

struct dist_engine {
    const struct dist_backend_config *config;
    struct disti_topology *topology;
    struct disti_choice choice;
    struct engine_link links[ENGINE_TRANSPORTS_MAX];
    int link_count;
    int armed;      /* links[0 .. armed) are armed for a sleep */
    uint8_t *route; /* by rank: index in links */
    struct engine_cached *cache[ENGINE_CACHE_BUCKETS];
    struct engine_task *head, *tail; /* posted and not ended, in order */
    struct engine_task *idle;        /* ended, to be used again */
};

/* route.c: opens the links and fills `route`; closes them. */
dist_status disti_route_open(struct dist_engine *engine,
                             const struct dist_engine_config *engine_config);
void disti_route_close(struct dist_engine *engine);

/* cache.c: the plan for a call; the engine's, valid until it closes. */
dist_status disti_cache_plan(struct dist_engine *engine, const struct dist_call *call,
                             const struct disti_plan **plan_p);
void disti_cache_clear(struct dist_engine *engine);

/* task.c: one call's steps. */
dist_status disti_task_create(struct dist_engine *engine, const struct dist_call *call,
                              struct dist_ticket *ticket, struct engine_task **task_p);
void disti_task_start(struct engine_task *task);
/* Runs every step that can run. IN_PROGRESS, OK at the end, or the failure. */
dist_status disti_task_advance(struct dist_engine *engine, struct engine_task *task, int *moved);
/* The peers whose messages have not come or gone, each once: "rank 2, rank 5". */
void disti_task_describe(const struct engine_task *task, char *text, size_t size);
bool disti_task_overlaps(const struct engine_task *a, const struct engine_task *b);
void disti_task_free(struct engine_task *task);

/* fingerprint.c: what a call is, in 64 bits, and back as words for a person. */
uint64_t disti_fingerprint(const struct dist_call *call);
void disti_fingerprint_text(uint64_t fingerprint, char *text, size_t size);

#endif
