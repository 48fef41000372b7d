/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Collects what plans do with the chunks of data that are followed: of each plan only the steps
 * that handle these, so that plans need not be in memory all at once.
 *
 *   lane 0   [a]   b    c   [d]        kept: a, d, f. That d comes after f is found by going back
 *                  |                   from c, through e, which is not kept, to f.
 *   lane 1    f    e
 */
#include "verify/internal.h"

#include <stdlib.h>

/* ---- lists ---- */

/* A new item at the end, not set; NULL: no memory, which is remembered. */
static void *list_add(struct verify *v, struct verify_list *list)
{
    if (list->count == list->room) {
        size_t room = list->room * 2 + 1024;
        void *items = realloc(list->items, room * list->size);
        if (!items) {
            v->lost = true;
            return NULL;
        }
        list->items = items;
        list->room = room;
    }
    return (char *)list->items + list->count++ * list->size;
}

/* ---- messages' numbers ---- */

/* Those of one plan at a time; all 0 between two plans. */
static uint32_t *collect_counter(const struct verify *v, const struct disti_lane *lane,
                                 const struct disti_step *step)
{
    uint32_t direction = step->kind == DISTI_SEND ? 0 : DISTI_CHANNELS;
    return &v->counters[(size_t)(direction + lane->channel) * v->ranks + (uint32_t)step->peer];
}

/* What was counted, one by one: of many ranks a plan talks to few. */
static void collect_counters_clear(const struct verify *v, const struct disti_plan *plan)
{
    for (uint32_t l = 0; l < plan->lane_count; l++)
        for (uint32_t i = 0; i < plan->lanes[l].count; i++) {
            const struct disti_step *step = &plan->steps[plan->lanes[l].first + i];
            if (disti_step_talks(step))
                *collect_counter(v, &plan->lanes[l], step) = 0;
        }
}

/* ---- steps ---- */

/* A step that is waited for. */
struct reader_wait {
    uint16_t lane;
    uint32_t step;
};

/* What is known of the plan that is being read. */
struct reader {
    const struct disti_plan *plan;
    uint32_t *kept;   /* by step: its number if it is kept */
    uint32_t *before; /* by step: the last kept step up to it in its lane, by step of the plan */
    uint32_t *waits; /* by step: it or the first one behind it in its lane that waits; or the end */
    uint32_t *covered, *stamp; /* by lane: so many of its steps are known to come before */
    struct reader_wait *stack;
};

