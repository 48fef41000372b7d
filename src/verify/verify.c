/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier: collects all ranks' steps, has them matched and run, and judges what that left. */
#include "verify/internal.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the steps of a usual algorithm so many handle a chunk on each rank. */
#define VERIFY_STEPS_EACH 4
/* Steps that are kept at most, about, where not every chunk needs to be followed: 300 MB. */
#define VERIFY_STEPS (UINT32_C(1) << 22)

/* ---- faults ---- */

void disti_verify_describe(const struct verify *v, uint32_t step, char *text, size_t size)
{
    static const char *const names[] = {"SEND to", "RECV from", "RECV_REDUCE from", "REDUCE",
                                        "COPY"};
    const struct verify_step *s = verify_step(v, step);
    char peer[24] = "";
    if (s->kind <= DISTI_RECV_REDUCE)
        snprintf(peer, sizeof(peer), " rank %d", s->peer);
    snprintf(text, size, "rank %u, lane %u, step %u (%s%s, chunk %u)", s->rank,
             s->lane - v->rank[s->rank].first_lane, s->index, names[s->kind], peer, s->first);
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

/* ---- contributions ---- */

/* Spreads all bits over all (splitmix64). */
static uint64_t verify_mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* A rank's contribution by itself: a hash. */
static uint64_t verify_leaf(uint32_t rank)
{
    return verify_mix((uint64_t)rank + 1);
}

uint64_t disti_verify_added(uint64_t one, uint64_t other)
{
    return verify_mix(verify_mix(one) + verify_mix(other) + 1);
}

/* What stands for a rank's contribution in a sum. */
static uint64_t verify_number(const struct verify *v, uint32_t rank)
{
    return verify_few(v) ? UINT64_C(1) << rank : verify_leaf(rank);
}

/* ---- memory ---- */

/* The shape as the rank has it, to ask what lies where. */
static struct disti_plan verify_shape(const struct verify *v, uint32_t rank)
{
    struct disti_plan shape = v->shape;
    shape.rank = (int)rank;
    return shape;
}

struct verify_cell *disti_verify_cell(const struct verify *v, uint32_t rank,
                                      struct disti_chunk_ref ref, uint32_t chunk)
{
    uint8_t space = ref.space;
    if (space == DISTI_SCRATCH)
        return &v->scratch[v->rank[rank].first_slot + ref.chunk];
    if (space == DISTI_IN && v->aliased) {
        struct disti_plan shape = verify_shape(v, rank);
        if (disti_plan_locate(&shape, DISTI_OUT, v->followed[chunk], &ref))
            space = DISTI_OUT;
    }
    return &v->cells[((size_t)rank * 2 + space) * v->count + chunk];
}

/* What the ranks have before anything happens. */
static void verify_fill(struct verify *v)
{
    for (uint32_t rank = 0; rank < v->ranks; rank++) {
        struct disti_plan shape = verify_shape(v, rank);
        bool has = shape.collective != DIST_COLL_BROADCAST || shape.rank == shape.root;
        struct disti_chunk_ref ref;
        for (uint32_t c = 0; c < v->count && has; c++)
            if (disti_plan_locate(&shape, DISTI_IN, v->followed[c], &ref))
                *disti_verify_cell(v, rank, ref, c) =
                    (struct verify_cell){.sum = verify_number(v, rank),
                                         .order = verify_leaf(rank),
                                         .chunk = c,
                                         .written = true};
    }
}

/* ---- results ---- */

/* The rank whose data chunk this is, in a collective that does not reduce. */
static uint32_t verify_giver(const struct verify *v, uint32_t data)
{
    const struct disti_plan *shape = &v->shape;
    if (disti_collective_rooted(shape->collective) && disti_plan_blocks(shape, DISTI_OUT) == 1)
        return (uint32_t)shape->root; /* broadcast, scatter */
    uint64_t of_a_rank = disti_plan_data_blocks(shape) / v->ranks;
    return (uint32_t)(data / shape->chunks / of_a_rank);
}

/* Has one chunk of one rank's output what was promised? */
static bool verify_output(struct verify *v, uint32_t rank, struct disti_chunk_ref ref, uint32_t c)
{
    const struct verify_cell *cell = disti_verify_cell(v, rank, ref, c);
    bool reduces = disti_algorithm_reduces(v->shape.collective);
    bool finished = reduces && v->ranks > 1;
    uint64_t sum = reduces ? v->all : verify_number(v, verify_giver(v, v->followed[c]));
    if (!cell->written)
        return disti_verify_fault(v, VERIFY_NONE, "rank %u: output chunk %u is never written", rank,
                                  ref.chunk);
    if (cell->sum != sum && verify_few(v))
        return disti_verify_fault(
            v, VERIFY_NONE,
            "rank %u: output chunk %u holds the contributions of ranks %#llx, not %#llx", rank,
            ref.chunk, (unsigned long long)cell->sum, (unsigned long long)sum);
    if (cell->sum != sum)
        return disti_verify_fault(
            v, VERIFY_NONE, "rank %u: output chunk %u does not hold what it must", rank, ref.chunk);
    if (cell->finished != finished)
        return disti_verify_fault(v, VERIFY_NONE, "rank %u: output chunk %u was finished %d times",
                                  rank, ref.chunk, cell->finished);
    return true;
}

/* The order of reproducible results, as plan.h has it; `sums` has room for all ranks. */
static uint64_t verify_order(uint32_t ranks, uint64_t *sums)
{
    uint32_t virtual_ranks = 1, count = 0;
    while (2 * virtual_ranks <= ranks)
        virtual_ranks *= 2;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        sums[count] = verify_leaf(rank);
        if (rank < 2 * (ranks - virtual_ranks))
            sums[count] = disti_verify_added(sums[count], verify_leaf(++rank));
        count++;
    }
    for (; count > 1; count /= 2)
        for (uint32_t i = 0; i < count / 2; i++)
            sums[i] = disti_verify_added(sums[2 * i], sums[2 * i + 1]);
    return sums[0];
}

