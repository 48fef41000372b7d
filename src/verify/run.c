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

static void run_queue(struct run *run, uint32_t lane)
{
    if (run->v->lanes[lane].queued)
        return;
    run->v->lanes[lane].queued = true;
    run->queue[run->queued++] = lane;
}

static uint32_t run_head(const struct verify *v, uint32_t lane)
{
    const struct verify_lane *l = &v->lanes[lane];
    return l->done < l->count ? l->first + l->done : VERIFY_NONE;
}

static bool run_waits(const struct verify *v, uint32_t step)
{
    uint32_t waited = disti_verify_waited(v, step);
    if (waited == VERIFY_NONE)
        return false;
    const struct verify_lane *lane = &v->lanes[v->lane_of[waited]];
    return waited - lane->first >= lane->done;
}

/* Remembers the lane with the one that it waits for. */
static void run_park(struct run *run, uint32_t lane, uint32_t waited)
{
    struct verify_lane *l = &run->v->lanes[lane];
    struct verify_lane *other = &run->v->lanes[run->v->lane_of[waited]];
    if (l->parked)
        return;
    l->parked = true;
    l->next_waiter = other->waiters;
    other->waiters = lane;
}

/* The head of the lane has ended: whoever waits for the lane looks again. */
static void run_advance(struct run *run, uint32_t lane)
{
    struct verify *v = run->v;
    struct verify_lane *l = &v->lanes[lane];
    uint32_t step = l->first + l->done++;
    v->knows[step] = l->knows;
    v->when[step] = v->executed;
    v->order[v->executed++] = step;
    for (uint32_t waiter = l->waiters; waiter != VERIFY_NONE;) {
        struct verify_lane *w = &v->lanes[waiter];
        w->parked = false;
        run_queue(run, waiter);
        waiter = w->next_waiter;
    }
    l->waiters = VERIFY_NONE;
    run_queue(run, lane);
}

/* Reads chunk i of the step's range at place. */
static bool run_read(struct verify *v, uint32_t step, struct disti_chunk_ref place, uint32_t i,
                     struct verify_cell *value_p)
{
    struct disti_chunk_ref at = {place.at + i, place.space};
    const struct verify_cell *cell = disti_verify_cell_at(v, v->lanes[v->lane_of[step]].rank, at);
    if (!cell->written)
        return disti_verify_fault(v, step, "reads chunk %u of %s, which is not written yet", at.at,
                                  at.space == DISTI_SCRATCH ? "scratch" : "its memory");
    uint32_t data = disti_verify_data(v, step, i);
    if (cell->chunk != data)
        return disti_verify_fault(v, step, "uses chunk %u as chunk %u", cell->chunk, data);
    *value_p = *cell;
    return true;
}

static void run_write(struct verify *v, uint32_t step, uint32_t i, struct verify_cell value)
{
    const struct disti_step *s = v->steps[step];
    struct disti_chunk_ref at = {s->dst.at + i, s->dst.space};
    *disti_verify_cell_at(v, v->lanes[v->lane_of[step]].rank, at) = value;
}

/* Adds `other` to *value_p; both must be parts of one unfinished sum. */
static bool run_sum(struct verify *v, uint32_t step, struct verify_cell *value_p,
                    const struct verify_cell *other)
{
    uint64_t all = UINT64_MAX >> (64 - v->ranks);
    if (value_p->mask & other->mask)
        return disti_verify_fault(v, step, "adds the contributions of ranks %#llx a second time",
                                  (unsigned long long)(value_p->mask & other->mask));
    if (value_p->finished || other->finished)
        return disti_verify_fault(v, step, "adds to what is already finished");
    value_p->mask |= other->mask;
    value_p->sum = disti_verify_added(value_p->sum, other->sum);
    if (v->steps[step]->finish && value_p->mask != all)
        return disti_verify_fault(v, step,
                                  "finishes what has only the contributions of ranks %#llx",
                                  (unsigned long long)value_p->mask);
    value_p->finished = v->steps[step]->finish;
    return true;
}

