/* SPDX-License-Identifier: BSD-3-Clause */
/* Choices that are refined while the program runs: which call tries what, and the agreement. */
#include "engine/measure/refining.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/process_lock.h"
#include "engine/state.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/*
 * The agreement is an all-reduce of the engine's own, just before the call that decides:
 *
 *   queue   ... tries | tries | agreement | decides | the best | ...
 *                 |       |       ^    |     ^           ^
 *                 '-------'-------'    '-----'-----------'   each waits only for what is before it
 *
 * Its number is the deciding call's, far from those of calls that are under way.
 */
#define REFINING_SEQUENCE (UINT64_C(1) << 20)
/* Choices that are remembered for those who ask. */
#define REFINED_KEPT 64

dist_status disti_refining_open(struct dist_engine *engine)
{
    if (!engine->tuning.refine || engine->config->world_size == 1)
        return DIST_OK;
    engine->refining =
        calloc((size_t)DIST_COLL_COUNT * DISTI_SIZE_CLASSES, sizeof(*engine->refining));
    return engine->refining ? DIST_OK
                            : disti_fail(DIST_ERR_NO_MEMORY, "no memory to refine choices");
}

void disti_refining_close(struct dist_engine *engine)
{
    for (int i = 0; engine->refining && i < DIST_COLL_COUNT * DISTI_SIZE_CLASSES; i++)
        free(engine->refining[i]);
    free(engine->refining);
}

static dist_status refining_new(struct dist_engine *engine, dist_collective collective,
                                int size_class, struct disti_refine **refine_p)
{
    struct disti_refine *refine = malloc(sizeof(*refine));
    struct disti_chosen chosen;
    dist_status status;

    if (!refine)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to refine the choice for %s",
                          dist_collective_string(collective));
    status = disti_chooser_learn(&engine->chooser, collective, size_class, &chosen);
    if (status != DIST_OK) {
        free(refine);
        return status;
    }
    disti_refine_init(&chosen, refine);
    *refine_p = refine;
    return DIST_OK;
}

dist_status disti_refining_turn(struct dist_engine *engine, const struct dist_call *call,
                                struct disti_refine_turn *turn_p)
{
    int size_class = disti_size_class(disti_bind_bytes(call, engine->config->world_size));
    struct disti_refine **refine =
        &engine->refining[call->collective * DISTI_SIZE_CLASSES + size_class];
    dist_status status = DIST_OK;

    if (!*refine)
        status = refining_new(engine, call->collective, size_class, refine);
    if (status == DIST_OK)
        *turn_p = disti_refine_post(*refine);
    return status;
}

struct dist_call disti_refining_agreement(const struct dist_call *decides,
                                          struct disti_refine *refine)
{
    return (struct dist_call){.collective = DIST_COLL_ALL_REDUCE,
                              .in = refine->medians,
                              .out = refine->medians,
                              .count = (size_t)refine->count,
                              .dtype = DIST_FLOAT64,
                              .op = DIST_MAX,
                              .sequence = decides->sequence + REFINING_SEQUENCE};
}

bool disti_refining_may_start(const struct engine_task *task)
{
    const struct disti_refine_turn *turn = &task->turn;

    return task->kind == TASK_AGREEMENT ? disti_refine_ready(turn->refine)
                                        : disti_refine_knows(turn);
}

void disti_refining_start(struct engine_task *task)
{
    if (task->kind == TASK_AGREEMENT)
        disti_refine_sum(task->turn.refine);
    else
        task->began_ns = disti_now_ns();
}

/* ---- what came out ---- */

DISTI_PROCESS_LOCK(refined_lock);
static struct disti_refined refined_kept[REFINED_KEPT];
static unsigned refined_count;

static bool refined_same(const struct disti_refined *a, const struct disti_refined *b)
{
    return a->collective == b->collective && a->size_class == b->size_class &&
           a->ranks == b->ranks && a->nodes == b->nodes;
}

/* In the place of one like it, else of the one that is there longest. With the lock held. */
static struct disti_refined *refined_place(const struct disti_refined *refined)
{
    unsigned kept = refined_count < REFINED_KEPT ? refined_count : REFINED_KEPT;

    for (unsigned i = 0; i < kept; i++) {
        if (refined_same(&refined_kept[i], refined))
            return &refined_kept[i];
    }
    return NULL;
}

static void refined_keep(const struct disti_refined *refined)
{
    struct disti_refined *place;

    pthread_mutex_lock(&refined_lock);
    place = refined_place(refined);
    if (!place)
        place = &refined_kept[refined_count++ % REFINED_KEPT];
    *place = *refined;
    pthread_mutex_unlock(&refined_lock);
}

bool disti_refined_find(dist_collective collective, size_t bytes, int ranks, int nodes,
                        struct disti_refined *refined_p)
{
    const struct disti_refined wanted = {.collective = collective,
                                         .size_class = disti_size_class(bytes),
                                         .ranks = ranks,
                                         .nodes = nodes};
    const struct disti_refined *place;

    pthread_mutex_lock(&refined_lock);
    place = refined_place(&wanted);
    if (place)
        *refined_p = *place;
    pthread_mutex_unlock(&refined_lock);
    return place != NULL;
}

/* All ranks have the same times now, and from here on the same choice. */
static void refining_agree(const struct dist_engine *engine, struct disti_refine *refine)
{
    ptrdiff_t place = 0;
    struct disti_refined refined = {
        .ranks = engine->topology->ranks, .nodes = engine->topology->nodes, .count = refine->count};

    disti_refine_agree(refine);
    while (engine->refining[place] != refine)
        place++;
    refined.collective = (dist_collective)(place / DISTI_SIZE_CLASSES);
    refined.size_class = (int)(place % DISTI_SIZE_CLASSES);
    refined.best = refine->best;
    memcpy(refined.candidates, refine->candidates, sizeof(refined.candidates));
    memcpy(refined.seconds, refine->medians, sizeof(refined.seconds));
    refined_keep(&refined);
    for (int i = 0; i < refine->count; i++)
        disti_info("tried %s of up to %zu bytes a block: %s, %u segments, took %.1f us%s",
                   dist_collective_string(refined.collective),
                   disti_size_class_most(refined.size_class), refine->candidates[i].algorithm->name,
                   refine->candidates[i].segments, refine->medians[i] * 1e6,
                   i == refine->best ? ", and is the choice" : "");
}

void disti_refining_ended(const struct dist_engine *engine, const struct engine_task *task)
{
    if (task->kind == TASK_AGREEMENT)
        refining_agree(engine, task->turn.refine);
    else
        disti_refine_ended(&task->turn, (double)(disti_now_ns() - task->began_ns) * 1e-9);
}
