/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verifier for many ranks: of each plan it keeps only the steps that handle some chunks of the
 * data, so that plans need not be in memory all at once.
 *
 *   lane 0   [a]   b    c   [d]        kept: a, d, f. That d comes after f is found by going back
 *                  |                   from c, through e, which is not kept, to f.
 *   lane 1    f    e
 */
#include "verify/sample.h"

#include "base/log.h"
#include "topology/topology.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the steps of a usual algorithm so many handle a chunk on each rank. */
#define SAMPLE_STEPS_EACH 4
/* Steps that are kept at most, about: 250 MB. */
#define SAMPLE_STEPS (UINT32_C(1) << 22)

bool disti_sample_fault(struct sample *s, const char *format, ...)
{
    va_list arguments;
    if (!s->verdict->ok)
        return false;
    s->verdict->ok = false;
    va_start(arguments, format);
    vsnprintf(s->verdict->text, sizeof(s->verdict->text), format, arguments);
    va_end(arguments);
    return false;
}

/* ---- lists ---- */

/* A new item at the end, not set; NULL: no memory, which is remembered. */
static void *list_add(struct sample *s, struct sample_list *list)
{
    if (list->count == list->room) {
        size_t room = list->room * 2 + 1024;
        void *items = realloc(list->items, room * list->size);
        if (!items) {
            s->lost = true;
            return NULL;
        }
        list->items = items;
        list->room = room;
    }
    return (char *)list->items + list->count++ * list->size;
}

/* The first of the sample's chunks that is not before this one. */
static uint32_t sample_from(const struct sample *s, uint32_t chunk)
{
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (s->list[middle] < chunk)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- messages' numbers ---- */

/* Those of one plan at a time; all 0 between two plans. */
static bool sample_counters(struct sample *s, const struct disti_plan *plan)
{
    uint32_t channels = 1;
    for (uint32_t l = 0; l < plan->lane_count; l++)
        if (plan->lanes[l].channel >= channels)
            channels = plan->lanes[l].channel + 1u;
    if (channels <= s->channels)
        return true;
    free(s->counters);
    s->counters = calloc((size_t)2 * channels * s->ranks, sizeof(*s->counters));
    s->channels = s->counters ? channels : 0;
    return s->counters != NULL;
}

static uint32_t *sample_counter(const struct sample *s, const struct disti_lane *lane,
                                const struct disti_step *step)
{
    uint32_t direction = step->kind == DISTI_SEND ? 0 : s->channels;
    return &s->counters[(size_t)(direction + lane->channel) * s->ranks + (uint32_t)step->peer];
}

/* What was counted, one by one: of many ranks a plan talks to few. */
static void sample_counters_clear(const struct sample *s, const struct disti_plan *plan)
{
    for (uint32_t l = 0; l < plan->lane_count; l++)
        for (uint32_t i = 0; i < plan->lanes[l].count; i++) {
            const struct disti_step *step = &plan->steps[plan->lanes[l].first + i];
            if (disti_step_talks(step))
                *sample_counter(s, &plan->lanes[l], step) = 0;
        }
}

/* ---- one plan ---- */

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

static uint32_t reader_items(struct sample *s, const struct disti_plan *plan,
                             const struct disti_step *step)
{
    size_t before = s->items.count;
    bool listed = step->list != DISTI_NO_LIST;
    for (uint32_t i = 0; listed && i < step->chunks; i++) {
        uint32_t data = disti_step_data(plan, step, i), at = sample_from(s, data);
        struct sample_item *item =
            at < s->count && s->list[at] == data ? list_add(s, &s->items) : NULL;
        if (item)
            *item = (struct sample_item){at, i};
    }
    for (uint32_t at = listed ? s->count : sample_from(s, step->first);
         at < s->count && s->list[at] - step->first < step->chunks; at++) {
        struct sample_item *item = list_add(s, &s->items);
        if (item)
            *item = (struct sample_item){at, s->list[at] - step->first};
    }
    return (uint32_t)(s->items.count - before);
}

static void reader_message(struct sample *s, struct reader *r, const struct disti_lane *lane,
                           const struct disti_step *step, uint32_t number)
{
    bool sends = step->kind == DISTI_SEND;
    uint32_t own = (uint32_t)r->plan->rank, peer = (uint32_t)step->peer;
    uint32_t *counter = sample_counter(s, lane, step);
    struct sample_message *message =
        number == SAMPLE_NONE ? NULL : list_add(s, sends ? &s->sends : &s->recvs);
    if (message)
        *message = (struct sample_message){sends ? own : peer, sends ? peer : own, lane->channel,
                                           *counter, number};
    ++*counter;
}

/* Keeps the step if it handles something of the sample. */
static void reader_step(struct sample *s, struct reader *r, const struct disti_lane *lane,
                        uint32_t at, uint32_t lane_number)
{
    const struct disti_step *step = &r->plan->steps[at];
    uint32_t first = (uint32_t)s->items.count, items = reader_items(s, r->plan, step);
    struct sample_step *own = items ? list_add(s, &s->steps) : NULL;
    r->kept[at] = own ? (uint32_t)s->steps.count - 1 : SAMPLE_NONE;
    r->before[at] = own ? at : at > lane->first ? r->before[at - 1] : SAMPLE_NONE;
    if (own)
        *own = (struct sample_step){.rank = (uint32_t)r->plan->rank,
                                    .lane = lane_number,
                                    .first_item = first,
                                    .items = items,
                                    .match = SAMPLE_NONE,
                                    .dst = step->dst,
                                    .src = step->src,
                                    .kind = step->kind,
                                    .finish = step->finish};
    if (disti_step_talks(step))
        reader_message(s, r, lane, step, r->kept[at]);
}

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
static void reader_cover(struct sample *s, struct reader *r, uint32_t lane, struct reader_wait mark)
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
        if (before != SAMPLE_NONE && before - other->first >= from) {
            uint32_t *pred = list_add(s, &s->preds);
            if (pred)
                *pred = r->kept[before];
            from = before - other->first + 1;
        }
        uint32_t end = other->first + mark.step + 1;
        for (uint32_t at = other->first + from; at < end && (at = r->waits[at]) < end; at++) {
            const struct disti_step *step = &r->plan->steps[at];
            r->stack[depth++] = (struct reader_wait){step->wait_lane, step->wait_step};
        }
    }
}

