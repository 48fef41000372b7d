/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier: lists all ranks' steps, matches their messages, and judges what the run left. */
#include "verify/internal.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void disti_verify_describe(const struct verify *v, uint32_t step, char *text, size_t size)
{
    static const char *const names[] = {"SEND to", "RECV from", "RECV_REDUCE from", "REDUCE",
                                        "COPY"};
    const struct verify_lane *lane = &v->lanes[v->lane_of[step]];
    const struct disti_step *s = v->steps[step];
    char peer[24] = "";
    if (disti_step_talks(s))
        snprintf(peer, sizeof(peer), " rank %d", s->peer);
    snprintf(text, size, "rank %d, lane %u, step %u (%s%s, chunk %u)", lane->rank,
             v->lane_of[step] - v->rank[lane->rank].first_lane, step - lane->first, names[s->kind],
             peer, s->first);
}

bool disti_verify_fault(struct verify *v, uint32_t step, const char *format, ...)
{
    struct disti_verdict *verdict = v->verdict;
    if (!verdict->ok)
        return false;
    char where[128] = "", what[320];
    if (step != VERIFY_NONE)
        disti_verify_describe(v, step, where, sizeof(where));
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    verdict->ok = false;
    snprintf(verdict->text, sizeof(verdict->text), "%s%s%s", where, *where ? ": " : "", what);
    return false;
}

/* A rank's cells are those of OUT, IN and scratch. In place IN's are OUT's where OUT has them. */
struct verify_cell *disti_verify_cell_at(const struct verify *v, int rank,
                                         struct disti_chunk_ref place)
{
    const struct disti_plan *plan = v->plans[rank];
    if (place.space == DISTI_IN && v->aliased)
        disti_plan_place(plan, DISTI_OUT, disti_plan_data(plan, place), &place);
    size_t cell = place.at;
    if (place.space != DISTI_OUT)
        cell += disti_plan_chunks(plan, DISTI_OUT);
    if (place.space == DISTI_SCRATCH)
        cell += disti_plan_chunks(plan, DISTI_IN);
    return &v->cells[v->rank[rank].first_cell + cell];
}

uint32_t disti_verify_data(const struct verify *v, uint32_t step, uint32_t i)
{
    return disti_step_data(v->plans[v->lanes[v->lane_of[step]].rank], v->steps[step], i);
}

uint32_t disti_verify_waited(const struct verify *v, uint32_t step)
{
    const struct disti_step *s = v->steps[step];
    if (s->wait_lane == DISTI_NO_LANE)
        return VERIFY_NONE;
    const struct verify_rank *rank = &v->rank[v->lanes[v->lane_of[step]].rank];
    return v->lanes[rank->first_lane + s->wait_lane].first + s->wait_step;
}

/* Spreads all bits over all (splitmix64). */
static uint64_t verify_mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t disti_verify_leaf(int rank)
{
    return verify_mix((uint64_t)rank + 1);
}

uint64_t disti_verify_added(uint64_t one, uint64_t other)
{
    return verify_mix(verify_mix(one) + verify_mix(other) + 1);
}

/* All plans must be for the same thing, each well formed. */
static bool verify_plans(struct verify *v, dist_status *status_p)
{
    const struct disti_plan *one = v->plans[0];
    for (int rank = 0; rank < v->ranks; rank++) {
        const struct disti_plan *plan = v->plans[rank];
        if (plan->collective != one->collective || plan->chunks != one->chunks ||
            plan->root != one->root || plan->ranks != v->ranks || plan->rank != rank)
            return disti_verify_fault(
                v, VERIFY_NONE, "rank %d's plan does not match those of %d ranks", rank, v->ranks);
        char text[256];
        dist_status status = disti_plan_check(plan, text, sizeof(text));
        if (status == DIST_ERR_INTERNAL)
            return disti_verify_fault(v, VERIFY_NONE, "%s", text);
        if (status != DIST_OK) {
            *status_p = status;
            return false;
        }
    }
    return true;
}

/* Where each rank's lanes, steps and cells go. */
static void verify_measure(struct verify *v)
{
    v->data_chunks = disti_plan_data_chunks(v->plans[0]);
    for (int rank = 0; rank < v->ranks; rank++) {
        const struct disti_plan *plan = v->plans[rank];
        v->rank[rank] = (struct verify_rank){v->lane_count, v->step_count, v->cell_count};
        v->lane_count += plan->lane_count;
        v->step_count += plan->step_count;
        v->cell_count += (size_t)disti_plan_chunks(plan, DISTI_OUT) +
                         disti_plan_chunks(plan, DISTI_IN) + plan->scratch_chunks;
    }
}

void *disti_verify_array(size_t count, size_t size)
{
    return calloc(count + 1, size);
}

