/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The verifier: collects the steps of all ranks, matches their messages, runs them symbolically,
 * checks the results and searches for races. It follows only some chunks of the data, and keeps
 * only the steps that handle these chunks, so that not all plans need to be in memory at once.
 *
 *   lane 0   [a]   b    c   [d]        [ ]: kept. c waits for e, which is not kept, so the
 *                       |              verifier records that d waits for f, the last kept step
 *   lane 1   [f]        e              before e.
 */
#include "verify/verify.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VERIFY_NONE UINT32_MAX
/* Up to this number of ranks, each rank has a bit, all chunks are followed, and races are
 * searched. */
#define VERIFY_RANKS_FEW 64

/* The symbolic content of a chunk of memory. */
struct verify_cell {
    uint64_t sum;   /* verify_number() of each rank whose contribution it contains, added up */
    uint64_t order; /* the order of the additions: a hash of the expression */
    uint32_t chunk; /* index in followed[] */
    bool finished, written;
};

/* A kept step. Steps are numbered over all ranks. */
struct verify_step {
    uint32_t rank, lane, index; /* lanes are numbered over all ranks; index: in its lane */
    uint32_t first;             /* the first chunk of its data */
    uint32_t first_item, items;
    uint32_t first_wait, waits; /* steps that it waits for, besides the previous one in its lane */
    uint32_t match;             /* the matching step at the peer */
    int32_t peer;
    struct disti_chunk_ref dst, src;
    uint8_t kind;
    bool finish;
};

/* A followed chunk of a step's data. */
struct verify_item {
    uint32_t chunk;  /* index in followed[] */
    uint32_t offset; /* index among the step's chunks */
};

/* One end of a message: the number-th from one rank to another on a channel. */
struct verify_message {
    uint32_t from, to, channel, number, step;
};

struct verify_lane {
    uint32_t first, count; /* its steps: [first, first + count) of all steps */
    uint32_t done;
    uint32_t waiters, next_waiter; /* list of lanes that wait for a step of this lane */
    bool queued, parked;
};

/* The start of a rank's entries in the lists. */
struct verify_rank {
    uint32_t first_lane, first_step;
    size_t first_slot;
};

/* A growing array. */
struct verify_list {
    void *items;
    size_t count, capacity, size;
};

struct verify {
    struct disti_plan shape; /* what all plans have in common: a plan without steps, of rank 0 */
    uint32_t ranks;
    bool aliased;   /* a block that IN and OUT both hold is the same memory */
    bool no_memory; /* out of memory */
    uint64_t all;   /* verify_number() of each rank, added up */
    uint32_t data_chunks;
    uint32_t count, *followed; /* the chunks of the data that are followed, ascending */
    struct disti_verdict *verdict;

    struct verify_rank *rank; /* ranks + 1 entries */
    struct verify_list steps, items, waits, lanes, sends, recvs;
    uint32_t *counters; /* of the plan being read: number of messages so far, by direction, channel
                           and peer */
    uint32_t *seen;     /* by followed chunk: the last step whose list contains it, plus 1 */
    struct verify_cell *cells;   /* [rank][IN, OUT][count] */
    struct verify_cell *scratch; /* the scratch slots of all ranks */
    uint32_t *order; /* the steps in the order of execution; a SEND immediately before its RECV* */
    uint32_t *when;  /* by step: its index in order[] */
    uint32_t executed;
    uint32_t *queue, queued; /* lanes that the run must examine, each at most once */
    uint64_t *entered; /* BARRIER, by step: the ranks of the window that are known to have entered
                          when the step ends */
    uint32_t window;   /* ranks [window, window + 64) */
};

static inline struct verify_step *verify_step(const struct verify *v, uint32_t step)
{
    return &((struct verify_step *)v->steps.items)[step];
}

static inline struct verify_lane *verify_lane(const struct verify *v, uint32_t lane)
{
    return &((struct verify_lane *)v->lanes.items)[lane];
}

static inline const struct verify_item *verify_items(const struct verify *v, uint32_t step)
{
    return &((const struct verify_item *)v->items.items)[verify_step(v, step)->first_item];
}

/* Returns the step's i-th followed chunk of data. */
static inline uint32_t verify_data(const struct verify *v, uint32_t step, uint32_t i)
{
    return v->followed[verify_items(v, step)[i].chunk];
}

/* Returns the i-th step that must end before this one begins; number 0 is the previous step of its
 * lane, or VERIFY_NONE. */
static inline uint32_t verify_wait(const struct verify *v, uint32_t step, uint32_t i)
{
    const struct verify_step *s = verify_step(v, step);
    if (i == 0)
        return step > verify_lane(v, s->lane)->first ? step - 1 : VERIFY_NONE;
    return ((const uint32_t *)v->waits.items)[s->first_wait + i - 1];
}

static inline bool verify_receives(const struct verify_step *step)
{
    return step->kind == DISTI_RECV || step->kind == DISTI_RECV_REDUCE;
}

static inline bool verify_few(const struct verify *v)
{
    return v->ranks <= VERIFY_RANKS_FEW;
}

/* ---- faults ---- */

/* "rank 3, lane 1, step 4 (SEND to rank 2, chunk 5)" */
static void verify_describe(const struct verify *v, uint32_t step, char *text, size_t size)
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

/* Records the first fault, at a step or (VERIFY_NONE) in general. Returns false. */
__attribute__((format(printf, 3, 4))) static bool verify_fault(struct verify *v, uint32_t step,
                                                               const char *format, ...)
{
    struct disti_verdict *verdict = v->verdict;
    if (!verdict->ok)
        return false;
    char where[128] = "", what[320];
    if (step != VERIFY_NONE)
        verify_describe(v, step, where, sizeof(where));
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    verdict->ok = false;
    snprintf(verdict->text, sizeof(verdict->text), "%s%s%s", where, *where ? ": " : "", what);
    return false;
}