/* The first of the chunks that are followed that is not before this one. */
static uint32_t reader_from(const struct verify *v, uint32_t data)
{
    uint32_t low = 0, high = v->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (v->followed[middle] < data)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void reader_item(struct verify *v, uint32_t chunk, uint32_t at)
{
    struct verify_item *item = list_add(v, &v->items);
    if (item)
        *item = (struct verify_item){chunk, at};
}

/* Lists those of the step's chunks that are followed. Returns how many. */
static uint32_t reader_items(struct verify *v, const struct disti_plan *plan,
                             const struct disti_step *step)
{
    size_t before = v->items.count;
    if (step->list != DISTI_NO_LIST) {
        for (uint32_t i = 0; i < step->chunks; i++) {
            uint32_t data = disti_step_data(plan, step, i), chunk = reader_from(v, data);
            if (chunk < v->count && v->followed[chunk] == data)
                reader_item(v, chunk, i);
        }
    } else {
        for (uint32_t chunk = reader_from(v, step->first);
             chunk < v->count && v->followed[chunk] - step->first < step->chunks; chunk++)
            reader_item(v, chunk, v->followed[chunk] - step->first);
    }
    return (uint32_t)(v->items.count - before);
}

/* A message is about each chunk once. */
static bool reader_once(struct verify *v, uint32_t step)
{
    for (uint32_t i = 0; i < verify_step(v, step)->items; i++) {
        uint32_t chunk = verify_items(v, step)[i].chunk;
        if (v->seen[chunk] == step + 1)
            return disti_verify_fault(v, step, "its data has chunk %u twice", v->followed[chunk]);
        v->seen[chunk] = step + 1;
    }
    return true;
}

static void reader_message(struct verify *v, const struct reader *r, const struct disti_lane *lane,
                           const struct disti_step *step, uint32_t number)
{
    bool sends = step->kind == DISTI_SEND;
    uint32_t own = (uint32_t)r->plan->rank, peer = (uint32_t)step->peer;
    uint32_t *counter = collect_counter(v, lane, step);
    struct verify_message *message =
        number == VERIFY_NONE ? NULL : list_add(v, sends ? &v->sends : &v->recvs);
    if (message)
        *message = (struct verify_message){sends ? own : peer, sends ? peer : own, lane->channel,
                                           *counter, number};
    ++*counter;
    v->verdict->messages += sends;
    v->verdict->chunks_sent += sends ? step->chunks : 0;
}

/* Keeps the step if it handles chunks that are followed. */
static bool reader_step(struct verify *v, struct reader *r, const struct disti_lane *lane,
                        uint32_t at, uint32_t lane_number)
{
    const struct disti_step *step = &r->plan->steps[at];
    uint32_t first = (uint32_t)v->items.count, items = reader_items(v, r->plan, step);
    struct verify_step *own = items ? list_add(v, &v->steps) : NULL;
    r->kept[at] = own ? (uint32_t)v->steps.count - 1 : VERIFY_NONE;
    r->before[at] = own ? at : at > lane->first ? r->before[at - 1] : VERIFY_NONE;
    if (own)
        *own = (struct verify_step){.rank = (uint32_t)r->plan->rank,
                                    .lane = lane_number,
                                    .index = at - lane->first,
                                    .first = step->first,
                                    .first_item = first,
                                    .items = items,
                                    .match = VERIFY_NONE,
                                    .peer = step->peer,
                                    .dst = step->dst,
                                    .src = step->src,
                                    .kind = step->kind,
                                    .finish = step->finish};
    if (disti_step_talks(step))
        reader_message(v, r, lane, step, r->kept[at]);
    return !own || v->lost || step->list == DISTI_NO_LIST || reader_once(v, r->kept[at]);
}

static bool reader_lane(struct verify *v, struct reader *r, const struct disti_lane *lane)
{
    uint32_t first = (uint32_t)v->steps.count, number = (uint32_t)v->lanes.count;
    struct verify_lane *own = list_add(v, &v->lanes);
    bool good = own;
    if (own)
        *own = (struct verify_lane){.first = first};
    for (uint32_t i = 0; i < lane->count && good; i++)
        good = reader_step(v, r, lane, lane->first + i, number);
    if (own)
        verify_lane(v, number)->count = (uint32_t)v->steps.count - first;
    return good && !v->lost;
}

/* ---- waits ---- */

/* Most steps wait for nothing, and are passed over. */
static void reader_waits(struct reader *r, const struct disti_lane *lane)
{
    uint32_t next = lane->first + lane->count;
    for (uint32_t at = next; at-- > lane->first;) {
        if (r->plan->steps[at].wait_lane != DISTI_NO_LANE)
            next = at;
        r->waits[at] = next;
    }
}

/* Notes the kept steps that end before `mark` has ended, but for those known for this lane. */
static void reader_cover(struct verify *v, struct reader *r, uint32_t lane, struct reader_wait mark)
{
    uint32_t depth = 0;
    r->stack[depth++] = mark;
    while (depth > 0) {
        mark = r->stack[--depth];
        const struct disti_lane *other = &r->plan->lanes[mark.lane];
        if (r->stamp[mark.lane] != lane + 1)
            r->covered[mark.lane] = 0;
        r->stamp[mark.lane] = lane + 1;
        uint32_t from = r->covered[mark.lane], before = r->before[other->first + mark.step];
        if (mark.step < from)
            continue;
        r->covered[mark.lane] = mark.step + 1;
        if (before != VERIFY_NONE && before - other->first >= from) {
            uint32_t *wait = list_add(v, &v->waits);
            if (wait)
                *wait = r->kept[before];
            from = before - other->first + 1;
        }
        uint32_t end = other->first + mark.step + 1;
        for (uint32_t at = other->first + from; at < end && (at = r->waits[at]) < end; at++) {
            const struct disti_step *step = &r->plan->steps[at];
            r->stack[depth++] = (struct reader_wait){step->wait_lane, step->wait_step};
        }
    }
}

static void reader_lane_waits(struct verify *v, struct reader *r, uint32_t l)
{
    const struct disti_lane *lane = &r->plan->lanes[l];
    uint32_t first = (uint32_t)v->waits.count;
    for (uint32_t i = 0; i < lane->count; i++) {
        const struct disti_step *step = &r->plan->steps[lane->first + i];
        uint32_t kept = r->kept[lane->first + i];
        if (step->wait_lane != DISTI_NO_LANE)
            reader_cover(v, r, l, (struct reader_wait){step->wait_lane, step->wait_step});
        if (kept == VERIFY_NONE || v->lost)
            continue;
        verify_step(v, kept)->first_wait = first;
        verify_step(v, kept)->waits = (uint32_t)v->waits.count - first;
        first = (uint32_t)v->waits.count;
    }
}

/* ---- all ---- */

static bool reader_allocate(struct reader *r)
{
    const struct disti_plan *plan = r->plan;
    r->kept = malloc((plan->step_count + 1) * sizeof(*r->kept));
    r->before = malloc((plan->step_count + 1) * sizeof(*r->before));
    r->waits = malloc((plan->step_count + 1) * sizeof(*r->waits));
    r->stack = malloc((plan->step_count + 2) * sizeof(*r->stack));
    r->covered = calloc(plan->lane_count + 1, sizeof(*r->covered));
    r->stamp = calloc(plan->lane_count + 1, sizeof(*r->stamp));
    return r->kept && r->before && r->waits && r->stack && r->covered && r->stamp;
}

static void reader_free(struct reader *r)
{
    free(r->kept);
    free(r->before);
    free(r->waits);
    free(r->stack);
    free(r->covered);
    free(r->stamp);
}

bool disti_verify_collect(struct verify *v, const struct disti_plan *plan)
{
    struct reader r = {.plan = plan};
    struct verify_rank *rank = &v->rank[plan->rank];
    v->lost = !reader_allocate(&r);
    bool good = !v->lost;
    for (uint32_t l = 0; l < plan->lane_count && good; l++)
        good = reader_lane(v, &r, &plan->lanes[l]);
    for (uint32_t l = 0; l < plan->lane_count && good; l++)
        reader_waits(&r, &plan->lanes[l]);
    for (uint32_t l = 0; l < plan->lane_count && good; l++)
        reader_lane_waits(v, &r, l);
    reader_free(&r);
    collect_counters_clear(v, plan);
    rank[1] = (struct verify_rank){.first_lane = (uint32_t)v->lanes.count,
                                   .first_step = (uint32_t)v->steps.count,
                                   .first_slot = rank[0].first_slot + plan->scratch_chunks};
    return good && !v->lost;
}
