/* SPDX-License-Identifier: BSD-3-Clause */
/* The sampling verifier's run: messages are matched, steps run as far as they go, results judged.
 */
#include "verify/internal.h"
#include "verify/sample.h"

#include <stdlib.h>
#include <string.h>

/* Added to a sum by the reduction that finishes it. */
#define SAMPLE_FINISHED UINT64_C(0x9e3779b97f4a7c15)

/* ---- messages ---- */

static int message_compare(const void *left, const void *right)
{
    const struct sample_message *a = left, *b = right;
    const uint32_t keys[][2] = {
        {a->from, b->from}, {a->to, b->to}, {a->channel, b->channel}, {a->number, b->number}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

static bool message_same(const struct sample *s, uint32_t one, uint32_t other)
{
    const struct sample_step *a = sample_step(s, one), *b = sample_step(s, other);
    const struct sample_item *items = s->items.items;
    bool same = a->items == b->items;
    for (uint32_t i = 0; i < a->items && same; i++)
        same = items[a->first_item + i].chunk == items[b->first_item + i].chunk;
    return same;
}

/* One end of the message is missing, or the two are about different data. */
static bool match_fault(struct sample *s, const struct sample_message *message, const char *what)
{
    return disti_sample_fault(s, "message %u from rank %u to rank %u on channel %u %s",
                              message->number, message->from, message->to, message->channel, what);
}

/* Sorted alike, the k-th of the sends must be the k-th of the receives. */
static bool match_all(struct sample *s)
{
    struct sample_message *send = s->sends.items, *recv = s->recvs.items;
    size_t sends = s->sends.count, recvs = s->recvs.count;
    if (sends > 0)
        qsort(send, sends, sizeof(*send), message_compare);
    if (recvs > 0)
        qsort(recv, recvs, sizeof(*recv), message_compare);
    for (; sends > 0 || recvs > 0; sends--, recvs--, send++, recv++) {
        int order = sends == 0 ? 1 : recvs == 0 ? -1 : message_compare(send, recv);
        if (order != 0)
            return order < 0 ? match_fault(s, send, "is not received")
                             : match_fault(s, recv, "is not sent");
        if (!message_same(s, send->step, recv->step))
            return match_fault(s, send, "meets a receive of other data");
        sample_step(s, send->step)->match = recv->step;
        sample_step(s, recv->step)->match = send->step;
    }
    return true;
}

/* ---- memory ---- */

static uint64_t *cell_at(const struct sample *s, uint32_t rank, uint8_t space, uint32_t chunk)
{
    return &s->cells[((size_t)rank * 2 + space) * s->count + chunk];
}

static bool cell_read(struct sample *s, const struct sample_step *step,
                      struct disti_chunk_ref place, const struct sample_item *item,
                      uint64_t *value_p)
{
    size_t slot = s->first_slot[step->rank] + place.at + item->at;
    bool scratch = place.space == DISTI_SCRATCH;
    *value_p = scratch ? s->scratch[slot] : *cell_at(s, step->rank, place.space, item->chunk);
    if (*value_p == 0 || (scratch && s->slot_chunk[slot] != item->chunk))
        return disti_sample_fault(s, "rank %u reads chunk %u where it is not written yet",
                                  step->rank, s->list[item->chunk]);
    return true;
}

static void cell_write(struct sample *s, const struct sample_step *step,
                       const struct sample_item *item, uint64_t value)
{
    size_t slot = s->first_slot[step->rank] + step->dst.at + item->at;
    if (step->dst.space != DISTI_SCRATCH) {
        *cell_at(s, step->rank, step->dst.space, item->chunk) = value;
        return;
    }
    s->scratch[slot] = value;
    s->slot_chunk[slot] = item->chunk;
}

/* The rank whose chunk it is, in a collective that does not reduce. */
static uint32_t cell_giver(const struct sample *s, uint32_t data)
{
    if (s->collective == DIST_COLL_BROADCAST || s->collective == DIST_COLL_SCATTER ||
        s->collective == DIST_COLL_SCATTER_V)
        return s->root;
    uint32_t blocks = s->data_chunks / s->chunks;
    return data / s->chunks / (blocks / s->ranks);
}

/* What each output must hold. */
static uint64_t cell_due(const struct sample *s, uint32_t data)
{
    uint64_t sum = s->ranks > 1 ? SAMPLE_FINISHED : 0;
    if (!disti_algorithm_reduces(s->collective))
        return disti_verify_leaf((int)cell_giver(s, data));
    for (uint32_t rank = 0; rank < s->ranks; rank++)
        sum += disti_verify_leaf((int)rank);
    return sum;
}

/* A plan without steps, to ask what lies where. */
static struct disti_plan cell_plan(const struct sample *s, uint32_t rank)
{
    return (struct disti_plan){.collective = s->collective,
                               .ranks = (int)s->ranks,
                               .rank = (int)rank,
                               .root = (int)s->root,
                               .chunks = s->chunks};
}

static void cells_fill(struct sample *s)
{
    for (uint32_t rank = 0; rank < s->ranks; rank++) {
        struct disti_plan plan = cell_plan(s, rank);
        struct disti_chunk_ref place;
        for (uint32_t c = 0; c < s->count; c++) {
            bool has = s->collective != DIST_COLL_BROADCAST || rank == s->root;
            if (!has || !disti_plan_place(&plan, DISTI_IN, s->list[c], &place))
                continue;
            *cell_at(s, rank, DISTI_IN, c) = disti_verify_leaf((int)rank);
            if (s->collective == DIST_COLL_BROADCAST) /* the same memory */
                *cell_at(s, rank, DISTI_OUT, c) = disti_verify_leaf((int)rank);
        }
    }
}

static bool cells_check(struct sample *s)
{
    for (uint32_t c = 0; c < s->count; c++) {
        uint64_t due = cell_due(s, s->list[c]);
        for (uint32_t rank = 0; rank < s->ranks; rank++) {
            struct disti_plan plan = cell_plan(s, rank);
            struct disti_chunk_ref place;
            if (disti_plan_place(&plan, DISTI_OUT, s->list[c], &place) &&
                *cell_at(s, rank, DISTI_OUT, c) != due)
                return disti_sample_fault(s, "rank %u: output chunk %u does not hold what it must",
                                          rank, place.at);
        }
    }
    return true;
}

/* ---- steps ---- */

/* The data of `from`, a SEND or the step itself, go to the step's destination. */
static bool run_data(struct sample *s, const struct sample_step *from,
                     const struct sample_step *step)
{
    const struct sample_item *items = s->items.items;
    bool reduces = step->kind == DISTI_RECV_REDUCE || step->kind == DISTI_REDUCE;
    struct disti_chunk_ref other = step->kind == DISTI_REDUCE ? step->dst : step->src;
    for (uint32_t i = 0; i < step->items; i++) {
        const struct sample_item *item = &items[step->first_item + i];
        uint64_t value, more = 0;
        if (!cell_read(s, from, from->src, &items[from->first_item + i], &value) ||
            (reduces && !cell_read(s, step, other, item, &more)))
            return false;
        cell_write(s, step, item, value + more + (step->finish ? SAMPLE_FINISHED : 0));
    }
    return true;
}

/* What the step's lane knows of starts, and what those before it knew. */
struct run {
    struct sample *s;
    struct sample_lane *lanes;
    uint32_t *queue, queued;
    uint64_t *knows; /* BARRIER, by step: which of the 64 ranks of the window have started */
    uint32_t window;
};

static uint64_t run_own(const struct run *run, uint32_t rank)
{
    return rank / 64 == run->window ? UINT64_C(1) << rank % 64 : 0;
}

static void run_learn(struct run *run, uint32_t number)
{
    const struct sample_step *step = sample_step(run->s, number);
    const uint32_t *preds = run->s->preds.items;
    uint64_t knows = run_own(run, step->rank);
    if (number > run->lanes[step->lane].first)
        knows |= run->knows[number - 1];
    for (uint32_t i = 0; i < step->preds; i++)
        knows |= run->knows[preds[step->first_pred + i]];
    run->knows[number] = knows;
}

static bool run_done(const struct run *run, uint32_t number)
{
    const struct sample_lane *lane = &run->lanes[sample_step(run->s, number)->lane];
    return number - lane->first < lane->done;
}

/* The step that the lane's next one waits for; SAMPLE_NONE: it can run. */
static uint32_t run_waited(const struct run *run, uint32_t number)
{
    const struct sample_step *step = sample_step(run->s, number);
    const uint32_t *preds = run->s->preds.items;
    for (uint32_t i = 0; i < step->preds; i++)
        if (!run_done(run, preds[step->first_pred + i]))
            return preds[step->first_pred + i];
    return SAMPLE_NONE;
}

/* Each lane is in the queue once at most. */
static void run_queue(struct run *run, uint32_t lane)
{
    if (!run->lanes[lane].queued)
        run->queue[run->queued++] = lane;
    run->lanes[lane].queued = true;
}

static void run_advance(struct run *run, uint32_t number)
{
    struct sample_lane *lane = &run->lanes[sample_step(run->s, number)->lane];
    uint32_t waiter = lane->waiters;
    lane->done++;
    lane->waiters = SAMPLE_NONE;
    run_queue(run, (uint32_t)(lane - run->lanes));
    for (; waiter != SAMPLE_NONE; waiter = run->lanes[waiter].next_waiter) {
        run->lanes[waiter].parked = false;
        run_queue(run, waiter);
    }
}

/* Remembers the lane with the one that it waits for. */
static void run_park(struct run *run, uint32_t number, uint32_t waited)
{
    struct sample_lane *lane = &run->lanes[number];
    struct sample_lane *other = &run->lanes[sample_step(run->s, waited)->lane];
    if (lane->parked)
        return;
    lane->parked = true;
    lane->next_waiter = other->waiters;
    other->waiters = number;
}

/* Is the step the next of its lane? */
static bool run_next(const struct run *run, uint32_t number)
{
    const struct sample_lane *lane = &run->lanes[sample_step(run->s, number)->lane];
    return number == lane->first + lane->done;
}

static bool run_step(struct run *run, uint32_t number)
{
    struct sample *s = run->s;
    const struct sample_step *step = sample_step(s, number), *from = step;
    bool barrier = s->collective == DIST_COLL_BARRIER;
    run_learn(run, number);
    if (step->kind <= DISTI_RECV_REDUCE) {
        from = sample_step(s, step->match);
        run_learn(run, step->match);
        run->knows[number] |= run->knows[step->match];
    }
    if (!barrier && !run_data(s, from, step))
        return false;
    run_advance(run, number);
    if (from != step)
        run_advance(run, step->match);
    return true;
}

/* A SEND and its receive run together, once both can; the receive is what runs. */
static bool run_lane(struct run *run, uint32_t number)
{
    struct sample_lane *lane = &run->lanes[number];
    if (lane->done == lane->count)
        return true;
    uint32_t next = lane->first + lane->done, waited = run_waited(run, next);
    if (waited != SAMPLE_NONE) {
        run_park(run, number, waited);
        return true;
    }
    const struct sample_step *step = sample_step(run->s, next);
    if (step->kind <= DISTI_RECV_REDUCE &&
        (!run_next(run, step->match) || run_waited(run, step->match) != SAMPLE_NONE))
        return true; /* the other looks for us when it has come so far */
    return run_step(run, step->kind == DISTI_SEND ? step->match : next);
}

/* A barrier's promise, for the ranks of the window. */
static bool run_met(const struct run *run)
{
    struct sample *s = run->s;
    uint32_t left = s->ranks - run->window * 64;
    uint64_t all = left >= 64 ? UINT64_MAX : UINT64_MAX >> (64 - left), knows = 0;
    uint32_t steps = (uint32_t)s->steps.count;
    for (uint32_t i = 0; i < steps; i++) {
        const struct sample_step *step = sample_step(s, i);
        knows |= run->knows[i];
        if (i + 1 < steps && sample_step(s, i + 1)->rank == step->rank)
            continue;
        if ((knows & all) != all)
            return disti_sample_fault(s, "rank %u passes the barrier before all have entered it",
                                      step->rank);
        knows = 0;
    }
    return true;
}

static bool run_all(struct run *run)
{
    struct sample *s = run->s;
    uint32_t count = (uint32_t)s->lanes.count;
    run->queued = 0;
    for (uint32_t l = count; l > 0; l--) {
        struct sample_lane *lane = &run->lanes[l - 1];
        *lane = (struct sample_lane){
            .first = lane->first, .count = lane->count, .waiters = SAMPLE_NONE};
        run_queue(run, l - 1);
    }
    while (run->queued > 0) {
        uint32_t lane = run->queue[--run->queued];
        run->lanes[lane].queued = false;
        if (!run_lane(run, lane))
            return false;
    }
    for (uint32_t l = 0; l < count; l++)
        if (run->lanes[l].done < run->lanes[l].count)
            return disti_sample_fault(s, "deadlock: rank %u waits for a message that nobody sends",
                                      sample_step(s, run->lanes[l].first)->rank);
    return true;
}

void disti_sample_run(struct sample *s)
{
    struct run run = {.s = s, .lanes = s->lanes.items};
    bool good = match_all(s);
    run.queue = malloc((s->lanes.count + 1) * sizeof(*run.queue));
    run.knows = calloc(s->steps.count + 1, sizeof(*run.knows));
    s->lost = !run.queue || !run.knows;
    if (good && !s->lost && s->collective == DIST_COLL_BARRIER) {
        for (run.window = 0; good && run.window * 64 < s->ranks; run.window++)
            good = run_all(&run) && (s->ranks == 1 || run_met(&run));
    } else if (good && !s->lost) {
        cells_fill(s);
        if (run_all(&run))
            cells_check(s);
    }
    free(run.queue);
    free(run.knows);
}