static bool verify_allocate(struct verify *v)
{
    v->lanes = disti_verify_array(v->lane_count, sizeof(*v->lanes));
    v->cells = disti_verify_array(v->cell_count, sizeof(*v->cells));
    v->steps = disti_verify_array(v->step_count, sizeof(*v->steps));
    v->lane_of = disti_verify_array(v->step_count, sizeof(*v->lane_of));
    v->match = disti_verify_array(v->step_count, sizeof(*v->match));
    v->knows = disti_verify_array(v->step_count, sizeof(*v->knows));
    v->order = disti_verify_array(v->step_count, sizeof(*v->order));
    v->when = disti_verify_array(v->step_count, sizeof(*v->when));
    return v->lanes && v->cells && v->steps && v->lane_of && v->match && v->knows && v->order &&
           v->when;
}

static void verify_free(struct verify *v)
{
    free(v->lanes);
    free(v->cells);
    free(v->steps);
    free(v->lane_of);
    free(v->match);
    free(v->knows);
    free(v->order);
    free(v->when);
}

static void verify_list(struct verify *v)
{
    for (int rank = 0; rank < v->ranks; rank++) {
        const struct disti_plan *plan = v->plans[rank];
        for (uint32_t l = 0; l < plan->lane_count; l++) {
            uint32_t lane = v->rank[rank].first_lane + l;
            uint32_t first = v->rank[rank].first_step + plan->lanes[l].first;
            v->lanes[lane] = (struct verify_lane){.rank = rank,
                                                  .first = first,
                                                  .count = plan->lanes[l].count,
                                                  .waiters = VERIFY_NONE,
                                                  .knows = UINT64_C(1) << rank};
            for (uint32_t i = 0; i < plan->lanes[l].count; i++) {
                v->lane_of[first + i] = lane;
                v->steps[first + i] = &plan->steps[plan->lanes[l].first + i];
            }
        }
    }
}

/* What the ranks have before anything happens. */
static void verify_fill(struct verify *v)
{
    for (int rank = 0; rank < v->ranks; rank++) {
        const struct disti_plan *plan = v->plans[rank];
        bool has = plan->collective != DIST_COLL_BROADCAST || rank == plan->root;
        for (uint32_t c = 0; c < disti_plan_chunks(plan, DISTI_IN) && has; c++)
            *disti_verify_cell_at(v, rank, disti_in(c)) =
                (struct verify_cell){.mask = UINT64_C(1) << rank,
                                     .sum = disti_verify_leaf(rank),
                                     .chunk = disti_plan_data(plan, disti_in(c)),
                                     .written = true};
    }
}

/* The rank whose data chunk this is, in a collective that does not reduce. */
static int verify_giver(const struct disti_plan *plan, uint32_t data)
{
    if (disti_collective_rooted(plan->collective) && disti_plan_blocks(plan, DISTI_OUT) == 1)
        return plan->root; /* broadcast, scatter */
    uint64_t blocks = disti_plan_data_blocks(plan), of_a_rank = blocks / (uint64_t)plan->ranks;
    return (int)(data / plan->chunks / of_a_rank);
}

/* Has one chunk of one rank's output what was promised? */
static bool verify_output(struct verify *v, int rank, uint32_t chunk)
{
    const struct disti_plan *plan = v->plans[rank];
    const struct verify_cell *cell = disti_verify_cell_at(v, rank, disti_out(chunk));
    uint32_t data = disti_plan_data(plan, disti_out(chunk));
    bool reduces = disti_algorithm_reduces(plan->collective);
    uint64_t mask = UINT64_MAX >> (64 - v->ranks);
    uint32_t finished = reduces && v->ranks > 1;
    if (!reduces)
        mask = UINT64_C(1) << verify_giver(plan, data);
    if (!cell->written)
        return disti_verify_fault(v, VERIFY_NONE, "rank %d: output chunk %u is never written", rank,
                                  chunk);
    if (cell->chunk != data)
        return disti_verify_fault(v, VERIFY_NONE, "rank %d: output chunk %u holds chunk %u, not %u",
                                  rank, chunk, cell->chunk, data);
    if (cell->mask != mask)
        return disti_verify_fault(
            v, VERIFY_NONE,
            "rank %d: output chunk %u holds the contributions of ranks %#llx, "
            "not %#llx",
            rank, chunk, (unsigned long long)cell->mask, (unsigned long long)mask);
    if (cell->finished != finished)
        return disti_verify_fault(v, VERIFY_NONE, "rank %d: output chunk %u was finished %u times",
                                  rank, chunk, cell->finished);
    return true;
}

