/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: where chunks lie, and whether a plan is well formed. */
#include "collectives/plan_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void disti_plan_free(struct disti_plan *plan)
{
    free(plan);
}

/* Where chunk c begins: the first count % chunks chunks of a block are one element longer. */
static size_t plan_offset(const struct disti_plan *plan, size_t count, uint32_t chunk)
{
    size_t block = chunk / plan->chunks;
    size_t part = chunk % plan->chunks;
    size_t size = count / plan->chunks;
    size_t longer = count % plan->chunks;
    return block * count + part * size + (part < longer ? part : longer);
}

size_t disti_chunk_extent(const struct disti_plan *plan, size_t count, uint32_t first,
                          uint32_t chunks, size_t *offset_p)
{
    size_t begin = plan_offset(plan, count, first);
    if (offset_p)
        *offset_p = begin;
    return plan_offset(plan, count, first + chunks) - begin;
}

size_t disti_slot_elements(const struct disti_plan *plan, size_t count)
{
    return count / plan->chunks + (count % plan->chunks != 0);
}

uint32_t disti_plan_out_chunks(const struct disti_plan *plan)
{
    return plan->collective == DIST_COLL_ALL_GATHER ? plan->chunks * (uint32_t)plan->ranks
                                                    : plan->chunks;
}

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

/* Is [at, at + chunks) inside the space, and is it the place of the data that it is said to hold?
 */
static bool check_place(const struct check *check, const struct disti_step *step,
                        struct disti_at place, const char *name)
{
    const struct disti_plan *plan = check->plan;
    uint64_t end = (uint64_t)place.at + step->chunks;
    uint64_t limit = plan->chunks, data = place.at;
    switch (place.space) {
    case DISTI_IN:
        if (plan->collective == DIST_COLL_ALL_GATHER)
            data += (uint64_t)plan->rank * plan->chunks;
        break;
    case DISTI_OUT:
        limit = disti_plan_out_chunks(plan);
        break;
    case DISTI_SCRATCH:
        limit = plan->scratch_chunks;
        data = step->first;
        break;
    default:
        return check_fault(check, "%s is in no space there is (%d)", name, place.space);
    }
    if (end > limit)
        return check_fault(check, "%s ends at chunk %llu, its space at %llu", name,
                           (unsigned long long)end, (unsigned long long)limit);
    if (data != step->first)
        return check_fault(check, "%s holds chunk %llu, the step's data is chunk %u", name,
                           (unsigned long long)data, step->first);
    return true;
}

static bool check_wait(const struct check *check, const struct disti_step *step)
{
    const struct disti_plan *plan = check->plan;
    if (step->wait_lane == DISTI_NO_LANE)
        return true;
    if (step->wait_lane >= plan->lane_count ||
        step->wait_step >= plan->lanes[step->wait_lane].count)
        return check_fault(check, "waits for lane %u, step %u, which is not there", step->wait_lane,
                           step->wait_step);
    return true;
}

static bool check_step(const struct check *check, const struct disti_step *step)
{
    const struct disti_plan *plan = check->plan;
    bool reads = step->kind != DISTI_RECV, writes = step->kind != DISTI_SEND;
    if (step->kind > DISTI_COPY)
        return check_fault(check, "is of no kind there is (%d)", step->kind);
    if (step->finish && step->kind != DISTI_RECV_REDUCE && step->kind != DISTI_REDUCE)
        return check_fault(check, "finishes, but reduces nothing");
    if (disti_step_talks(step) &&
        (step->peer < 0 || step->peer >= plan->ranks || step->peer == plan->rank))
        return check_fault(check, "its peer is rank %d of %d", step->peer, plan->ranks);
    if (step->chunks == 0 || (uint64_t)step->first + step->chunks > disti_plan_out_chunks(plan))
        return check_fault(check, "its data is chunks %u to %u", step->first,
                           step->first + step->chunks);
    if (writes && step->dst.space == DISTI_IN)
        return check_fault(check, "writes the input");
    return (!reads || check_place(check, step, step->src, "its source")) &&
           (!writes || check_place(check, step, step->dst, "its destination")) &&
           check_wait(check, step);
}

/*
 * Messages to one peer on one channel come from one lane, and from one peer go to one: owner[]
 * remembers which, by channel, peer and direction.
 */
static bool check_talk(const struct check *check, const struct disti_step *step, uint16_t *owner)
{
    const struct disti_plan *plan = check->plan;
    if (!disti_step_talks(step))
        return true;
    size_t channel = plan->lanes[check->lane].channel;
    bool sends = step->kind == DISTI_SEND;
    uint16_t *seen = &owner[(channel * (size_t)plan->ranks + (size_t)step->peer) * 2 + sends];
    if (*seen != DISTI_NO_LANE && *seen != check->lane)
        return check_fault(check, "lane %u too has messages %s rank %d on channel %zu", *seen,
                           sends ? "to" : "from", step->peer, channel);
    *seen = (uint16_t)check->lane;
    return true;
}

static bool check_lanes(struct check *check, uint16_t *owner)
{
    const struct disti_plan *plan = check->plan;
    for (check->lane = 0; check->lane < plan->lane_count; check->lane++) {
        const struct disti_lane *lane = &plan->lanes[check->lane];
        for (check->step = 0; check->step < lane->count; check->step++) {
            const struct disti_step *step = &plan->steps[lane->first + check->step];
            if (!check_step(check, step) || !check_talk(check, step, owner))
                return false;
        }
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
            return check_fault(check, "lane %u begins at step %u of all, not at %llu", l,
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
    size_t channels = 1;
    for (uint32_t l = 0; l < plan->lane_count; l++)
        channels = plan->lanes[l].channel >= channels ? plan->lanes[l].channel + 1u : channels;
    size_t owners = channels * (size_t)plan->ranks * 2;
    uint16_t *owner = malloc(owners * sizeof(*owner));
    if (!owner)
        return DIST_ERR_NO_MEMORY;
    for (size_t i = 0; i < owners; i++)
        owner[i] = DISTI_NO_LANE;
    bool sound = check_lanes(&check, owner);
    free(owner);
    return sound ? DIST_OK : DIST_ERR_INTERNAL;
}