/* ---- lists ---- */

/* Appends an uninitialized item. Returns NULL and sets v->no_memory if there is no memory. */
static void *list_add(struct verify *v, struct verify_list *list)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity * 2 + 1024;
        void *items = realloc(list->items, capacity * list->size);
        if (!items) {
            v->no_memory = true;
            return NULL;
        }
        list->items = items;
        list->capacity = capacity;
    }
    return (char *)list->items + list->count++ * list->size;
}

/* ---- numbers of messages ---- */

/* Returns a message counter of the plan being read. All counters are 0 between two plans. */
static uint32_t *collect_counter(const struct verify *v, const struct disti_lane *lane,
                                 const struct disti_step *step)
{
    uint32_t direction = step->kind == DISTI_SEND ? 0 : DISTI_CHANNELS;
    return &v->counters[(size_t)(direction + lane->channel) * v->ranks + (uint32_t)step->peer];
}

/* ---- steps ---- */

/* A step that another step waits for. */
struct reader_wait {
    uint16_t lane;
    uint32_t step;
};

/* The state of reading one plan. */
struct reader {
    const struct disti_plan *plan;
    uint32_t *kept;   /* by step: its number if it is kept */
    uint32_t *before; /* by step: the last kept step up to and including it in its lane, as an index
                         into the plan */
    uint32_t *waits;  /* by step: the first step with a wait, from this one on in its lane; or the
                         lane's end */
    uint32_t *covered, *stamp; /* by lane: number of its steps that are already covered by waits;
                                  valid if its stamp is the number of the lane being read, plus 1 */
    struct reader_wait *stack;
};

/* Returns the index of the first followed chunk that is not less than `data`. */
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

/* Lists the followed chunks of the step's data and returns their number. */
static uint32_t reader_items(struct verify *v, const struct disti_plan *plan,
                             const struct disti_step *step)
{
    size_t before = v->items.count;
    bool list = step->list != DISTI_NO_LIST;
    for (uint32_t i = 0; i < (list ? step->chunks : 1); i++) {
        uint32_t data = disti_step_data(plan, step, i), chunks = list ? 1 : step->chunks;
        for (uint32_t chunk = reader_from(v, data);
             chunk < v->count && v->followed[chunk] - data < chunks; chunk++) {
            struct verify_item *item = list_add(v, &v->items);
            if (item)
                *item = (struct verify_item){chunk, i + v->followed[chunk] - data};
        }
    }
    return (uint32_t)(v->items.count - before);
}

/*
 * Counts the step's message, and keeps the step if it handles followed chunks. Returns false after
 * a fault.
 */
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
    if (disti_step_has_peer(step)) {
        bool sends = step->kind == DISTI_SEND;
        uint32_t rank = (uint32_t)r->plan->rank, peer = (uint32_t)step->peer;
        uint32_t *counter = collect_counter(v, lane, step);
        struct verify_message *message = own ? list_add(v, sends ? &v->sends : &v->recvs) : NULL;
        if (message)
            *message = (struct verify_message){sends ? rank : peer, sends ? peer : rank,
                                               lane->channel, *counter, r->kept[at]};
        ++*counter;
        v->verdict->messages += sends;
        v->verdict->chunks_sent += sends ? step->chunks : 0;
    }
    if (!own || v->no_memory || step->list == DISTI_NO_LIST)
        return true;
    for (uint32_t i = 0; i < items; i++) { /* a message contains each chunk once */
        uint32_t chunk = verify_items(v, r->kept[at])[i].chunk;
        if (v->seen[chunk] == r->kept[at] + 1)
            return verify_fault(v, r->kept[at], "its data has chunk %u twice", v->followed[chunk]);
        v->seen[chunk] = r->kept[at] + 1;
    }
    return true;
}

/* ---- waits ---- */

/* Adds waits for the kept steps that end before `mark` ends, except those already added for this
 * lane. */
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

/* ---- whole plans ---- */

/* Adds the plan's kept steps, their waits and messages. Returns false after a fault or without
 * memory. */
static bool verify_collect(struct verify *v, const struct disti_plan *plan)
{
    size_t steps = plan->step_count + 1, lanes = plan->lane_count + 1;
    struct reader r = {.plan = plan,
                       .kept = malloc(steps * sizeof(*r.kept)),
                       .before = malloc(steps * sizeof(*r.before)),
                       .waits = malloc(steps * sizeof(*r.waits)),
                       .stack = malloc((steps + 1) * sizeof(*r.stack)),
                       .covered = calloc(lanes, sizeof(*r.covered)),
                       .stamp = calloc(lanes, sizeof(*r.stamp))};
    struct verify_rank *rank = &v->rank[plan->rank];
    v->no_memory = !r.kept || !r.before || !r.waits || !r.stack || !r.covered || !r.stamp;
    bool good = !v->no_memory;
    for (uint32_t l = 0; l < plan->lane_count && good; l++) {
        const struct disti_lane *lane = &plan->lanes[l];
        uint32_t first = (uint32_t)v->steps.count, number = (uint32_t)v->lanes.count;
        struct verify_lane *own = list_add(v, &v->lanes);
        good = own;
        for (uint32_t i = 0; i < lane->count && good; i++)
            good = reader_step(v, &r, lane, lane->first + i, number);
        if (own)
            *verify_lane(v, number) =
                (struct verify_lane){.first = first, .count = (uint32_t)v->steps.count - first};
        good = good && !v->no_memory;
    }
    for (uint32_t l = 0; l < plan->lane_count && good; l++) {
        /* This table serves to skip steps without waits; most steps have none. */
        uint32_t begin = plan->lanes[l].first, next = begin + plan->lanes[l].count;
        for (uint32_t at = next; at-- > begin;) {
            if (plan->steps[at].wait_lane != DISTI_NO_LANE)
                next = at;
            r.waits[at] = next;
        }
    }
    for (uint32_t l = 0; l < plan->lane_count && good; l++) {
        const struct disti_lane *lane = &plan->lanes[l];
        uint32_t first = (uint32_t)v->waits.count;
        for (uint32_t at = lane->first; at < lane->first + lane->count; at++) {
            const struct disti_step *step = &plan->steps[at];
            if (step->wait_lane != DISTI_NO_LANE)
                reader_cover(v, &r, l, (struct reader_wait){step->wait_lane, step->wait_step});
            if (r.kept[at] == VERIFY_NONE || v->no_memory)
                continue;
            verify_step(v, r.kept[at])->first_wait = first;
            verify_step(v, r.kept[at])->waits = (uint32_t)v->waits.count - first;
            first = (uint32_t)v->waits.count;
        }
    }
    free(r.kept);
    free(r.before);
    free(r.waits);
    free(r.stack);
    free(r.covered);
    free(r.stamp);
    /* Clears the counters one by one, since a plan communicates with few of many ranks. */
    for (uint32_t l = 0; l < plan->lane_count; l++)
        for (uint32_t i = 0; i < plan->lanes[l].count; i++) {
            const struct disti_step *step = &plan->steps[plan->lanes[l].first + i];
            if (disti_step_has_peer(step))
                *collect_counter(v, &plan->lanes[l], step) = 0;
        }
    rank[1] = (struct verify_rank){.first_lane = (uint32_t)v->lanes.count,
                                   .first_step = (uint32_t)v->steps.count,
                                   .first_slot = rank[0].first_slot + plan->scratch_chunks};
    return good && !v->no_memory;
}