static void reader_lane_preds(struct sample *s, struct reader *r, uint32_t l)
{
    const struct disti_lane *lane = &r->plan->lanes[l];
    uint32_t first = (uint32_t)s->preds.count;
    for (uint32_t i = 0; i < lane->count; i++) {
        const struct disti_step *step = &r->plan->steps[lane->first + i];
        uint32_t kept = r->kept[lane->first + i];
        if (step->wait_lane != DISTI_NO_LANE)
            reader_cover(s, r, l, (struct reader_wait){step->wait_lane, step->wait_step});
        if (kept == SAMPLE_NONE || s->lost)
            continue;
        sample_step(s, kept)->first_pred = first;
        sample_step(s, kept)->preds = (uint32_t)s->preds.count - first;
        first = (uint32_t)s->preds.count;
    }
}

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

static void sample_plan(struct sample *s, const struct disti_plan *plan)
{
    struct reader r = {.plan = plan};
    if (!reader_allocate(&r) || !sample_counters(s, plan))
        s->lost = true;
    for (uint32_t l = 0; l < plan->lane_count && !s->lost; l++) {
        const struct disti_lane *lane = &plan->lanes[l];
        uint32_t first = (uint32_t)s->steps.count;
        struct sample_lane *own = list_add(s, &s->lanes);
        for (uint32_t i = 0; i < lane->count && own; i++)
            reader_step(s, &r, lane, lane->first + i, (uint32_t)s->lanes.count - 1);
        if (own)
            *own = (struct sample_lane){
                .first = first, .count = (uint32_t)s->steps.count - first, .waiters = SAMPLE_NONE};
    }
    for (uint32_t l = 0; l < plan->lane_count && !s->lost; l++)
        reader_waits(&r, &plan->lanes[l]);
    for (uint32_t l = 0; l < plan->lane_count && !s->lost; l++)
        reader_lane_preds(s, &r, l);
    reader_free(&r);
    if (!s->lost)
        sample_counters_clear(s, plan);
    s->first_slot[plan->rank + 1] = s->first_slot[plan->rank] + plan->scratch_chunks;
}

