/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The symbolic run. A SEND and the RECV that it meets happen together, once both stand at the heads
 * of their lanes and wait for nothing: the strictest that a transport may be. What can happen
 * can happen in any order with the same outcome, so one order is as good as all.
 */
#include "verify/internal.h"

#include <stdlib.h>

/* Lanes to be looked at; each at most once. */
struct run {
    struct verify *v;
    uint32_t *queue;
    uint32_t queued;
};

/* ---- lanes ---- */

static void run_queue(struct run *run, uint32_t lane)
{
    if (verify_lane(run->v, lane)->queued)
        return;
    verify_lane(run->v, lane)->queued = true;
    run->queue[run->queued++] = lane;
}

static uint32_t run_head(const struct verify *v, uint32_t lane)
{
    const struct verify_lane *l = verify_lane(v, lane);
    return l->done < l->count ? l->first + l->done : VERIFY_NONE;
}

/* The step of another lane that the head of a lane still waits for; VERIFY_NONE: it can run. */
static uint32_t run_waited(const struct verify *v, uint32_t step)
{
    for (uint32_t i = 1; i <= verify_step(v, step)->waits; i++) {
        uint32_t waited = verify_wait(v, step, i);
        const struct verify_lane *lane = verify_lane(v, verify_step(v, waited)->lane);
        if (waited - lane->first >= lane->done)
            return waited;
    }
    return VERIFY_NONE;
}

/* Remembers the lane with the one that it waits for. */
static void run_park(struct run *run, uint32_t lane, uint32_t waited)
{
    struct verify_lane *l = verify_lane(run->v, lane);
    struct verify_lane *other = verify_lane(run->v, verify_step(run->v, waited)->lane);
    if (l->parked)
        return;
    l->parked = true;
    l->next_waiter = other->waiters;
    other->waiters = lane;
}

/* The step, the head of its lane, has ended: whoever waits for the lane looks again. */
static void run_advance(struct run *run, uint32_t step)
{
    struct verify *v = run->v;
    struct verify_lane *l = verify_lane(v, verify_step(v, step)->lane);
    uint32_t waiter = l->waiters;
    l->done++;
    l->waiters = VERIFY_NONE;
    v->when[step] = v->executed;
    v->order[v->executed++] = step;
    for (; waiter != VERIFY_NONE; waiter = verify_lane(v, waiter)->next_waiter) {
        verify_lane(v, waiter)->parked = false;
        run_queue(run, waiter);
    }
    run_queue(run, verify_step(v, step)->lane);
}

/* ---- data ---- */

/* Reads the step's i-th chunk, of those that begin at ref. */
static bool run_read(struct verify *v, uint32_t step, struct disti_chunk_ref ref, uint32_t i,
                     struct verify_cell *value_p)
{
    const struct verify_item *item = &verify_items(v, step)[i];
    ref.chunk += item->offset;
    *value_p = *disti_verify_cell(v, verify_step(v, step)->rank, ref, item->chunk);
    if (!value_p->written)
        return disti_verify_fault(v, step, "reads chunk %u of %s, which is not written yet",
                                  ref.chunk, ref.space == DISTI_SCRATCH ? "scratch" : "its memory");
    if (value_p->chunk != item->chunk)
        return disti_verify_fault(v, step, "uses chunk %u as chunk %u", v->followed[value_p->chunk],
                                  v->followed[item->chunk]);
    return true;
}

static void run_write(struct verify *v, uint32_t step, uint32_t i, struct verify_cell value)
{
    const struct verify_step *s = verify_step(v, step);
    const struct verify_item *item = &verify_items(v, step)[i];
    struct disti_chunk_ref ref = {s->dst.chunk + item->offset, s->dst.space};
    *disti_verify_cell(v, s->rank, ref, item->chunk) = value;
}

/* Adds `other` to *value_p; both must be parts of one unfinished sum. */
static bool run_sum(struct verify *v, uint32_t step, struct verify_cell *value_p,
                    const struct verify_cell *other)
{
    if (verify_few(v) && value_p->sum & other->sum)
        return disti_verify_fault(v, step, "adds the contributions of ranks %#llx a second time",
                                  (unsigned long long)(value_p->sum & other->sum));
    if (value_p->finished || other->finished)
        return disti_verify_fault(v, step, "adds to what is already finished");
    value_p->sum += other->sum;
    value_p->order = disti_verify_added(value_p->order, other->order);
    value_p->finished = verify_step(v, step)->finish;
    if (value_p->finished && value_p->sum != v->all)
        return verify_few(v)
                   ? disti_verify_fault(v, step,
                                        "finishes what has only the contributions of ranks %#llx",
                                        (unsigned long long)value_p->sum)
                   : disti_verify_fault(
                         v, step, "finishes what has not each rank's contribution exactly once");
    return true;
}