/* ---- matching of messages, which stay in order from one rank to another on one channel ---- */

static int match_compare(const void *left, const void *right)
{
    const struct verify_message *a = left, *b = right;
    const uint32_t keys[][2] = {
        {a->from, b->from}, {a->to, b->to}, {a->channel, b->channel}, {a->number, b->number}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* Matches all messages before the run: after sorting, the k-th send must match the k-th receive. */
static bool verify_match(struct verify *v)
{
    size_t sends = v->sends.count, recvs = v->recvs.count;
    if (sends > 0)
        qsort(v->sends.items, sends, v->sends.size, match_compare);
    if (recvs > 0)
        qsort(v->recvs.items, recvs, v->recvs.size, match_compare);
    const struct verify_message *send = v->sends.items, *recv = v->recvs.items;
    for (; sends > 0 || recvs > 0; sends--, recvs--, send++, recv++) {
        int order = sends == 0 ? 1 : recvs == 0 ? -1 : match_compare(send, recv);
        if (order > 0)
            return verify_fault(v, recv->step, "no rank sends to it");
        if (order < 0)
            return verify_fault(v, send->step, "no rank receives it");
        struct verify_step *one = verify_step(v, send->step), *other = verify_step(v, recv->step);
        bool same = one->items == other->items;
        for (uint32_t i = 0; i < one->items && same; i++)
            same = verify_items(v, send->step)[i].chunk == verify_items(v, recv->step)[i].chunk;
        if (!same) {
            char text[128];
            verify_describe(v, send->step, text, sizeof(text));
            return verify_fault(v, recv->step, "expects %u chunks, but matches %u of %s",
                                other->items, one->items, text);
        }
        one->match = recv->step;
        other->match = send->step;
    }
    return true;
}

/*
 * The symbolic run. A SEND and its RECV execute together, when both are at the heads of their lanes
 * and wait for nothing; this is the strictest transport possible. Steps that can execute can do so
 * in any order with the same result, so one order is enough.
 */

/* ---- lanes ---- */

static void run_queue(struct verify *v, uint32_t lane)
{
    if (verify_lane(v, lane)->queued)
        return;
    verify_lane(v, lane)->queued = true;
    v->queue[v->queued++] = lane;
}

static uint32_t run_head(const struct verify *v, uint32_t lane)
{
    const struct verify_lane *l = verify_lane(v, lane);
    return l->done < l->count ? l->first + l->done : VERIFY_NONE;
}

/* Returns the step of another lane that the head of a lane still waits for, or VERIFY_NONE if it
 * can run. */
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

/* The head of a lane has ended: advances the lane and re-examines the lanes that wait for it. */
static void run_advance(struct verify *v, uint32_t step)
{
    struct verify_lane *l = verify_lane(v, verify_step(v, step)->lane);
    uint32_t waiter = l->waiters;
    l->done++;
    l->waiters = VERIFY_NONE;
    v->when[step] = v->executed;
    v->order[v->executed++] = step;
    for (; waiter != VERIFY_NONE; waiter = verify_lane(v, waiter)->next_waiter) {
        verify_lane(v, waiter)->parked = false;
        run_queue(v, waiter);
    }
    run_queue(v, verify_step(v, step)->lane);
}

/* ---- contributions ---- */

/* Mixes all bits (splitmix64). */
static uint64_t verify_mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Returns the hash of a single rank's contribution. */
static uint64_t verify_leaf(uint32_t rank)
{
    return verify_mix((uint64_t)rank + 1);
}

/* Returns the hash of the sum of two expressions. It is commutative. */
static uint64_t verify_added(uint64_t one, uint64_t other)
{
    return verify_mix(verify_mix(one) + verify_mix(other) + 1);
}

/* Returns the number that represents a rank's contribution in a sum. */
static uint64_t verify_number(const struct verify *v, uint32_t rank)
{
    return verify_few(v) ? UINT64_C(1) << rank : verify_leaf(rank);
}

/* ---- memory ---- */

/* Returns the shape for a rank, for use with disti_plan_locate(). */
static struct disti_plan verify_shape(const struct verify *v, uint32_t rank)
{
    struct disti_plan shape = v->shape;
    shape.rank = (int)rank;
    return shape;
}

/* Returns the cell of a followed chunk at a location on a rank. */
static struct verify_cell *verify_cell(const struct verify *v, uint32_t rank,
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

/* ---- movement of data ---- */

/*
 * Reads the i-th followed chunk of the step, whose chunks begin at `ref`. Returns false after a
 * fault.
 */
static bool run_read(struct verify *v, uint32_t step, struct disti_chunk_ref ref, uint32_t i,
                     struct verify_cell *value_p)
{
    const struct verify_item *item = &verify_items(v, step)[i];
    ref.chunk += item->offset;
    *value_p = *verify_cell(v, verify_step(v, step)->rank, ref, item->chunk);
    if (!value_p->written)
        return verify_fault(v, step, "reads chunk %u of %s, which is not written yet", ref.chunk,
                            ref.space == DISTI_SCRATCH ? "scratch" : "its memory");
    if (value_p->chunk != item->chunk)
        return verify_fault(v, step, "uses data chunk %u as chunk %u", v->followed[value_p->chunk],
                            v->followed[item->chunk]);
    return true;
}

/* Adds `other` to *value_p. Both must be partial, unfinished sums without a common contribution. */
static bool run_sum(struct verify *v, uint32_t step, struct verify_cell *value_p,
                    const struct verify_cell *other)
{
    if (verify_few(v) && value_p->sum & other->sum)
        return verify_fault(v, step, "adds the contributions of ranks %#llx a second time",
                            (unsigned long long)(value_p->sum & other->sum));
    if (value_p->finished || other->finished)
        return verify_fault(v, step, "adds to a finished sum");
    value_p->sum += other->sum;
    value_p->order = verify_added(value_p->order, other->order);
    value_p->finished = verify_step(v, step)->finish;
    if (value_p->finished && value_p->sum != v->all)
        return verify_few(v)
                   ? verify_fault(v, step,
                                  "finishes a sum that has only the contributions of ranks %#llx",
                                  (unsigned long long)value_p->sum)
                   : verify_fault(v, step,
                                  "finishes a sum without each rank's contribution exactly once");
    return true;
}

/* Moves the data of step `from` (a SEND, or the step itself) to the step's destination. */
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
        const struct verify_item *item = &verify_items(v, step)[i];
        struct disti_chunk_ref ref = {s->dst.chunk + item->offset, s->dst.space};
        *verify_cell(v, s->rank, ref, item->chunk) = value;
    }
    return true;
}

/* ---- steps ---- */

/* Computes the ranks that are known to have entered when the step begins: its own rank and the
 * ranks known to the steps before it. */
static void run_barrier_step(struct verify *v, uint32_t step)
{
    const struct verify_step *s = verify_step(v, step);
    uint32_t own = s->rank - v->window;
    v->entered[step] = own < 64 ? UINT64_C(1) << own : 0;
    for (uint32_t i = 0; i <= s->waits; i++) {
        uint32_t before = verify_wait(v, step, i);
        if (before != VERIFY_NONE)
            v->entered[step] |= v->entered[before];
    }
}

/* Runs a local step, or a receive together with its SEND. Barriers move no data. */
static bool run_step(struct verify *v, uint32_t step)
{
    uint32_t from = verify_receives(verify_step(v, step)) ? verify_step(v, step)->match : step;
    if (v->entered) {
        run_barrier_step(v, from);
        run_barrier_step(v, step);
        v->entered[step] |= v->entered[from];
    } else if (!run_data(v, from, step)) {
        return false;
    }
    if (from != step)
        run_advance(v, from);
    run_advance(v, step);
    return true;
}

/* Runs the lane's next step if it can run. Returns false after a fault. */
static bool run_lane(struct verify *v, uint32_t lane)
{
    uint32_t step = run_head(v, lane);
    if (step == VERIFY_NONE)
        return true;
    uint32_t waited = run_waited(v, step);
    if (waited != VERIFY_NONE) { /* parks the lane in the list of the lane that it waits for */
        struct verify_lane *l = verify_lane(v, lane);
        struct verify_lane *other = verify_lane(v, verify_step(v, waited)->lane);
        if (!l->parked) {
            l->parked = true;
            l->next_waiter = other->waiters;
            other->waiters = lane;
        }
        return true;
    }
    const struct verify_step *s = verify_step(v, step);
    if (s->kind > DISTI_RECV_REDUCE)
        return run_step(v, step);
    if (run_head(v, verify_step(v, s->match)->lane) != s->match ||
        run_waited(v, s->match) != VERIFY_NONE)
        return true; /* when the peer's lane reaches the matching step, it will run both */
    return run_step(v, s->kind == DISTI_SEND ? s->match : step);
}

/* Runs steps until none can run. Returns false after a fault, such as a deadlock. */
static bool verify_run(struct verify *v)
{
    v->queue = malloc((v->lanes.count + 1) * sizeof(*v->queue));
    v->queued = 0;
    bool good = v->queue;
    v->no_memory = !good;
    v->executed = 0;
    for (uint32_t lane = (uint32_t)v->lanes.count; lane > 0 && good; lane--) {
        struct verify_lane *l = verify_lane(v, lane - 1);
        *l = (struct verify_lane){.first = l->first, .count = l->count, .waiters = VERIFY_NONE};
        run_queue(v, lane - 1);
    }
    while (good && v->queued > 0) {
        uint32_t lane = v->queue[--v->queued];
        verify_lane(v, lane)->queued = false;
        good = run_lane(v, lane);
    }
    free(v->queue);
    for (uint32_t lane = 0; lane < v->lanes.count && good; lane++) {
        uint32_t step = run_head(v, lane);
        if (step == VERIFY_NONE)
            continue;
        uint32_t cause = run_waited(v, step); /* reports the first lane that is stuck */
        char text[128];
        verify_describe(v, cause == VERIFY_NONE ? verify_step(v, step)->match : cause, text,
                        sizeof(text));
        good = verify_fault(v, step, "deadlock, it waits for %s", text);
    }
    return good;
}

/* ---- the verifier ---- */

/* An estimate of the steps per rank that handle one chunk, for the usual algorithms. */
#define VERIFY_STEPS_EACH 4
/* A soft limit for kept steps if not every chunk must be followed: 300 MB. */
#define VERIFY_STEPS (UINT32_C(1) << 22)

/* ---- results ---- */

/* True if an output chunk of a rank has the promised content. */
static bool verify_output(struct verify *v, uint32_t rank, struct disti_chunk_ref ref, uint32_t c)
{
    const struct verify_cell *cell = verify_cell(v, rank, ref, c);
    bool reduces = disti_algorithm_reduces(v->shape.collective);
    bool finished = reduces && v->ranks > 1;
    uint64_t sum = v->all;
    if (!reduces) { /* verify_number() of the rank that owns the data chunk */
        const struct disti_plan *shape = &v->shape;
        bool root_is_source = /* broadcast, scatter */
            disti_collective_rooted(shape->collective) && disti_plan_blocks(shape, DISTI_OUT) == 1;
        uint64_t block = v->followed[c] / shape->chunks;
        sum = verify_number(
            v, root_is_source ? (uint32_t)shape->root
                              : (uint32_t)(block / (disti_plan_data_blocks(shape) / v->ranks)));
    }
    if (!cell->written)
        return verify_fault(v, VERIFY_NONE, "rank %u: output chunk %u is never written", rank,
                            ref.chunk);
    if (cell->sum != sum && verify_few(v))
        return verify_fault(
            v, VERIFY_NONE,
            "rank %u: output chunk %u holds the contributions of ranks %#llx, not %#llx", rank,
            ref.chunk, (unsigned long long)cell->sum, (unsigned long long)sum);
    if (cell->sum != sum)
        return verify_fault(v, VERIFY_NONE,
                            "rank %u: output chunk %u does not have the promised content", rank,
                            ref.chunk);
    if (cell->finished != finished)
        return verify_fault(v, VERIFY_NONE, "rank %u: output chunk %u was finished %d times", rank,
                            ref.chunk, cell->finished);
    return true;
}

/* Returns the hash of the fixed order of additions for reproducible results (struct
 * disti_algorithm). `sums` has room for all ranks. */
static uint64_t verify_order(uint32_t ranks, uint64_t *sums)
{
    uint32_t virtual_ranks = 1, count = 0;
    while (2 * virtual_ranks <= ranks)
        virtual_ranks *= 2;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        sums[count] = verify_leaf(rank);
        if (rank < 2 * (ranks - virtual_ranks))
            sums[count] = verify_added(sums[count], verify_leaf(++rank));
        count++;
    }
    for (; count > 1; count /= 2)
        for (uint32_t i = 0; i < count / 2; i++)
            sums[i] = verify_added(sums[2 * i], sums[2 * i + 1]);
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
            if (verify_cell(v, rank, ref, c)->order != order)
                v->verdict->ordered = false;
        }
    }
    return true;
}