static bool verify_outputs(struct verify *v, uint64_t order)
{
    v->verdict->ordered = disti_algorithm_reduces(v->shape.collective);
    for (uint32_t rank = 0; rank < v->ranks; rank++) {
        struct disti_plan shape = verify_shape(v, rank);
        struct disti_chunk_ref ref;
        for (uint32_t c = 0; c < v->count; c++) {
            if (!disti_plan_locate(&shape, DISTI_OUT, v->followed[c], &ref))
                continue;
            if (!verify_output(v, rank, ref, c))
                return false;
            if (disti_verify_cell(v, rank, ref, c)->order != order)
                v->verdict->ordered = false;
        }
    }
    return true;
}

/* A barrier's promise, for the ranks of the window: whoever has left it knows that all have come.
 */
static bool verify_met(struct verify *v)
{
    uint32_t of_window = v->ranks - v->window;
    uint64_t all = of_window >= 64 ? UINT64_MAX : UINT64_MAX >> (64 - of_window);
    for (uint32_t rank = 0; rank < v->ranks; rank++) {
        uint32_t own = rank - v->window;
        uint64_t knows = own < 64 ? UINT64_C(1) << own : 0;
        for (uint32_t s = v->rank[rank].first_step; s < v->rank[rank + 1].first_step; s++)
            knows |= v->knows[s];
        if (knows != all)
            return disti_verify_fault(
                v, VERIFY_NONE,
                "rank %u passes the barrier after hearing of ranks %#llx only, of 64 from rank "
                "%u on",
                rank, (unsigned long long)knows, v->window);
    }
    return true;
}

/* A race makes the run's result meaningless, but it is the lesser news: the result comes first. */
static bool verify_data_moved(struct verify *v)
{
    size_t slots = v->rank[v->ranks].first_slot;
    uint64_t *sums = calloc(v->ranks, sizeof(*sums));
    v->cells = calloc((size_t)v->ranks * 2 * v->count, sizeof(*v->cells));
    v->scratch = calloc(slots + 1, sizeof(*v->scratch));
    v->lost = !sums || !v->cells || !v->scratch;
    bool good = !v->lost;
    if (good) {
        verify_fill(v);
        good = disti_verify_run(v) && verify_outputs(v, verify_order(v->ranks, sums));
    }
    free(sums);
    return good && (!verify_few(v) || disti_verify_races(v));
}

static bool verify_barrier(struct verify *v)
{
    bool good = true;
    v->knows = calloc(v->steps.count + 1, sizeof(*v->knows));
    v->lost = !v->knows;
    for (v->window = 0; v->window < v->ranks && good && !v->lost; v->window += 64)
        good = disti_verify_run(v) && verify_met(v);
    return good;
}

/* All plans are collected: is what they do right? */
static void verify_all(struct verify *v)
{
    v->order = calloc(v->steps.count + 1, sizeof(*v->order));
    v->when = calloc(v->steps.count + 1, sizeof(*v->when));
    v->lost = !v->order || !v->when;
    if (v->lost || !disti_verify_match(v))
        return;
    if (v->shape.collective == DIST_COLL_BARRIER)
        verify_barrier(v);
    else
        verify_data_moved(v);
}

/* ---- plans ---- */