/* The data of `from`, a SEND or the step itself, go to the step's destination. */
static bool run_data(struct verify *v, uint32_t from, uint32_t step)
{
    const struct verify_step *f = verify_step(v, from), *s = verify_step(v, step);
    bool reduces = s->kind == DISTI_RECV_REDUCE || s->kind == DISTI_REDUCE;
    for (uint32_t i = 0; i < s->items; i++) {
        struct verify_cell value, other;
        if (!run_read(v, from, f->src, i, &value))
            return false;
        if (reduces && (!run_read(v, step, s->kind == DISTI_REDUCE ? s->dst : s->src, i, &other) ||
                        !run_sum(v, step, &value, &other)))
            return false;
        run_write(v, step, i, value);
    }
    return true;
}

/* ---- steps ---- */

/* What is known of starts once the step has begun: its own rank's, and what those before it knew.
 */
static void run_learn(struct verify *v, uint32_t step)
{
    const struct verify_step *s = verify_step(v, step);
    uint32_t own = s->rank - v->window;
    v->knows[step] = own < 64 ? UINT64_C(1) << own : 0;
    for (uint32_t i = 0; i <= s->waits; i++) {
        uint32_t before = verify_wait(v, step, i);
        if (before != VERIFY_NONE)
            v->knows[step] |= v->knows[before];
    }
}

/* A step by itself, or a receive with the SEND that it meets. Barriers move no data. */
static bool run_step(struct run *run, uint32_t step)
{
    struct verify *v = run->v;
    uint32_t from = verify_receives(verify_step(v, step)) ? verify_step(v, step)->match : step;
    if (v->knows) {
        run_learn(v, from);
        run_learn(v, step);
        v->knows[step] |= v->knows[from];
    } else if (!run_data(v, from, step)) {
        return false;
    }
    if (from != step)
        run_advance(run, from);
    run_advance(run, step);
    return true;
}

/* Does the lane's next step if it can be done. False: a fault. */
static bool run_lane(struct run *run, uint32_t lane)
{
    struct verify *v = run->v;
    uint32_t step = run_head(v, lane);
    if (step == VERIFY_NONE)
        return true;
    uint32_t waited = run_waited(v, step);
    if (waited != VERIFY_NONE) {
        run_park(run, lane, waited);
        return true;
    }
    const struct verify_step *s = verify_step(v, step);
    if (s->kind > DISTI_RECV_REDUCE)
        return run_step(run, step);
    if (run_head(v, verify_step(v, s->match)->lane) != s->match ||
        run_waited(v, s->match) != VERIFY_NONE)
        return true; /* the other looks for this one when it has come so far */
    return run_step(run, s->kind == DISTI_SEND ? s->match : step);
}

/* Names the first lane that is stuck, and for what. */
static bool run_deadlock(struct verify *v)
{
    for (uint32_t lane = 0; lane < v->lanes.count; lane++) {
        uint32_t step = run_head(v, lane);
        if (step == VERIFY_NONE)
            continue;
        uint32_t cause = run_waited(v, step);
        char text[128];
        disti_verify_describe(v, cause == VERIFY_NONE ? verify_step(v, step)->match : cause, text,
                              sizeof(text));
        return disti_verify_fault(v, step, "deadlock, it waits for %s", text);
    }
    return true;
}

bool disti_verify_run(struct verify *v)
{
    struct run run = {.v = v, .queue = malloc((v->lanes.count + 1) * sizeof(*run.queue))};
    bool good = run.queue;
    v->lost = !good;
    v->executed = 0;
    for (uint32_t lane = (uint32_t)v->lanes.count; lane > 0 && good; lane--) {
        struct verify_lane *l = verify_lane(v, lane - 1);
        *l = (struct verify_lane){.first = l->first, .count = l->count, .waiters = VERIFY_NONE};
        run_queue(&run, lane - 1);
    }
    while (good && run.queued > 0) {
        uint32_t lane = run.queue[--run.queued];
        verify_lane(v, lane)->queued = false;
        good = run_lane(&run, lane);
    }
    free(run.queue);
    return good && run_deadlock(v);
}