/*
 * Checks the promise of a barrier for the ranks of the window: a rank that leaves the barrier has
 * heard from all ranks of the window.
 */
static bool verify_barrier(struct verify *v)
{
    uint32_t of_window = v->ranks - v->window;
    uint64_t all = of_window >= 64 ? UINT64_MAX : UINT64_MAX >> (64 - of_window);
    for (uint32_t rank = 0; rank < v->ranks; rank++) {
        uint32_t own = rank - v->window;
        uint64_t entered = own < 64 ? UINT64_C(1) << own : 0;
        for (uint32_t s = v->rank[rank].first_step; s < v->rank[rank + 1].first_step; s++)
            entered |= v->entered[s];
        if (entered != all)
            return verify_fault(
                v, VERIFY_NONE,
                "rank %u leaves the barrier after hearing only from ranks %#llx (a bit mask of 64 "
                "ranks from rank %u on)",
                rank, (unsigned long long)entered, v->window);
    }
    return true;
}

/*
 * The search for races: two accesses of one rank to one chunk, at least one of them a write,
 * without an order between them. Only the order that every transport guarantees counts:
 *
 *   lane order, waits:   end of a step    -> begin of the next step, or of the waiting step
 *   a message:           begin of SEND    -> write by RECV (not its begin) -> end of RECV
 *
 * The read by a SEND is over when the SEND or its RECV has ended.
 *
 * Each chunk is examined separately: its steps are taken in the order of the run, each with the set
 * of steps that are over before it. Most orders are found in this way, since they are established
 * by messages with the same chunk. The remaining pairs are searched for through all steps
 * (race_search).
 */