/* ---- all ---- */

/* As many as fit, spread evenly; all, if they fit. */
static bool sample_choose(struct sample *s, const struct disti_plan *plan)
{
    uint64_t most = SAMPLE_STEPS / SAMPLE_STEPS_EACH / s->ranks;
    s->data_chunks = disti_plan_data_chunks(plan);
    s->chunks = plan->chunks;
    s->count = s->data_chunks < most ? s->data_chunks : (uint32_t)(most ? most : 1);
    s->list = malloc(s->count * sizeof(*s->list));
    for (uint32_t i = 0; i < s->count && s->list; i++)
        s->list[i] = (uint32_t)((uint64_t)i * s->data_chunks / s->count);
    s->verdict->all = s->count == s->data_chunks;
    return s->list != NULL;
}

static dist_status sample_plans(struct sample *s, const struct disti_algorithm *algorithm,
                                const struct disti_shape *shape)
{
    dist_status status = DIST_OK;
    for (int rank = 0; rank < shape->ranks && status == DIST_OK && !s->lost; rank++) {
        struct disti_shape own = *shape;
        struct disti_plan *plan = NULL;
        own.rank = rank;
        status = disti_plan_write(algorithm, &own, &plan);
        if (status != DIST_OK)
            return status;
        if (rank == 0 && !sample_choose(s, plan))
            s->lost = true;
        if (!s->lost)
            sample_plan(s, plan);
        disti_plan_free(plan);
    }
    return status;
}

static bool sample_memory(struct sample *s)
{
    size_t slots = s->first_slot[s->ranks] + 1;
    s->cells = calloc((size_t)s->ranks * 2 * s->count, sizeof(*s->cells));
    s->scratch = calloc(slots, sizeof(*s->scratch));
    s->slot_chunk = calloc(slots, sizeof(*s->slot_chunk));
    return s->cells && s->scratch && s->slot_chunk;
}

static void sample_free(struct sample *s)
{
    free(s->list);
    free(s->counters);
    free(s->steps.items);
    free(s->items.items);
    free(s->preds.items);
    free(s->lanes.items);
    free(s->sends.items);
    free(s->recvs.items);
    free(s->cells);
    free(s->scratch);
    free(s->slot_chunk);
    free(s->first_slot);
}

dist_status disti_verify_sample(const struct disti_algorithm *algorithm,
                                const struct disti_shape *shape, struct disti_verdict *verdict_p)
{
    struct disti_verdict verdict = {.ok = true};
    struct sample s = {.collective = algorithm->collective,
                       .ranks = (uint32_t)shape->ranks,
                       .root = (uint32_t)shape->root,
                       .steps.size = sizeof(struct sample_step),
                       .items.size = sizeof(struct sample_item),
                       .preds.size = sizeof(uint32_t),
                       .lanes.size = sizeof(struct sample_lane),
                       .sends.size = sizeof(struct sample_message),
                       .recvs.size = sizeof(struct sample_message),
                       .verdict = &verdict};
    dist_status status = DIST_OK;
    s.first_slot = calloc(s.ranks + 1, sizeof(*s.first_slot));
    if (s.first_slot)
        status = sample_plans(&s, algorithm, shape);
    if (status == DIST_OK) {
        s.lost = s.lost || !s.first_slot || !sample_memory(&s);
        if (!s.lost)
            disti_sample_run(&s);
        if (s.lost)
            status = disti_fail(DIST_ERR_NO_MEMORY, "no memory to verify the plans of %d ranks",
                                shape->ranks);
    }
    sample_free(&s);
    if (status == DIST_OK)
        *verdict_p = verdict;
    return status;
}