static bool run_local(struct verify *v, uint32_t step)
{
    const struct disti_step *s = v->steps[step];
    for (uint32_t i = 0; i < s->chunks; i++) {
        struct verify_cell value, other;
        if (!run_read(v, step, s->src, i, &value))
            return false;
        if (s->kind == DISTI_REDUCE &&
            (!run_read(v, step, s->dst, i, &other) || !run_sum(v, step, &value, &other)))
            return false;
        run_write(v, step, i, value);
    }
    return true;
}

static bool run_message(struct verify *v, uint32_t send, uint32_t recv)
{
    const struct disti_step *s = v->steps[send], *r = v->steps[recv];
    for (uint32_t i = 0; i < s->chunks; i++) {
        struct verify_cell value, other;
        if (!run_read(v, send, s->src, i, &value))
            return false;
        if (r->kind == DISTI_RECV_REDUCE &&
            (!run_read(v, recv, r->src, i, &other) || !run_sum(v, recv, &value, &other)))
            return false;
        run_write(v, recv, i, value);
    }
    return true;
}

/* What the lane knows once the step has begun: also what the step knew that it waited for. */
static void run_learn(struct verify *v, uint32_t step)
{
    uint32_t waited = disti_verify_waited(v, step);
    if (waited != VERIFY_NONE)
        v->lanes[v->lane_of[step]].knows |= v->knows[waited];
}

/* Barriers move no data. */
static bool run_meet(struct run *run, uint32_t send, uint32_t recv)
{
    struct verify *v = run->v;
    run_learn(v, send);
    run_learn(v, recv);
    v->lanes[v->lane_of[recv]].knows |= v->lanes[v->lane_of[send]].knows;
    if (v->plans[0]->collective != DIST_COLL_BARRIER && !run_message(v, send, recv))
        return false;
    run_advance(run, v->lane_of[send]);
    run_advance(run, v->lane_of[recv]);
    return true;
}

/* Does the lane's next step if it can be done. False: a fault. */
static bool run_lane(struct run *run, uint32_t lane)
{
    struct verify *v = run->v;
    uint32_t step = run_head(v, lane);
    if (step == VERIFY_NONE)
        return true;
    if (run_waits(v, step)) {
        run_park(run, lane, disti_verify_waited(v, step));
        return true;
    }
    if (disti_step_talks(v->steps[step])) {
        uint32_t other = v->match[step];
        if (run_head(v, v->lane_of[other]) != other || run_waits(v, other))
            return true; /* the other looks for us when it has come so far */
        bool sends = v->steps[step]->kind == DISTI_SEND;
        return run_meet(run, sends ? step : other, sends ? other : step);
    }
    run_learn(v, step);
    if (v->plans[0]->collective != DIST_COLL_BARRIER && !run_local(v, step))
        return false;
    run_advance(run, lane);
    return true;
}

/* Names the first lane that is stuck, and for what. */
static bool run_deadlock(struct verify *v)
{
    for (uint32_t lane = 0; lane < v->lane_count; lane++) {
        uint32_t step = run_head(v, lane);
        if (step == VERIFY_NONE)
            continue;
        uint32_t cause = run_waits(v, step) ? disti_verify_waited(v, step) : v->match[step];
        char text[128];
        disti_verify_describe(v, cause, text, sizeof(text));
        return disti_verify_fault(v, step, "deadlock, it waits for %s", text);
    }
    return true;
}

bool disti_verify_run(struct verify *v, dist_status *status_p)
{
    struct run run = {.v = v, .queue = malloc((v->lane_count + 1) * sizeof(*run.queue))};
    if (!run.queue) {
        *status_p = DIST_ERR_NO_MEMORY;
        return false;
    }
    for (uint32_t lane = v->lane_count; lane > 0; lane--)
        run_queue(&run, lane - 1);
    bool good = true;
    while (good && run.queued > 0) {
        uint32_t lane = run.queue[--run.queued];
        v->lanes[lane].queued = false;
        good = run_lane(&run, lane);
    }
    free(run.queue);
    return good && run_deadlock(v);
}