/* The steps that touch the current chunk, numbered in the order of the run, are called events. */
struct race {
    struct verify *v;
    uint32_t chunk;
    uint32_t *first;  /* by chunk: its events are steps[first[c] .. first[c + 1]) */
    uint32_t *steps;  /* by chunk and event */
    uint32_t most;    /* the largest number of events of a chunk */
    uint64_t *before; /* one bit set per event: the events that are over before it touches memory */
    size_t words;     /* 64-bit words of a set */
    uint32_t *previous; /* by event: the previous event of its lane */
    uint32_t *latest;   /* by lane: its latest event */
    /* by event or step: the next one in the list of reads since the last write */
    uint32_t *readers;
    uint32_t *seen; /* by step, for race_search: the last search that visited it */
    uint32_t *stack;
    uint32_t searches;
};

/* The accesses of one rank to the chunk's memory. */
struct race_memory {
    uint32_t write, reads; /* the last write; the list of reads since */
};

static void race_push(struct race *race, uint32_t *depth_p, uint32_t step)
{
    if (race->seen[step] != race->searches)
        race->stack[(*depth_p)++] = step;
    race->seen[step] = race->searches;
}

/* True if `step` is `early` or a later step of the same lane. */
static bool race_is_after(const struct verify *v, uint32_t step, uint32_t early)
{
    return verify_step(v, step)->lane == verify_step(v, early)->lane && step >= early;
}

