/* SPDX-License-Identifier: BSD-3-Clause */
/* Is a plan well formed? */
#include "plan/plan.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* What is being looked at, and where to say what is wrong with it. */
struct check {
    const struct disti_plan *plan;
    uint32_t lane, step;
    char *text;
    size_t size;
};

__attribute__((format(printf, 2, 3))) static bool check_fault(const struct check *check,
                                                              const char *format, ...)
{
    char what[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    snprintf(check->text, check->size, "rank %d, lane %u, step %u: %s", check->plan->rank,
             check->lane, check->step, what);
    return false;
}

/* Have all chunks the same size? Then slots of scratch are exact. */
static bool check_equal(const struct disti_plan *plan)
{
    return plan->chunks == 1 && !disti_collective_uneven(plan->collective);
}

/*
 * Chunks that follow each other in the space do so in the data: if the first and the last of a
 * range are right all are. Only what an all-to-all receives lies otherwise.
 */
static uint32_t check_stride(const struct disti_plan *plan, const struct disti_step *step)
{
    bool turned =
        plan->collective == DIST_COLL_ALL_TO_ALL || plan->collective == DIST_COLL_ALL_TO_ALL_V;
    return turned || step->list != DISTI_NO_LIST || step->chunks < 2 ? 1 : step->chunks - 1;
}

/* Does chunk i of the step's range lie at the reference's i-th chunk? */
static bool check_data(const struct check *check, const struct disti_step *step,
                       struct disti_chunk_ref ref, const char *name)
{
    uint32_t stride = check_stride(check->plan, step);
    for (uint32_t i = 0; i < step->chunks; i += stride) {
        struct disti_chunk_ref at = {ref.chunk + i, ref.space};
        uint32_t holds = disti_plan_data(check->plan, at);
        uint32_t data = disti_step_data(check->plan, step, i);
        if (holds != data)
            return check_fault(check, "%s holds chunk %u, the step's data is chunk %u", name, holds,
                               data);
    }
    return true;
}

/* Is [chunk, chunk + chunks) inside the space, without a gap, and where the step's data are? */
static bool check_ref(const struct check *check, const struct disti_step *step,
                      struct disti_chunk_ref ref, const char *name)
{
    const struct disti_plan *plan = check->plan;
    if (ref.space > DISTI_SCRATCH)
        return check_fault(check, "%s is in no space there is (%d)", name, ref.space);
    bool scratch = ref.space == DISTI_SCRATCH;
    uint64_t end = (uint64_t)ref.chunk + step->chunks;
    uint64_t limit = scratch ? plan->scratch_chunks : disti_plan_chunks(plan, ref.space);
    if (end > limit)
        return check_fault(check, "%s ends at chunk %llu, its space at %llu", name,
                           (unsigned long long)end, (unsigned long long)limit);
    if (scratch && step->chunks > 1 && !check_equal(plan))
        return check_fault(check, "%s is several slots of scratch, whose chunks may differ in size",
                           name);
    if (!scratch && disti_collective_uneven(plan->collective) &&
        ref.chunk / plan->chunks != (end - 1) / plan->chunks)
        return check_fault(check, "%s goes over the end of a block, and these may lie anywhere",
                           name);
    return scratch || check_data(check, step, ref, name);
}

/* The step's data: inside what there is, and a list only where chunks are alike. */
static bool check_range(const struct check *check, const struct disti_step *step)
{
    const struct disti_plan *plan = check->plan;
    uint64_t end = (uint64_t)step->list + step->chunks;
    if (step->list != DISTI_NO_LIST && (!check_equal(plan) || end > plan->data_count))
        return check_fault(check, "its data is a list of chunks that %s",
                           check_equal(plan) ? "does not exist" : "may differ in size");
    for (uint32_t i = 0; i < step->chunks; i += check_stride(plan, step))
        if (disti_step_data(plan, step, i) >= disti_plan_data_chunks(plan))
            return check_fault(check, "chunk %u of its data does not exist",
                               disti_step_data(plan, step, i));
    return step->chunks > 0 || check_fault(check, "it has no data");
}

static bool check_wait(const struct check *check, const struct disti_step *step)
{
    const struct disti_plan *plan = check->plan;
    if (step->wait_lane == DISTI_NO_LANE)
        return true;
    if (step->wait_lane >= plan->lane_count ||
        step->wait_step >= plan->lanes[step->wait_lane].count)
        return check_fault(check, "waits for lane %u, step %u, which does not exist",
                           step->wait_lane, step->wait_step);
    return true;
}

/* In a _V form a rank knows the size of what IN or OUT holds, of nothing else. */
static bool check_known(const struct check *check, const struct disti_step *step)
{
    const struct disti_plan *plan = check->plan;
    struct disti_chunk_ref ref;
    return !disti_collective_uneven(plan->collective) ||
           disti_plan_locate(plan, DISTI_IN, step->first, &ref) ||
           disti_plan_locate(plan, DISTI_OUT, step->first, &ref) ||
           check_fault(check, "this rank does not know the size of chunk %u", step->first);
}

static bool check_peer(const struct disti_plan *plan, int peer)
{
    return peer >= 0 && peer < plan->ranks && peer != plan->rank;
}

static bool check_step(const struct check *check, const struct disti_step *step)
{
    const struct disti_plan *plan = check->plan;
    bool reads = step->kind != DISTI_RECV, writes = step->kind != DISTI_SEND;
    if (step->kind > DISTI_COPY)
        return check_fault(check, "is of kind %d, which does not exist", step->kind);
    if (step->finish && step->kind != DISTI_RECV_REDUCE && step->kind != DISTI_REDUCE)
        return check_fault(check, "finishes, but reduces nothing");
    if (disti_step_talks(step) && !check_peer(plan, step->peer))
        return check_fault(check, "its peer is rank %d of %d", step->peer, plan->ranks);
    if (writes && step->dst.space == DISTI_IN)
        return check_fault(check, "writes the input");
    return check_range(check, step) && check_known(check, step) &&
           (!reads || check_ref(check, step, step->src, "its source")) &&
           (!writes || check_ref(check, step, step->dst, "its destination")) &&
           check_wait(check, step);
}

/* A lane has messages to or from a peer on its channel. */
struct check_end {
    uint64_t key; /* channel, peer, direction */
    uint32_t lane, step;
};

static int check_compare(const void *left, const void *right)
{
    const struct check_end *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->lane != b->lane ? (a->lane < b->lane ? -1 : 1)
                              : (a->step > b->step) - (a->step < b->step);
}

/* Most lanes talk to few peers in turn: what was noted just now is not noted again. */
static void check_note(const struct check *check, const struct disti_step *step,
                       struct check_end *ends, uint32_t *count)
{
    uint64_t channel = check->plan->lanes[check->lane].channel, sends = step->kind == DISTI_SEND;
    struct check_end end = {(channel << 32 | (uint32_t)step->peer) << 1 | sends, check->lane,
                            check->step};
    for (uint32_t back = 1; back <= 4 && back <= *count; back++)
        if (ends[*count - back].key == end.key && ends[*count - back].lane == end.lane)
            return;
    ends[(*count)++] = end;
}

static bool check_lanes(struct check *check, struct check_end *ends, uint32_t *count)
{
    const struct disti_plan *plan = check->plan;
    for (check->lane = 0; check->lane < plan->lane_count; check->lane++) {
        const struct disti_lane *lane = &plan->lanes[check->lane];
        for (check->step = 0; check->step < lane->count; check->step++) {
            const struct disti_step *step = &plan->steps[lane->first + check->step];
            if (!check_step(check, step))
                return false;
            if (disti_step_talks(step))
                check_note(check, step, ends, count);
        }
    }
    return true;
}

/* Messages to one peer on one channel come from one lane, and from one peer go to one. */
static bool check_ends(struct check *check, struct check_end *ends, uint32_t count)
{
    if (count > 0)
        qsort(ends, count, sizeof(*ends), check_compare);
    for (uint32_t i = 1; i < count; i++) {
        if (ends[i].key != ends[i - 1].key || ends[i].lane == ends[i - 1].lane)
            continue;
        check->lane = ends[i].lane;
        check->step = ends[i].step;
        return check_fault(check, "lane %u also has messages %s rank %u on channel %u",
                           ends[i - 1].lane, ends[i].key & 1 ? "to" : "from",
                           (uint32_t)(ends[i].key >> 1), (uint32_t)(ends[i].key >> 33));
    }
    return true;
}

/* Do the lanes follow each other without a gap? */
static bool check_layout(const struct check *check)
{
    const struct disti_plan *plan = check->plan;
    uint64_t end = 0;
    for (uint32_t l = 0; l < plan->lane_count; l++) {
        if (plan->lanes[l].first != end)
            return check_fault(check, "lane %u begins at step %u of the plan, not at %llu", l,
                               plan->lanes[l].first, (unsigned long long)end);
        end += plan->lanes[l].count;
    }
    if (end != plan->step_count)
        return check_fault(check, "the lanes have %llu steps, the plan %u", (unsigned long long)end,
                           plan->step_count);
    return true;
}

dist_status disti_plan_check(const struct disti_plan *plan, char *text, size_t size)
{
    struct check check = {.plan = plan, .text = text, .size = size};
    if (!check_layout(&check))
        return DIST_ERR_INTERNAL;
    uint32_t count = 0;
    struct check_end *ends = malloc(((size_t)plan->step_count + 1) * sizeof(*ends));
    if (!ends)
        return DIST_ERR_NO_MEMORY;
    bool sound = check_lanes(&check, ends, &count) && check_ends(&check, ends, count);
    free(ends);
    return sound ? DIST_OK : DIST_ERR_INTERNAL;
}
