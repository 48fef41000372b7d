/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans are written once and kept, so that a repeated call pays nothing for its plan. */
#include "base/log.h"
#include "engine/state.h"

#include <stdlib.h>

static struct engine_cached **cache_bucket(struct dist_engine *engine,
                                           const struct disti_algorithm *algorithm, int root,
                                           uint32_t segments)
{
    uintptr_t hash =
        (uintptr_t)algorithm / sizeof(*algorithm) + (unsigned)root * 7u + segments * 31u;

    return &engine->cache[hash % ENGINE_CACHE_BUCKETS];
}

static dist_status cache_add(struct dist_engine *engine, struct engine_cached **bucket,
                             const struct disti_algorithm *algorithm, int root, uint32_t segments,
                             const struct disti_plan **plan_p)
{
    bool flat = engine->flat && disti_algorithm_reduces(algorithm->collective);
    const struct disti_shape shape = {.collective = algorithm->collective,
                                      .ranks = engine->config->world_size,
                                      .rank = engine->config->rank,
                                      .root = root,
                                      .segments = segments,
                                      .topology = flat ? engine->flat : engine->topology};
    struct engine_cached *entry = malloc(sizeof(*entry));
    dist_status status;

    if (!entry)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a plan of %s", algorithm->name);
    status = disti_plan_write(algorithm, &shape, &entry->plan);
    if (status != DIST_OK) {
        free(entry);
        return status;
    }
    entry->algorithm = algorithm;
    entry->root = root;
    entry->segments = segments;
    entry->next = *bucket;
    *bucket = entry;
    *plan_p = entry->plan;
    disti_info("plan %s:%s, %d ranks, root %d, %u segments: %u lanes, %u steps",
               dist_collective_string(algorithm->collective), algorithm->name, shape.ranks, root,
               segments, entry->plan->lane_count, entry->plan->step_count);
    return DIST_OK;
}

dist_status disti_cache_plan(struct dist_engine *engine, const struct dist_call *call,
                             const struct disti_plan **plan_p)
{
    int root = disti_collective_rooted(call->collective) ? call->root : 0;
    const struct disti_algorithm *algorithm;
    struct engine_cached **bucket;
    uint32_t segments;
    dist_status status = disti_chooser_pick(&engine->chooser, call->collective,
                                            disti_bind_bytes(call, engine->config->world_size),
                                            &algorithm, &segments);

    if (status != DIST_OK)
        return status;
    bucket = cache_bucket(engine, algorithm, root, segments);
    for (struct engine_cached *e = *bucket; e; e = e->next) {
        if (e->algorithm == algorithm && e->root == root && e->segments == segments) {
            *plan_p = e->plan;
            return DIST_OK;
        }
    }
    return cache_add(engine, bucket, algorithm, root, segments, plan_p);
}

void disti_cache_clear(struct dist_engine *engine)
{
    for (int i = 0; i < ENGINE_CACHE_BUCKETS; i++) {
        while (engine->cache[i]) {
            struct engine_cached *entry = engine->cache[i];

            engine->cache[i] = entry->next;
            disti_plan_free(entry->plan);
            free(entry);
        }
    }
}