/*
 * True if `early` is over before `late` touches memory. Searches backwards from `late` through all
 * steps that are ordered before it. Skips steps that the run executed before `early`: they cannot
 * be ordered after it. Also skips messages that may be empty, and thus not sent, although chunk
 * `chunk` has data.
 */
static bool race_search(struct race *race, uint32_t early, uint32_t late, uint32_t chunk)
{
    const struct verify *v = race->v;
    bool sends = verify_step(v, early)->kind == DISTI_SEND;
    uint32_t chunks = v->shape.chunks;
    uint32_t receiver = sends ? verify_step(v, early)->match : early, depth = 0;
    race->searches++;
    if (verify_receives(verify_step(v, late)))
        race_push(race, &depth, verify_step(v, late)->match);
    race_push(race, &depth,
              late); /* pushed last, so searched first: the answer is usually on its own rank */
    while (depth > 0) {
        uint32_t step = race->stack[--depth];
        for (uint32_t i = 0; i <= verify_step(v, step)->waits; i++) {
            uint32_t end = verify_wait(v, step, i);
            if (end == VERIFY_NONE || v->when[end] < v->when[early])
                continue;
            if (race_is_after(v, end, early) || race_is_after(v, end, receiver))
                return true;
            /*
             * Follows a message only if it is sent whenever the chunk has data: if a call has fewer
             * elements than chunks, the last chunks of each block are empty, and their messages are
             * not sent.
             */
            if (verify_receives(verify_step(v, end)) &&
                (verify_step(v, end)->first % chunks <= chunk % chunks ||
                 verify_step(v, end)->first % chunks + verify_step(v, end)->items > chunks))
                race_push(race, &depth, verify_step(v, end)->match);
            race_push(race, &depth, end);
        }
    }
    return false;
}

static bool race_fault(struct race *race, uint32_t early, uint32_t late, const char *what)
{
    char text[128];
    verify_describe(race->v, early, text, sizeof(text));
    return verify_fault(race->v, late, "race: %s, unordered with %s", what, text);
}

static bool race_bit(const struct race *race, uint32_t early, uint32_t late)
{
    return race->before[late * race->words + early / 64] >> early % 64 & 1;
}

/*
 * Adds to the set of event `late` the events that are over before event `early`, and `early` itself
 * if `over` is true.
 */
static void race_join(struct race *race, uint32_t late, uint32_t early, bool over)
{
    uint64_t *to = race->before + late * race->words;
    const uint64_t *from = race->before + early * race->words;
    for (size_t w = 0; w <= early / 64; w++)
        to[w] |= from[w];
    if (over)
        to[early / 64] |= UINT64_C(1) << early % 64;
}

/* Computes which events are over before this one touches memory. The SEND of a RECV is the event
 * just before it. */
static void race_order(struct race *race, const uint32_t *steps, uint32_t event)
{
    const struct verify *v = race->v;
    uint32_t step = steps[event];
    uint32_t *latest = &race->latest[verify_step(v, step)->lane];
    memset(race->before + event * race->words, 0, race->words * sizeof(uint64_t));
    race->previous[event] = *latest;
    if (*latest != VERIFY_NONE)
        race_join(race, event, *latest, true);
    for (uint32_t i = 1; i <= verify_step(v, step)->waits; i++) {
        /* The latest event of the waited-for lane that is not after the waited-for step. */
        uint32_t waited = verify_wait(v, step, i);
        uint32_t other = race->latest[verify_step(v, waited)->lane];
        while (other != VERIFY_NONE && steps[other] > waited)
            other = race->previous[other];
        if (other != VERIFY_NONE)
            race_join(race, event, other, true);
    }
    if (verify_receives(verify_step(v, step)))
        race_join(race, event, event - 1, false);
    *latest = event;
}

/*
 * True if the reference is to the chunk's memory in OUT, through OUT or, if they are the same
 * memory, through IN. (If IN is separate memory, it is never written.)
 */
static bool race_touches(const struct race *race, struct disti_chunk_ref ref)
{
    return ref.space == DISTI_OUT || (ref.space == DISTI_IN && race->v->aliased);
}

/* Checks that event `early` is over before event `late` touches memory. */
static bool race_pair(struct race *race, const uint32_t *steps, uint32_t early, uint32_t late,
                      const char *what)
{
    if (early == VERIFY_NONE || race_bit(race, early, late))
        return true;
    if (verify_step(race->v, steps[early])->kind == DISTI_SEND && race_bit(race, early + 1, late))
        return true;
    return race_search(race, steps[early], steps[late], race->chunk) ||
           race_fault(race, steps[early], steps[late], what);
}

/* Checks one event against the previous accesses of its rank to the chunk. */
static bool race_event(struct race *race, const uint32_t *steps, uint32_t event,
                       struct race_memory *memory)
{
    const struct verify_step *s = verify_step(race->v, steps[event]);
    bool reads = s->kind != DISTI_RECV && race_touches(race, s->src);
    bool writes = s->kind != DISTI_SEND && race_touches(race, s->dst);
    if (s->kind == DISTI_COPY && reads && writes)
        return true; /* does nothing, source and destination are the same memory */
    if (s->kind == DISTI_REDUCE && writes)
        reads = true;
    if ((reads || writes) && !race_pair(race, steps, memory->write, event,
                                        writes ? "it writes a chunk that was written"
                                               : "it reads a chunk that was written"))
        return false;
    if (writes) {
        for (uint32_t r = memory->reads; r != VERIFY_NONE; r = race->readers[r])
            if (!race_pair(race, steps, r, event, "it writes a chunk that may still be read"))
                return false;
        *memory = (struct race_memory){.write = event, .reads = VERIFY_NONE};
    } else if (reads) {
        race->readers[event] = memory->reads;
        memory->reads = event;
    }
    return true;
}