/* As many chunks as fit, spread evenly; all, if they fit, or ranks are few. */
static void verify_follow(struct verify *v)
{
    uint64_t most = VERIFY_STEPS / VERIFY_STEPS_EACH / v->ranks;
    v->data_chunks = disti_plan_data_chunks(&v->shape);
    v->count = v->data_chunks;
    if (v->count > most && !verify_few(v))
        v->count = most ? (uint32_t)most : 1;
    v->verdict->all = v->count == v->data_chunks;
    v->followed = malloc(v->count * sizeof(*v->followed));
    v->seen = calloc(v->count, sizeof(*v->seen));
    v->rank = calloc((size_t)v->ranks + 1, sizeof(*v->rank));
    v->counters = calloc((size_t)2 * DISTI_CHANNELS * v->ranks, sizeof(*v->counters));
    v->lost = !v->followed || !v->seen || !v->rank || !v->counters;
    for (uint32_t i = 0; i < v->count && v->followed; i++)
        v->followed[i] = (uint32_t)((uint64_t)i * v->data_chunks / v->count);
}

/* What the first plan says of all. */
static void verify_open(struct verify *v, const struct disti_plan *plan, bool in_place,
                        struct disti_verdict *verdict)
{
    *verdict = (struct disti_verdict){.ok = true};
    *v = (struct verify){.shape = {.collective = plan->collective,
                                   .ranks = plan->ranks,
                                   .root = plan->root,
                                   .chunks = plan->chunks},
                         .ranks = (uint32_t)plan->ranks,
                         .aliased = in_place || plan->collective == DIST_COLL_BROADCAST,
                         .steps.size = sizeof(struct verify_step),
                         .items.size = sizeof(struct verify_item),
                         .waits.size = sizeof(uint32_t),
                         .lanes.size = sizeof(struct verify_lane),
                         .sends.size = sizeof(struct verify_message),
                         .recvs.size = sizeof(struct verify_message),
                         .verdict = verdict};
    for (uint32_t rank = 0; rank < v->ranks; rank++)
        v->all += verify_number(v, rank);
    verify_follow(v);
}

/* All have been collected, if status is DIST_OK and there is no fault yet. */
static dist_status verify_close(struct verify *v, dist_status status,
                                struct disti_verdict *verdict_p)
{
    if (status == DIST_OK && v->verdict->ok && !v->lost)
        verify_all(v);
    if (status == DIST_OK && v->lost)
        status =
            disti_fail(DIST_ERR_NO_MEMORY, "no memory to verify the plans of %u ranks", v->ranks);
    if (status == DIST_OK)
        *verdict_p = *v->verdict;
    free(v->followed);
    free(v->seen);
    free(v->rank);
    free(v->steps.items);
    free(v->items.items);
    free(v->waits.items);
    free(v->lanes.items);
    free(v->sends.items);
    free(v->recvs.items);
    free(v->counters);
    free(v->cells);
    free(v->scratch);
    free(v->order);
    free(v->when);
    free(v->knows);
    return status;
}

/* The plan must be for the same thing as the first, and well formed. False: a fault, or *status_p.
 */
static bool verify_plan(struct verify *v, const struct disti_plan *plan, int rank,
                        dist_status *status_p)
{
    const struct disti_plan *shape = &v->shape;
    if (plan->collective != shape->collective || plan->chunks != shape->chunks ||
        plan->root != shape->root || plan->ranks != shape->ranks || plan->rank != rank)
        return disti_verify_fault(v, VERIFY_NONE, "rank %d's plan does not match those of %d ranks",
                                  rank, shape->ranks);
    char text[256];
    *status_p = disti_plan_check(plan, text, sizeof(text));
    if (*status_p == DIST_ERR_INTERNAL) {
        *status_p = DIST_OK;
        return disti_verify_fault(v, VERIFY_NONE, "%s", text);
    }
    return *status_p == DIST_OK;
}

dist_status disti_verify(struct disti_plan *const *plans, bool in_place,
                         struct disti_verdict *verdict_p)
{
    struct disti_verdict verdict;
    struct verify v;
    dist_status status = DIST_OK;
    verify_open(&v, plans[0], in_place, &verdict);
    for (int rank = 0; rank < plans[0]->ranks && !v.lost; rank++)
        if (!verify_plan(&v, plans[rank], rank, &status) || !disti_verify_collect(&v, plans[rank]))
            break;
    return verify_close(&v, status, verdict_p);
}

dist_status disti_verify_algorithm(const struct disti_algorithm *algorithm,
                                   const struct disti_shape *shape, bool in_place,
                                   struct disti_verdict *verdict_p)
{
    struct disti_verdict verdict = {.ok = false};
    struct verify v = {.verdict = &verdict};
    dist_status status = DIST_OK;
    bool good = true;
    for (int rank = 0; rank < shape->ranks && good && !v.lost; rank++) {
        struct disti_shape own = *shape;
        struct disti_plan *plan;
        own.rank = rank;
        status = disti_plan_write(algorithm, &own, &plan);
        if (status != DIST_OK)
            break;
        if (rank == 0)
            verify_open(&v, plan, in_place, &verdict);
        good = !v.lost && disti_verify_collect(&v, plan);
        disti_plan_free(plan);
    }
    return verify_close(&v, status, verdict_p);
}