/* A barrier's promise: whoever has left it knows that all have come. */
static bool verify_met(struct verify *v, int rank)
{
    uint64_t all = UINT64_MAX >> (64 - v->ranks), knows = UINT64_C(1) << rank;
    for (uint32_t l = 0; l < v->plans[rank]->lane_count; l++)
        knows |= v->lanes[v->rank[rank].first_lane + l].knows;
    if (knows != all)
        return disti_verify_fault(v, VERIFY_NONE,
                                  "rank %d passes the barrier after hearing of ranks %#llx only",
                                  rank, (unsigned long long)knows);
    return true;
}

/* The order of reproducible results, as plan.h has it. */
static uint64_t verify_order(int ranks)
{
    uint64_t sums[VERIFY_RANKS_MAX];
    int places = 1, count = 0;
    while (2 * places <= ranks)
        places *= 2;
    for (int rank = 0; rank < ranks; rank++) {
        sums[count] = disti_verify_leaf(rank);
        if (rank < 2 * (ranks - places))
            sums[count] = disti_verify_added(sums[count], disti_verify_leaf(++rank));
        count++;
    }
    for (; count > 1; count /= 2)
        for (int i = 0; i < count / 2; i++)
            sums[i] = disti_verify_added(sums[2 * i], sums[2 * i + 1]);
    return sums[0];
}

static bool verify_ordered(const struct verify *v)
{
    uint64_t order = verify_order(v->ranks);
    for (int rank = 0; rank < v->ranks; rank++)
        for (uint32_t c = 0; c < disti_plan_chunks(v->plans[rank], DISTI_OUT); c++)
            if (disti_verify_cell_at(v, rank, disti_out(c))->sum != order)
                return false;
    return disti_algorithm_reduces(v->plans[0]->collective);
}

static bool verify_result(struct verify *v)
{
    v->verdict->ordered = verify_ordered(v);
    for (int rank = 0; rank < v->ranks; rank++) {
        if (v->plans[0]->collective == DIST_COLL_BARRIER) {
            if (!verify_met(v, rank))
                return false;
            continue;
        }
        for (uint32_t chunk = 0; chunk < disti_plan_chunks(v->plans[rank], DISTI_OUT); chunk++)
            if (!verify_output(v, rank, chunk))
                return false;
    }
    return true;
}

/* A race makes the run's result meaningless, but it is the lesser news: the result comes first. */
static void verify_all(struct verify *v, dist_status *status_p)
{
    if (!verify_plans(v, status_p))
        return;
    verify_measure(v);
    if (!verify_allocate(v)) {
        *status_p = DIST_ERR_NO_MEMORY;
        return;
    }
    verify_list(v);
    verify_fill(v);
    if (disti_verify_lists(v, status_p) && disti_verify_match(v, status_p) &&
        disti_verify_run(v, status_p) && verify_result(v))
        disti_verify_races(v, status_p);
}

/* Can plans of so many ranks be verified at all? */
static dist_status verify_allowed(int ranks)
{
    if (ranks < 1 || ranks > VERIFY_RANKS_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "plans of %d ranks cannot be verified, only of 1 to %d", ranks,
                          VERIFY_RANKS_MAX);
    return DIST_OK;
}

dist_status disti_verify(struct disti_plan *const *plans, int ranks, bool in_place,
                         struct disti_verdict *verdict_p)
{
    dist_status status = verify_allowed(ranks);
    if (status != DIST_OK)
        return status;
    struct disti_verdict verdict = {.ok = true, .all = true};
    struct verify v = {.plans = plans,
                       .ranks = ranks,
                       .aliased = in_place || plans[0]->collective == DIST_COLL_BROADCAST,
                       .verdict = &verdict};
    verify_all(&v, &status);
    verify_free(&v);
    if (status != DIST_OK)
        return disti_fail(status, "no memory to verify the plans of %d ranks", ranks);
    *verdict_p = verdict;
    return DIST_OK;
}

dist_status disti_verify_algorithm(const struct disti_algorithm *algorithm,
                                   const struct disti_shape *shape, bool in_place,
                                   struct disti_verdict *verdict_p)
{
    struct disti_plan *plans[VERIFY_RANKS_MAX] = {NULL};
    dist_status status = verify_allowed(shape->ranks);
    if (status != DIST_OK)
        return status;
    for (int rank = 0; rank < shape->ranks && status == DIST_OK; rank++) {
        struct disti_shape own = *shape;
        own.rank = rank;
        status = disti_plan_write(algorithm, &own, &plans[rank]);
    }
    if (status == DIST_OK)
        status = disti_verify(plans, shape->ranks, in_place, verdict_p);
    for (int rank = 0; rank < shape->ranks; rank++)
        disti_plan_free(plans[rank]);
    return status;
}