static bool race_chunk(struct race *race, uint32_t chunk)
{
    const struct verify *v = race->v;
    const uint32_t *steps = race->steps + race->first[chunk];
    uint32_t events = race->first[chunk + 1] - race->first[chunk];
    struct race_memory memory[VERIFY_RANKS_FEW];
    for (uint32_t rank = 0; rank < v->ranks; rank++)
        memory[rank] = (struct race_memory){VERIFY_NONE, VERIFY_NONE};
    race->chunk = chunk;
    race->words = events / 64 + 1;
    for (uint32_t event = 0; event < events; event++) {
        race_order(race, steps, event);
        if (!race_event(race, steps, event, &memory[verify_step(v, steps[event])->rank]))
            return false;
    }
    for (uint32_t event = 0; event < events; event++)
        race->latest[verify_step(v, steps[event])->lane] = VERIFY_NONE;
    return true;
}

/* True if the step's chunks from `ref` on include the slot. */
static bool race_has_slot(const struct verify_step *step, struct disti_chunk_ref ref, uint32_t slot)
{
    return ref.space == DISTI_SCRATCH && slot >= ref.chunk && slot - ref.chunk < step->items;
}

/* Checks that the two steps are ordered, whichever of their chunks are empty. */
static bool race_slot_pair(struct race *race, uint32_t early, uint32_t late, const char *what)
{
    uint32_t chunks = race->v->shape.chunks;
    uint32_t a = verify_step(race->v, early)->first % chunks,
             b = verify_step(race->v, late)->first % chunks;
    return race_search(race, early, late, a > b ? a : b) || race_fault(race, early, late, what);
}

/* Checks a scratch slot. It may hold several chunks one after the other, so slots are examined
 * separately from chunks. steps[] is in the order of the run. */
static bool race_slot(struct race *race, const uint32_t *steps, uint32_t count, uint32_t slot)
{
    struct race_memory memory = {VERIFY_NONE, VERIFY_NONE};
    for (uint32_t i = 0; i < count; i++) {
        const struct verify_step *s = verify_step(race->v, steps[i]);
        bool writes = s->kind != DISTI_SEND && race_has_slot(s, s->dst, slot);
        bool reads = (s->kind != DISTI_RECV && race_has_slot(s, s->src, slot)) ||
                     (s->kind == DISTI_REDUCE && writes);
        if ((reads || writes) && memory.write != VERIFY_NONE &&
            !race_slot_pair(race, memory.write, steps[i], "it uses scratch that was written"))
            return false;
        for (uint32_t r = memory.reads; r != VERIFY_NONE && writes; r = race->readers[r])
            if (!race_slot_pair(race, r, steps[i], "it writes scratch that may still be read"))
                return false;
        if (writes) {
            memory = (struct race_memory){.write = steps[i], .reads = VERIFY_NONE};
        } else if (reads) {
            race->readers[steps[i]] = memory.reads;
            memory.reads = steps[i];
        }
    }
    return true;
}

static bool race_allocate(struct race *race)
{
    const struct verify *v = race->v;
    race->first = calloc((size_t)v->data_chunks + 1, sizeof(uint32_t));
    if (!race->first)
        return false;
    size_t events = 0, steps = (size_t)v->steps.count + 1;
    for (uint32_t step = 0; step < v->steps.count; step++)
        for (uint32_t c = 0; c < verify_step(v, step)->items; c++)
            race->first[verify_data(v, step, c)]++;
    for (uint32_t c = 0; c < v->data_chunks; c++) {
        uint32_t count = race->first[c];
        race->most = count > race->most ? count : race->most;
        race->first[c] = (uint32_t)events;
        events += count;
    }
    size_t words = (size_t)race->most / 64 + 1;
    race->steps = calloc((events > steps ? events : steps), sizeof(uint32_t));
    race->before = calloc((size_t)race->most + 1, words * sizeof(uint64_t));
    race->previous = calloc((size_t)race->most + 1, sizeof(uint32_t));
    race->latest = malloc(((size_t)v->lanes.count + 1) * sizeof(uint32_t));
    race->readers = calloc(steps + race->most, sizeof(uint32_t));
    race->seen = calloc(steps, sizeof(uint32_t));
    race->stack = calloc(steps, sizeof(uint32_t));
    return race->steps && race->before && race->previous && race->latest && race->readers &&
           race->seen && race->stack;
}

static bool verify_races(struct verify *v)
{
    struct race race = {.v = v};
    bool good = race_allocate(&race);
    if (!good) {
        v->no_memory = true;
        goto out;
    }
    memset(race.latest, 0xff, v->lanes.count * sizeof(*race.latest)); /* sets all to VERIFY_NONE */
    for (uint32_t i = 0; i < v->steps.count; i++) {
        const struct verify_step *s = verify_step(v, v->order[i]);
        for (uint32_t c = 0; c < s->items; c++)
            race.steps[race.first[verify_data(v, v->order[i], c)]++] = v->order[i];
    }
    /*
     * Here first[c] is the end of chunk c's events, which is the beginning of those of chunk c + 1.
     */
    memmove(race.first + 1, race.first, v->data_chunks * sizeof(*race.first));
    race.first[0] = 0;
    for (uint32_t chunk = 0; chunk < v->data_chunks && good; chunk++)
        good = race_chunk(&race, chunk);
    for (uint32_t rank = 0; rank < v->ranks && good; rank++) {
        /* Reuses the array, whose events are no longer needed. */
        uint32_t count = 0, *own = race.steps;
        size_t slots = v->rank[rank + 1].first_slot - v->rank[rank].first_slot;
        for (uint32_t i = 0; i < v->steps.count && slots > 0; i++)
            if (verify_step(v, v->order[i])->rank == rank)
                own[count++] = v->order[i];
        for (uint32_t slot = 0; slot < slots && good; slot++)
            good = race_slot(&race, own, count, slot);
    }
out:
    free(race.first);
    free(race.steps);
    free(race.before);
    free(race.previous);
    free(race.latest);
    free(race.readers);
    free(race.seen);
    free(race.stack);
    return good;
}

/*
 * Verifies the collected plans. Checks the results before it searches for races: a race makes the
 * results meaningless, but a wrong result is the more useful message.
 */
static void verify_all(struct verify *v)
{
    uint64_t *sums = calloc(v->ranks, sizeof(*sums));
    v->order = calloc(v->steps.count + 1, sizeof(*v->order));
    v->when = calloc(v->steps.count + 1, sizeof(*v->when));
    v->no_memory = !sums || !v->order || !v->when;
    if (v->no_memory || !verify_match(v))
        goto out;
    if (v->shape.collective == DIST_COLL_BARRIER) {
        v->entered = calloc(v->steps.count + 1, sizeof(*v->entered));
        v->no_memory = !v->entered;
        for (v->window = 0; v->window < v->ranks && !v->no_memory; v->window += 64)
            if (!verify_run(v) || !verify_barrier(v))
                break;
        goto out;
    }
    v->cells = calloc((size_t)v->ranks * 2 * v->count, sizeof(*v->cells));
    v->scratch = calloc(v->rank[v->ranks].first_slot + 1, sizeof(*v->scratch));
    v->no_memory = !v->cells || !v->scratch;
    if (v->no_memory)
        goto out;
    /* The initial content of the ranks' memory. */
    for (uint32_t rank = 0; rank < v->ranks; rank++) {
        struct disti_plan shape = verify_shape(v, rank);
        bool has = shape.collective != DIST_COLL_BROADCAST || shape.rank == shape.root;
        struct disti_chunk_ref ref;
        for (uint32_t c = 0; c < v->count && has; c++)
            if (disti_plan_locate(&shape, DISTI_IN, v->followed[c], &ref))
                *verify_cell(v, rank, ref, c) = (struct verify_cell){.sum = verify_number(v, rank),
                                                                     .order = verify_leaf(rank),
                                                                     .chunk = c,
                                                                     .written = true};
    }
    if (verify_run(v) && verify_outputs(v, verify_order(v->ranks, sums)) && verify_few(v))
        verify_races(v);
out:
    free(sums);
}

/* ---- plans ---- */

/* Initializes the verifier with what all plans have in common, taken from the first plan. */
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
    /* Follows all chunks if they fit into memory or there are few ranks, otherwise as many as fit,
     * evenly spaced. */
    uint64_t most = VERIFY_STEPS / VERIFY_STEPS_EACH / v->ranks;
    v->data_chunks = disti_plan_data_chunks(&v->shape);
    v->count = v->data_chunks;
    if (v->count > most && !verify_few(v))
        v->count = most ? (uint32_t)most : 1;
    verdict->all = v->count == v->data_chunks;
    v->followed = malloc(v->count * sizeof(*v->followed));
    v->seen = calloc(v->count, sizeof(*v->seen));
    v->rank = calloc((size_t)v->ranks + 1, sizeof(*v->rank));
    v->counters = calloc((size_t)2 * DISTI_CHANNELS * v->ranks, sizeof(*v->counters));
    v->no_memory = !v->followed || !v->seen || !v->rank || !v->counters;
    for (uint32_t i = 0; i < v->count && v->followed; i++)
        v->followed[i] = (uint32_t)((uint64_t)i * v->data_chunks / v->count);
}

/* Verifies the collected plans if status is DIST_OK and there is no fault so far, then frees
 * everything. Returns `status`, or ERR_NO_MEMORY. */
static dist_status verify_close(struct verify *v, dist_status status,
                                struct disti_verdict *verdict_p)
{
    if (status == DIST_OK && v->verdict->ok && !v->no_memory)
        verify_all(v);
    if (status == DIST_OK && v->no_memory)
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
    free(v->entered);
    return status;
}

dist_status disti_verify(struct disti_plan *const *plans, bool in_place,
                         struct disti_verdict *verdict_p)
{
    struct disti_verdict verdict;
    struct verify v;
    dist_status status = DIST_OK;
    verify_open(&v, plans[0], in_place, &verdict);
    for (int rank = 0; rank < plans[0]->ranks && !v.no_memory; rank++) {
        /* The plan must have the same shape as the first one and be well formed. */
        const struct disti_plan *plan = plans[rank], *shape = &v.shape;
        char text[256];
        if (plan->collective != shape->collective || plan->chunks != shape->chunks ||
            plan->root != shape->root || plan->ranks != shape->ranks || plan->rank != rank) {
            verify_fault(&v, VERIFY_NONE, "rank %d's plan does not match those of %d ranks", rank,
                         shape->ranks);
            break;
        }
        status = disti_plan_check(plan, text, sizeof(text));
        if (status == DIST_ERR_INTERNAL) {
            status = DIST_OK;
            verify_fault(&v, VERIFY_NONE, "%s", text);
        }
        if (status != DIST_OK || !verdict.ok || !verify_collect(&v, plan))
            break;
    }
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
    for (int rank = 0; rank < shape->ranks && good && !v.no_memory; rank++) {
        struct disti_shape own = *shape;
        struct disti_plan *plan;
        own.rank = rank;
        status = disti_plan_write(algorithm, &own, &plan);
        if (status != DIST_OK)
            break;
        if (rank == 0)
            verify_open(&v, plan, in_place, &verdict);
        good = !v.no_memory && verify_collect(&v, plan);
        disti_plan_free(plan);
    }
    return verify_close(&v, status, verdict_p);
}
